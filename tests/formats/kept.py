"""Every form of ours that outlives the process that wrote it: a value, how it is written and read, what the golden file
is called.

Owns: the list. `python -m tests.formats.kept` writes the golden files. The embedded broker's own files have theirs in
its tests; dead letters have no version: their headers are documented one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_core.errors import ExactlyOnceError, LedgerUnreadable, OptionsError, ProtocolViolation
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.commit.ledger import notes
from pyspark_kafka_eos.commit.ledger.parts import Manifest
from pyspark_kafka_eos.model import (
    Basis,
    Decision,
    GroupOffset,
    KeptPartition,
    RoutedTopic,
    RowOptions,
    Seal,
    SealedPartition,
    TopicRules,
    Traffic,
    committed,
)
from pyspark_kafka_eos.slot import turn_log
from pyspark_kafka_eos.slot.turns import Passed, Stopped, TaskStarted, Wanted
from pyspark_kafka_eos.spark.offset_json import Position, position_of, to_json
from pyspark_kafka_eos.version import __version__

GOLDEN = Path(__file__).parent / "golden"
WRITTEN_BY = "0.1.0"
"""The version of the package that a golden file names: no part of its format."""

Raised = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Kept:
    """One form. `raised`: the same text as a version of the format that is one higher has it; `refused`, `says`: what
    reading that raises, and who must act.
    """

    name: str
    value: Any
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    raised: Raised
    refused: type[ExactlyOnceError]
    says: str

    @property
    def golden(self) -> bytes:
        """What the file has."""
        return (GOLDEN / f"{self.name}.json").read_bytes().rstrip(b"\n")

    def written(self) -> bytes:
        """What this version of the package writes."""
        ours, theirs = (f'"connector_version":"{each}"'.encode() for each in (__version__, WRITTEN_BY))
        return self.write(self.value).replace(ours, theirs)


def _json(value: bytes) -> Any:
    return json.loads(value)


def _dumped(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _one_more(field: str) -> Raised:
    return lambda value: _dumped({**_json(value), field: _json(value)[field] + 1})


_NEWER_IN_LEDGER = "newer version of this connector; nothing was changed; run at least that version"
_WHO = ProducerIdentity(4_000, 7)
_ORDERS = TopicPartition("orders", 1)
_TOPIC = RoutedTopic("orders", "GmtVBUKSRbSLEXyTGtQEnw", 4)
_PART = SealedPartition("orders", 1, 17, 4, 5, 2**63 + 1, 3)

DECISION = Decision(
    pipeline="totals",
    query_id="5cf478f0-b1ab-4772-8eae-b89ff01b91a8",
    batch_id=3,
    seals=(
        Seal(
            "totals:0", 0, _WHO, 2, records=7, bytes=900, digest=2**62 + 5, opened_ms=1_700_000_000_000, two_phase=True, retries=1,
            attempt=2, dead_letters=1, topics=(_TOPIC,), partitions=(_PART, SealedPartition("orders", 2, 0, -1, 2)),
            kept=(KeptPartition(_WHO, SealedPartition("orders", 0, 1, 0, 1, 9, 3)),),
        ),
        Seal("totals:1", 1, None, 0),
        Seal(
            "totals:2", 2, ProducerIdentity(4_001, 0), 1, topics=(RoutedTopic("orders", "other-id", 6),),
            measured=(_PART,), apart=((5, (_TOPIC,)),),
        ),
    ),
    source_offsets=('{"in":{"0":23}}', "-"),
    decided_ms=1_700_000_001_000,
    connector_version=WRITTEN_BY,
    repaired=1,
    earlier=(("totals:9", ProducerIdentity(4_009, 2)),),
    warnings=("a warning",),
    traffic=Traffic(3, 4, 500, 6_000, 7_000, 8, 9),
    sticky_bytes=1_048_576,
    basis=Basis("Europe/Berlin", 1_700_000_000_500, (("orders", TopicRules(1_000, True, 1, 2, 3, True)),)),
    row_options=RowOptions("orders", "dead", "gzip", -1, 7, 8),
    number=12,
    planned_ms=1_700_000_000_100,
    writers=(9_001, 9_002, 9_003),
)  # fmt: skip
_SMALL = Decision("totals", "q", 0, (), row_options=RowOptions("orders"))
_MANIFEST = Manifest("ab" * 32, 3)

_NOTES: dict[str, notes.Note] = {
    "ended": notes.Ended("q", 4, 1_234, 1, _WHO),
    "settled": notes.Settled(99, _WHO, _SMALL),
    "settled-in-parts": notes.SettledInParts(99, _WHO, _MANIFEST),
    "mending": notes.Mending("totals:0", _WHO, (_ORDERS, TopicPartition("orders", 3))),
    "aborted": notes.Aborted("totals:0", _WHO),
    "began": notes.Began("q", 3, adopted=True),
    "renamed": notes.Renamed("q", "sums"),
    "moved": notes.Moved(12),
    "named": notes.Named((9_001, 9_003)),
    "part": notes.DecisionPart("ab" * 32, 4, '{"version":1,', "99"),
}

_TURNS = (
    5,
    [TaskStarted(2, "s"), Wanted(2, "s", _ORDERS), Passed(2, "s", _ORDERS, 41), Stopped(2, "s", "out of memory")],
)
_GROUP_OFFSET = GroupOffset(23, 4, "GmtVBUKSRbSLEXyTGtQEnw", "MkU3OEVBNTcwNTJENDM2Qg")
_POSITION = Position(
    {_ORDERS: 23, TopicPartition("orders", 0): 5},
    "MkU3OEVBNTcwNTJENDM2Qg",
    {_ORDERS: LogMark("an-id", 4), TopicPartition("orders", 0): LogMark("an-id", 3)},
    Position({_ORDERS: 17}, logs={_ORDERS: LogMark("an-id", 4)}),
)


def _of_pipelines_key(value: bytes) -> Decision | Manifest:
    """What stands under the pipeline's own key."""
    return Manifest.from_record(value) or Decision.from_bytes(value)


