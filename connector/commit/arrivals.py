"""Whether all writers of a batch in one transaction got the same rows: from which start of each encoding task they came.

Owns: what a writer has to hear of every encoding task, and the comparison.
Does not know: Spark, what a batch holds.
Invariants: a writer's word is complete only when every batch that it got is covered by an end; writers whose words differ must
not be committed together.

Spark may run an encoding task again when its output is lost, and its rows need not be the same then (a query with rand(), an
upstream shuffle in another order). A writer that was done by then has the rows of the first start, one that begins later those
of the second: together they would miss records or have some twice, and each of them would be whole by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from connector.errors import AttemptRefused, InternalError


class Arrivals:
    """What one writer heard. Call `batch` for each batch and `end` after the last one of a task's start."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._batches = 0

    def batch(self) -> None:
        """One batch came."""
        self._batches += 1

    def end(self, task: int, start: int, batches: int) -> None:
        """A start of an encoding task has no more, and says how many batches it had for this writer."""
        if batches != self._batches or task in self._starts:
            raise InternalError(
                "what an encoding task had for a writer did not arrive once and whole; it must not be committed",
                {"task": task, "start": start, "batches": batches, "arrived": self._batches},
            )
        self._starts[task] = start
        self._batches = 0

    def word(self) -> str:
        """From which starts everything came, as a text that is equal where the starts are."""
        if self._batches:
            raise InternalError(
                "an encoding task did not say that it had ended; what arrived must not be committed",
                {"batches": self._batches},
            )
        listed = json.dumps(sorted(self._starts.items()))
        return f"{len(self._starts)} {hashlib.sha256(listed.encode()).hexdigest()}"


def require_agreement(words: Collection[str]) -> None:
    """AttemptRefused where writers got different starts of an encoding task: then the batch has to be done again."""
    if len(set(words)) > 1:
        raise AttemptRefused(
            "an encoding task of the batch was started again and its rows may differ, after some writers had sent those of the "
            "earlier start; nothing is visible; the batch is aborted and done again under a new epoch",
            {"writers": len(words), "different": len(set(words))},
        )
