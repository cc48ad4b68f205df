"""A decision that is larger than a record of the ledger may be: cut into parts, and put together again.

Owns: the parts, the record that stands for them, the judgement whether they are whole.
Does not know: how records are written or found.
Invariants:
- Parts that do not give the digest of their decision are no decision.
- A reader of another version refuses both kinds of record, by their version.

The record under the pipeline's own key is the `Manifest`, the last one that is written. The parts are records of the
same transaction under keys of their own, so each batch's parts take the place of the batch's before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_core.errors import LedgerUnreadable
from pyspark_kafka_eos.model import LEDGER_FORMAT_VERSION, strict
from pyspark_kafka_eos.version import __version__

MOST_PARTS = 1_000_000
"""A decision of 10,000 slots has some 3 MB, in parts of a hundred bytes or more. No record of ours names more. Half
would do as well; with double a foreign record could make a reader search twice as long."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_ESCAPED = 2
"""A part is text of JSON within JSON: each quotation mark takes two bytes. Uncompressed it then still fits its
record.
"""

_ENVELOPE_BYTES = 320
"""What a part's record has beside its text and its pipeline's name: names, digest, header of the batch."""


@dataclass(frozen=True)
class DecisionPart:
    """One piece of a decision's JSON. `digest`: the decision's. `group`: which copy it belongs to, part of the record's
    key: empty for the decision itself, the decision's offset for the copy that a note of its commit has.
    """

    digest: str
    number: int
    text: str
    group: str = ""


@dataclass(frozen=True)
class Manifest:
    """Stands for a decision in parts. `digest`: SHA-256 of its bytes, in hex."""

    digest: str
    parts: int

    def to_json(self) -> dict[str, Any]:
        """As a record has it."""
        return {"digest": self.digest, "parts": self.parts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        """Read one back; one of `strict.MALFORMED` where it is not one."""
        return Manifest(sha256_of(data["digest"]), strict.whole(data["parts"], 1, MOST_PARTS))

    def to_bytes(self) -> bytes:
        """The value of the record under the pipeline's own key."""
        return _text_of({"version": LEDGER_FORMAT_VERSION, **self.to_json(), "connector_version": __version__}).encode()

    @staticmethod
    def from_record(value: bytes) -> Manifest | None:
        """The manifest that a record under the pipeline's own key is, None where it is something else."""
        # A decision of megabytes is not parsed twice.
        if not value.startswith(_BEGINNING):
            return None
        try:
            return Manifest.from_json(strict.load(value))
        except strict.MALFORMED:
            return None


def parts_before(value: bytes | None) -> int:
    """How many records a decision has before this one under the pipeline's own key, in its transaction."""
    manifest = Manifest.from_record(value) if value else None
    return manifest.parts if manifest is not None else 0


def sha256_of(value: Any) -> str:
    """A digest of a decision; ValueError or TypeError where it is none."""
    if not _SHA256.fullmatch(strict.text(value)):
        raise ValueError(f"{value[:80]!r} is no SHA-256")
    return str(value)


_text_of = json.JSONEncoder(separators=(",", ":")).encode

_BEGINNING = Manifest("", 0).to_bytes().partition(b'""')[0]


def cut(value: bytes, room_bytes: int, group: str = "") -> tuple[Manifest, list[DecisionPart]]:
    """A decision's bytes in parts whose records have at most `room_bytes` each. A part has one byte at least, so a room
    of less than 1 KB may be exceeded.
    """
    digest = hashlib.sha256(value).hexdigest()
    # The JSON of a decision is ASCII, so a byte is a character.
    text = value.decode("ascii")
    size = max(1, (room_bytes - _ENVELOPE_BYTES) // _ESCAPED)
    parts = [
        DecisionPart(digest, number, text[start : start + size], group)
        for number, start in enumerate(range(0, len(text), size))
    ]
    return Manifest(digest, len(parts)), parts


class Collection:
    """The parts of one manifest, as they are found. Parts of other decisions are passed over."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._found: dict[int, str] = {}

    def add_parts(self, parts: Iterable[DecisionPart]) -> None:
        """Keep what belongs to the manifest."""
        mine, most = self._manifest.digest, self._manifest.parts
        self._found |= {part.number: part.text for part in parts if part.digest == mine and part.number < most}

    @property
    def complete(self) -> bool:
        """Whether every part is there."""
        return len(self._found) == self._manifest.parts

    def value(self) -> bytes:
        """The decision's bytes. LedgerUnreadable where parts are missing or are not what was written."""
        if not self.complete:
            missing = self._manifest.parts - len(self._found)
            first = next(number for number in range(self._manifest.parts) if number not in self._found)
            raise LedgerUnreadable(
                f"{missing} of the {self._manifest.parts} parts of a decision are not in the ledger any more; nothing was "
                "changed; a newer decision of this pipeline takes their place, so only its newest decision has to be whole. If "
                "this is the newest one, restore the ledger topic",
                {"missing": first, "parts": self._manifest.parts},
            )
        value = "".join(self._texts()).encode("ascii", "replace")
        if hashlib.sha256(value).hexdigest() != self._manifest.digest:
            raise LedgerUnreadable(
                "the parts of a decision in the ledger are not what was written; nothing was changed; look at the records with a "
                "console consumer and restore the ledger topic",
                {"parts": self._manifest.parts},
            )
        return value

    def _texts(self) -> Iterator[str]:
        return (self._found[number] for number in range(self._manifest.parts))
