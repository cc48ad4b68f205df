"""The grammar of transactional ids: `<pipeline>:<slot>`, `<pipeline>:driver`, `<pipeline>:batch`, `<pipeline>:notes`.

Invariants:
- Every id that is made here parses to the parts that it was made of.
- No id of a pipeline begins with another pipeline's prefix: the separator is in no pipeline's name. So an ACL on
  `prefix_of` opens the ids of one pipeline, and `orders` has none on those of `orders.eu`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DRIVER = "driver"
BATCH = "batch"
NOTES = "notes"

SEPARATOR = ":"
_SLOT = "[0-9]+"
_ID = re.compile(rf"(?P<pipeline>.+){SEPARATOR}(?P<last>{_SLOT}|{DRIVER}|{BATCH}|{NOTES})")


@dataclass(frozen=True)
class PipelineId:
    """A transactional id that a pipeline uses. `last`: "driver", "batch", "notes", or the slot's number as it is
    written.
    """

    pipeline: str
    last: str

    @property
    def slot(self) -> int | None:
        """The slot's number; None for the ids of the driver, of whole batches and of notes."""
        return int(self.last) if self.last.isdigit() else None


def prefix_of(pipeline: str) -> str:
    """What all ids of a pipeline begin with, and no other id."""
    return f"{pipeline}{SEPARATOR}"


def slot_transactional_id(pipeline: str, slot: int) -> str:
    """The id of a slot: one per slot, never one per batch."""
    return f"{prefix_of(pipeline)}{slot}"


def driver_transactional_id(pipeline: str) -> str:
    """The id under which the driver decides."""
    return f"{prefix_of(pipeline)}{DRIVER}"


def batch_transactional_id(pipeline: str) -> str:
    """The id under which a whole micro-batch is one transaction (transaction.scope=batch)."""
    return f"{prefix_of(pipeline)}{BATCH}"


def notes_transactional_id(pipeline: str) -> str:
    """The id under which notes are written into the ledger, by whatever process has one to write."""
    return f"{prefix_of(pipeline)}{NOTES}"


def writing_ids(pipeline: str) -> str:
    """The pattern of the ids under which a pipeline writes records: those of its slots and of whole batches."""
    return rf"{re.escape(prefix_of(pipeline))}({_SLOT}|{BATCH})"


def all_ids(pipeline: str) -> str:
    """The pattern of all ids of a pipeline."""
    return rf"{re.escape(prefix_of(pipeline))}({_SLOT}|{DRIVER}|{BATCH}|{NOTES})"


def parse_transactional_id(text: str) -> PipelineId | None:
    """The parts that an id was made of; None for an id that no pipeline uses."""
    match = _ID.fullmatch(text)
    return PipelineId(match["pipeline"], match["last"]) if match else None
