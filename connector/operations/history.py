"""Every decision that the ledger topic still holds, of all pipelines: for people and their tools.

Owns: reading the topic backwards, a window at a time.
Does not know: what follows from a decision; a run itself reads only its newest one (`ledger`).
Invariants:
- Nothing is written, fenced or waited for.
- A record that cannot be read is returned as unreadable and hides no other.
- A decision whose transaction has no end yet is returned as open, never as made.
- What is in front of a tombstone of its pipeline is not returned: there is no such pipeline any more.
- The newest entries of one pipeline are found without reading older records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.commit.ledger.joining import decision_in
from connector.commit.ledger.notes import is_note
from connector.commit.ledger.topic import Ledger
from connector.errors import LedgerUnreadable
from connector.model import Decision, Seal, TopicPartition
from connector.records import Batch, DecodedBatch, MarkerKind, control_marker, decode_many, scan

_WINDOW = 200
"""Offsets read first, at the end of a partition; doubled from window to window,
so that the first decisions appear at once and a long history takes few requests.
Half saves a millisecond; ten times as many delay the first line noticeably."""

_LONGEST_WINDOW = 6400
"""Some 2,000 decisions, less than a second's work; a longer window makes a display stutter."""


@dataclass(frozen=True)
class Entry:
    """One record of the ledger: its place, and its decision or why it cannot be read.

    `open`: its transaction is neither committed nor aborted, so it is no decision yet.
    """

    pipeline: str
    where: TopicPartition
    offset: int
    written_ms: int
    decision: Decision | None
    problem: str = ""
    open: bool = False

    @property
    def status(self) -> str:
        """unreadable, open or decided."""
        return "unreadable" if self.problem else "open" if self.open else "decided"


def slot_of(seal: Seal) -> dict[str, Any]:
    """A decision's slot, by the names under which people and programs see it."""
    return {
        "slot": seal.slot,
        "transactional_id": seal.transactional_id,
        "producer_id": seal.identity.producer_id if seal.identity else None,
        "producer_epoch": seal.identity.epoch if seal.identity else None,
        "transaction_version": seal.transaction_version,
        "two_phase": seal.two_phase,
        "records": seal.records,
        "bytes": seal.bytes,
        "digest": f"{seal.digest:016x}",
        "partitions": [
            {
                "topic": part.topic,
                "partition": part.partition,
                "first_offset": part.first_offset,
                "records": part.records,
            }
            for part in seal.partitions
        ],
    }


def newest_first(
    cluster: Cluster, topic: str, pipeline: str | None = None, keep: int | None = None
) -> Iterator[list[Entry]]:
    """The ledger's records of one pipeline or of all, page by page; at most `keep` of each pipeline, its newest.

    A page has records of one partition, by pipeline and then the newest first, and those of the next pages of that partition are
    older. Aborted ones are left out. UnknownTopic where there is no such topic, AuthorizationFailed where it may not be read.
    """
    kept: Counter[str] = Counter()
    for where, begin, end in _places(cluster, topic, pipeline):
        forgotten: set[str] = set()
        for lower, upper in _windows(begin, end):
            if pipeline is not None and keep is not None and kept[pipeline] >= keep:
                return
            page: list[Entry] = []
            for record in _newest_first(cluster, where, lower, upper, forgotten):
                if pipeline in (None, record.pipeline) and (keep is None or kept[record.pipeline] < keep):
                    kept[record.pipeline] += 1
                    page.append(record.entry(cluster))
            yield sorted(page, key=lambda each: each.pipeline)


def newest_of_each(pages: Iterable[list[Entry]]) -> dict[str, list[Entry]]:
    """Pipeline -> its entries of these pages, oldest first."""
    by_pipeline: dict[str, list[Entry]] = {}
    for page in pages:
        for entry in page:
            by_pipeline.setdefault(entry.pipeline, []).append(entry)
    return {name: by_pipeline[name][::-1] for name in sorted(by_pipeline)}


