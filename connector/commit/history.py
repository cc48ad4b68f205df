"""Every decision that the ledger topic still holds, of all pipelines: for people and their tools.

Owns: reading the topic from its first offset to its end.
Does not know: what is done about a decision; a run itself reads only its newest one (`ledger`).
Invariants: nothing is written, fenced or waited for; a record that cannot be read comes out as such and hides no other;
a decision whose transaction has no end yet comes out as open, never as made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.commit.notes import is_note
from connector.errors import LedgerUnreadable
from connector.model import Decision, TopicPartition
from connector.records import Batch, MarkerKind, control_marker, decode, scan

_MADE_UP = re.compile(rb"batch-[0-9a-f]{32}")
"""The names of writes that were given none. Their decisions are marked for removal when the write is done."""


@dataclass(frozen=True)
class Entry:
    """One record of the ledger: where it stands, what it says, or why it cannot be read.

    `open`: its transaction is neither committed nor aborted, so it is no decision yet.
    """

    pipeline: str
    where: TopicPartition
    offset: int
    written_ms: int
    decision: Decision | None
    problem: str = ""
    open: bool = False


def entries(cluster: Cluster, topic: str, pipeline: str | None = None) -> Iterator[Entry]:
    """The ledger's records, of one pipeline or of all, in the order of their offsets within each partition.

    Aborted ones are left out. Those that are open come after the others of their partition. UnknownTopic where there is
    no such topic, AuthorizationFailed where it may not be read.
    """
    offsets = Offsets(cluster)
    partitions = offsets.partitions([topic])
    begins = offsets.earliest(partitions)
    ends = offsets.latest(partitions, READ_UNCOMMITTED)
    for where in partitions:
        yield from _partition(cluster, where, begins[where], ends[where], pipeline)


def newest_of_each(found: Iterable[Entry], keep: int) -> dict[str, list[Entry]]:
    """Pipeline -> its last `keep` entries, oldest first."""
    by_pipeline: dict[str, list[Entry]] = {}
    for entry in found:
        own = by_pipeline.setdefault(entry.pipeline, [])
        own.append(entry)
        # Bounded, because a topic that was never compacted may hold months of decisions.
        del own[:-keep]
    return dict(sorted(by_pipeline.items()))


def _partition(
    cluster: Cluster, where: TopicPartition, begin: int, end: int, pipeline: str | None
) -> Iterator[Entry]:
    pending: dict[int, list[Entry]] = {}
    offset = begin
    while offset < end:
        following = offset
        for info, data in scan(bytes(read_raw(cluster, where, offset).records)):
            following = max(following, info.last_offset + 1)
            if info.control:
                kind = control_marker((info, data)).kind
                ended = pending.pop(info.producer_id, []) if kind is not MarkerKind.OTHER else []
                yield from ended if kind is MarkerKind.COMMIT else ()
                continue
            read = [each for each in _read(where, (info, data)) if pipeline in (None, each.pipeline)]
            if info.transactional:
                pending.setdefault(info.producer_id, []).extend(read)
            else:
                yield from read
        if following == offset:
            break
        offset = following
    for entry in sorted((each for own in pending.values() for each in own), key=lambda each: each.offset):
        yield Entry(
            entry.pipeline, where, entry.offset, entry.written_ms, entry.decision, entry.problem, open=True
        )


def _read(where: TopicPartition, batch: Batch) -> Iterator[Entry]:
    rows = decode(batch)
    columns = zip(rows.key.to_pylist(), rows.value.to_pylist(), rows.offset, rows.timestamp_ms, strict=True)
    for key, value, offset, written_ms in columns:
        if is_note(key) or (value is None and _MADE_UP.fullmatch(key or b"")):
            continue
        pipeline = (key or b"").decode("utf-8", "replace")
        decision: Decision | None = None
        problem = ""
        try:
            said = Decision.from_bytes(value or b"")
            if said.pipeline == pipeline:
                decision = said
            else:
                problem = f"it is a decision of pipeline {said.pipeline!r}"
        except LedgerUnreadable as error:
            problem = error.message
        yield Entry(pipeline, where, int(offset), int(written_ms), decision, problem)
