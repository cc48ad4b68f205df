"""Compaction, through what a reader sees once it has settled: keys, values, offsets, what was aborted, tombstones,
sequences.

How many rounds a cleaner makes is its own affair, so a step waits until what is to be read is there, and then notes it.
"""

from __future__ import annotations

from typing import Any

from kafka.record.default_records import DefaultRecordBatch

from tests.differential.play import Play
from tests.differential.records import FIRST_TIMESTAMP_MS, keyed, whole_batches
from tests.differential.script import scenario

_LATER_MS = 10_000
"""Between two batches: more than segment.ms, so that each has a segment of its own. (Kafka 4 wants segment.bytes of 1
MB at least.)
"""
_LONG = "1000000000"


class Table:
    """A compacted topic, each batch later than the one before."""

    def __init__(self, play: Play, *, delete_retention_ms: str = _LONG, **configs: str) -> None:
        self.play = play
        self.topic = play.topic(
            cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01",
            delete_retention_ms=delete_retention_ms, **configs,
        )  # fmt: skip
        self._writes = 0

    def write(self, *pairs: tuple[str, str | None], label: str | None = None, transactional_id: str | None = None, **batch: Any) -> Any:  # fmt: skip
        self._writes += 1
        at = FIRST_TIMESTAMP_MS + self._writes * _LATER_MS
        data = keyed(pairs, timestamp_ms=at, transactional=transactional_id is not None, **batch)
        answer = self.play.produce(label, self.topic, data, transactional_id=transactional_id)
        code = answer["responses"][0]["partition_responses"][0]["error_code"]
        assert label is not None or code == 0, answer
        return answer

    def batches(self, *, committed: bool = False) -> list[DefaultRecordBatch]:
        """Every batch, fetched as a reader does: on from where the last one ended."""
        offset, found = 0, []
        while True:
            answer = self.play.fetch(None, self.topic, offset, committed=committed, max_bytes=2_000)
            part = answer["responses"][0]["partitions"][0]
            assert part["error_code"] == 0, part
            # A broker may begin with a batch that ends before the offset that was asked for.
            got = [each for each in whole_batches(part["records"]) if each.last_offset >= offset]
            if not got:
                return found
            found += got
            offset = got[-1].last_offset + 1

    def shown(self, *, committed: bool = False) -> list[list[Any]]:
        """[offset, key, value] of each record; nothing of a record that does not end a transaction is left out."""
        return [
            [record.offset, _text(record.key), _text(record.value)]
            for batch in self.batches(committed=committed)
            if not batch.is_control_batch
            for record in batch
        ]

    def markers(self) -> list[list[Any]]:
        """[offset, how it ended] of each marker that says something."""
        return [
            [record.offset, "commit" if record.commit else "abort"]
            for batch in self.batches()
            if batch.is_control_batch
            for record in batch
        ]

    def settled(self, *wanted: tuple[int, str, str | None]) -> None:
        """Until exactly these records are left."""
        expected = [list(each) for each in wanted]
        self.play.wait_until(lambda: self.shown() == expected, f"{expected} is what is left")
        self.play.note(f"settled on {len(self.play.transcript)}", self.shown())


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


@scenario(both_protocols=True)
def compacted_keys(play: Play) -> None:
    table = Table(play)
    table.write(("a", "1"), ("b", "1"), ("c", "1"))
    table.write(("a", "2"))
    table.write(("b", None), ("d", "1"))
    table.write(("a", "3"), ("a", "4"))
    table.write(("active", "1"))
    table.settled((2, "c", "1"), (4, "b", None), (5, "d", "1"), (7, "a", "4"), (8, "active", "1"))
    for offset in range(10):
        answer = play.fetch(None, table.topic, offset)
        part = answer["responses"][0]["partitions"][0]
        ahead = [r.offset for each in whole_batches(part["records"]) for r in each if r.offset >= offset]
        play.note(f"from {offset}", [part["error_code"], part["high_watermark"], part["log_start_offset"], ahead])
    for name, timestamp in {"earliest": -2, "latest": -1, "of the latest time": -3}.items():
        play.offset_at(name, table.topic, timestamp)
    for number in range(7):
        play.offset_at(f"after {number} writes", table.topic, FIRST_TIMESTAMP_MS + number * _LATER_MS)


