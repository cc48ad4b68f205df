"""The grammar of transactional ids: `<pipeline>.<slot>`, `<pipeline>.driver`, `<pipeline>.batch`.

Invariants: every id that is made here parses to the parts that it was made of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DRIVER = "driver"
BATCH = "batch"

_SLOT = "[0-9]+"
_ID = re.compile(rf"(?P<pipeline>.+)\.(?P<last>{_SLOT}|{DRIVER}|{BATCH})")


@dataclass(frozen=True)
class PipelineId:
    """A transactional id that a pipeline uses. `last`: "driver", "batch", or the slot's number as it is written."""

    pipeline: str
    last: str

    @property
    def slot(self) -> int | None:
        """The slot's number; None for the ids of the driver and of whole batches."""
        return int(self.last) if self.last.isdigit() else None


def slot_transactional_id(pipeline: str, slot: int) -> str:
    """The id of a slot: one per slot, never one per batch."""
    return f"{pipeline}.{slot}"


def driver_transactional_id(pipeline: str) -> str:
    """The id under which the driver decides."""
    return f"{pipeline}.{DRIVER}"


def batch_transactional_id(pipeline: str) -> str:
    """The id under which a whole micro-batch is one transaction (transaction.scope=batch)."""
    return f"{pipeline}.{BATCH}"


def writing_ids(pipeline: str) -> str:
    """The pattern of the ids under which a pipeline writes records: those of its slots and of whole batches."""
    return rf"{re.escape(pipeline)}\.({_SLOT}|{BATCH})"


def all_ids(pipeline: str) -> str:
    """The pattern of all ids of a pipeline."""
    return rf"{re.escape(pipeline)}\.({_SLOT}|{DRIVER}|{BATCH})"


def parse_transactional_id(text: str) -> PipelineId | None:
    """The parts that an id was made of; None for an id that no pipeline uses."""
    match = _ID.fullmatch(text)
    return PipelineId(match["pipeline"], match["last"]) if match else None