KEPT = (
    Kept("decision", DECISION, Decision.to_bytes, Decision.from_bytes, _one_more("version"), LedgerUnreadable, _NEWER_IN_LEDGER),
    Kept("decision-in-parts", _MANIFEST, Manifest.to_bytes, _of_pipelines_key, _one_more("version"), LedgerUnreadable, _NEWER_IN_LEDGER),
    *(
        Kept(f"note-{name}", note, notes.to_bytes, notes.from_bytes, _one_more("version"), LedgerUnreadable, _NEWER_IN_LEDGER)
        for name, note in _NOTES.items()
    ),
    Kept(
        "turns", _TURNS, lambda said: turn_log.to_json(*said), turn_log.from_json, _one_more("version"), ProtocolViolation,
        "do not run one pipeline with two versions at a time",
    ),
    Kept(
        "group-offset", _GROUP_OFFSET, lambda at: at.metadata().encode(), lambda text: committed(23, 4, text.decode(), "totals"),
        _one_more("kafka_eos"), OptionsError, "Nothing was read. Go on with the version that wrote them",
    ),
    Kept(
        "source-offsets", _POSITION, lambda at: _dumped(to_json(at)), lambda text: position_of(_json(text)),
        lambda text: text.replace(b'"version:1"', b'"version:2"'), OptionsError, "Nothing was read. Go on with the version that wrote them",
    ),
)  # fmt: skip
"""A form that is read by a later process of any version of the package."""


def main() -> None:
    """Write every golden file anew."""
    GOLDEN.mkdir(exist_ok=True)
    for kept in KEPT:
        (GOLDEN / f"{kept.name}.json").write_bytes(kept.written() + b"\n")


if __name__ == "__main__":
    main()