@scenario(both_protocols=True)
def compacted_tombstones_go(play: Play) -> None:
    table = Table(play, delete_retention_ms="1")
    table.write(("a", "1"), ("b", "1"))
    table.write(("a", None))

    def gone() -> bool:
        # A cleaner comes to it only when there is something new.
        table.write(("filler", "1"))
        return not any(key == "a" for _, key, _ in table.shown())

    play.wait_until(gone, "the tombstone is gone")
    play.note("left of the others", [record for record in table.shown() if record[1] != "filler"])


@scenario(both_protocols=True)
def compacted_transactions(play: Play) -> None:
    table = Table(play)
    first, second = play.transaction(initialised=1), play.transaction(initialised=1)
    for txn in (first, second):
        txn.topic = table.topic
        if not play.new_protocol:
            play.add(None, txn, {table.topic: [0]})
    table.write(("a", "before"), ("b", "before"))
    table.write(("a", "aborted"), ("c", "aborted"), who=first.who, sequence=0, transactional_id=first.name)
    table.write(("b", "committed"), who=second.who, sequence=0, transactional_id=second.name)
    play.ended(first, commit=False)
    play.ended(second, commit=True)
    table.write(("d", "1"))
    table.write(("active", "1"))
    table.settled((0, "a", "before"), (4, "b", "committed"), (7, "d", "1"), (8, "active", "1"))
    play.note("committed", table.shown(committed=True))
    play.note("markers", table.markers())
    play.producers("producers", table.topic)


@scenario(both_protocols=True)
def compacted_below_what_is_open(play: Play) -> None:
    table = Table(play)
    txn = play.transaction(initialised=1)
    txn.topic = table.topic
    if not play.new_protocol:
        play.add(None, txn, {table.topic: [0]})
    table.write(("a", "1"))
    table.write(("a", "2"))
    table.write(("b", "open"), who=txn.who, sequence=0, transactional_id=txn.name)
    table.write(("c", "1"))
    table.write(("c", "2"))
    table.write(("active", "1"))
    table.settled((1, "a", "2"), (2, "b", "open"), (3, "c", "1"), (4, "c", "2"), (5, "active", "1"))
    play.note("committed", table.shown(committed=True))
    play.ended(txn, commit=True)
    table.write(("active", "2"))
    table.settled((1, "a", "2"), (2, "b", "open"), (4, "c", "2"), (5, "active", "1"), (7, "active", "2"))


@scenario(both_protocols=True)
def compacted_sequences_go_on(play: Play) -> None:
    table = Table(play)
    who = play.producer()
    for sequence in range(3):
        table.write(("a", str(sequence)), who=who, sequence=sequence)
    table.write(("a", "another's"))
    table.write(("active", "1"))
    table.settled((3, "a", "another's"), (4, "active", "1"))
    play.producers("producers", table.topic)
    table.write(("a", "2"), who=who, sequence=2, label="the last one again")
    table.write(("a", "9"), who=who, sequence=9, label="a gap")
    table.write(("a", "3"), who=who, sequence=3, label="the next one")


@scenario()
def compacted_and_compressed(play: Play) -> None:
    for codec in (1, 2, 3, 4):
        table = Table(play)
        table.write(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
        table.write(("b", None), ("c", "1"), codec=codec)
        table.write(("active", "1"))
        table.settled((2, "a", "2"), (3, "b", None), (4, "c", "1"), (5, "active", "1"))
        play.note(f"codecs {codec}", [each.compression_type for each in table.batches() if list(each)])