def pipelines_of(cluster: Cluster, topic: str) -> set[str]:
    """The names that the ledger has a record of, whatever its contents, but for those that were forgotten."""
    names: set[str] = set()
    for where, begin, end in _places(cluster, topic, None):
        forgotten: set[str] = set()
        for lower, upper in _windows(begin, end):
            names |= {record.pipeline for record in _newest_first(cluster, where, lower, upper, forgotten)}
    return names


def _places(cluster: Cluster, topic: str, pipeline: str | None) -> Iterator[tuple[TopicPartition, int, int]]:
    """The partitions with the first and the next offset of each; the pipeline's own comes first."""
    offsets = Offsets(cluster)
    partitions = offsets.partitions([topic])
    begins = offsets.earliest(partitions)
    ends = offsets.latest(partitions, READ_UNCOMMITTED)
    own = Ledger(cluster, topic, pipeline).partition if pipeline is not None else None
    for where in sorted(partitions, key=lambda each: (each != own, each)):
        yield where, begins[where], ends[where]


def _windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    size, upper = _WINDOW, end
    while upper > begin:
        lower = max(begin, upper - size)
        yield lower, upper
        size, upper = min(2 * size, _LONGEST_WINDOW), lower


# ---- one window


@dataclass(frozen=True)
class _Record:
    """A record under a pipeline's key, not yet read. `value`: None of a tombstone."""

    pipeline: str
    where: TopicPartition
    offset: int
    written_ms: int
    value: bytes | None
    open: bool

    def entry(self, cluster: Cluster) -> Entry:
        decision: Decision | None = None
        problem = ""
        try:
            said = decision_in(cluster, self.where, self.pipeline, self.offset, self.value or b"")
            if said.pipeline == self.pipeline:
                decision = said
            else:
                problem = f"it is a decision of pipeline {said.pipeline!r}"
        except LedgerUnreadable as error:
            problem = error.message
        return Entry(
            self.pipeline, self.where, self.offset, self.written_ms, decision, problem, open=self.open
        )


def _newest_first(
    cluster: Cluster, where: TopicPartition, lower: int, upper: int, forgotten: set[str]
) -> Iterator[_Record]:
    """The window's records that no tombstone is behind. `forgotten`: the pipelines of the partition that have one behind this
    window; those with one in it are added."""
    for record in reversed(_window(cluster, where, lower, upper)):
        if record.value is None and not record.open:
            forgotten.add(record.pipeline)
        elif record.pipeline not in forgotten:
            yield record


def _window(cluster: Cluster, where: TopicPartition, lower: int, upper: int) -> list[_Record]:
    """The records between two offsets that are committed, or not yet ended, in the order of their offsets."""
    pending: dict[int, list[Batch]] = {}
    ended: list[Batch] = []
    offset = lower
    # A marker may be behind `upper`: reading continues until every transaction has its own, or the log ends.
    while offset < upper or pending:
        following = offset
        for info, data in scan(bytes(read_raw(cluster, where, offset).records)):
            following = max(following, info.last_offset + 1)
            if info.base_offset >= upper and not pending:
                break
            if info.control:
                kind = control_marker((info, data)).kind
                batches = pending.pop(info.producer_id, []) if kind is not MarkerKind.OTHER else []
                ended += batches if kind is MarkerKind.COMMIT else []
            elif info.base_offset < upper and info.transactional:
                pending.setdefault(info.producer_id, []).append((info, data))
            elif info.base_offset < upper:
                ended.append((info, data))
        if following == offset:
            break
        offset = following
    unended = [batch for batches in pending.values() for batch in batches]
    found = [*_records(where, ended, lower, upper, False), *_records(where, unended, lower, upper, True)]
    return sorted(found, key=lambda each: each.offset)


def _records(
    where: TopicPartition, batches: list[Batch], lower: int, upper: int, unended: bool
) -> Iterator[_Record]:
    if not batches:
        return
    rows: DecodedBatch = decode_many(batches, include_headers=False)
    columns = zip(rows.key.to_pylist(), rows.value.to_pylist(), rows.offset, rows.timestamp_ms, strict=True)
    for key, value, offset, written_ms in columns:
        if not lower <= offset < upper or is_note(key):
            continue
        pipeline = (key or b"").decode("utf-8", "replace")
        yield _Record(pipeline, where, int(offset), int(written_ms), value, unended)
