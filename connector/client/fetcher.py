"""Records of offset ranges as Arrow batches, as a read_committed reader may see them.

Owns: Fetch requests, which batches of an answer are visible, and when a range has been read to its end.
Does not know: Spark, where ranges come from, who committed what.
Invariants: every visible record with start <= offset < end comes out exactly once, in the order of its partition; an
offset without a visible record (marker, aborted, compacted away) is passed over and never waited for; at most one answer
per leader is held besides the one that is being decoded.

What is visible (KIP-98, "Reading transactional messages"): the answer lists the aborted transactions that its records
can belong to as (producer id, first offset). From that offset on, the producer's transactional batches are aborted until
its abort marker. The list is complete for each answer, so nothing is carried from one answer to the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa

from connector.client.cluster import Cluster
from connector.client.network import Answer
from connector.client.offsets import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Offsets,
    each_partition,
    group_by_leader,
    refusal,
)
from connector.errors import (
    BrokerUnavailable,
    CorruptBatch,
    DataLoss,
    ExactlyOnceError,
    UnknownTopic,
)
from connector.model import TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, Code, action_for, name_of
from connector.records import (
    HEADERS_TYPE,
    Batch,
    DecodedBatch,
    MarkerKind,
    control_marker,
    decode_chunks,
    microseconds,
    scan,
)

FETCH_BYTES = 8 * 1024 * 1024
"""Asked for at once, over all leaders. Two such answers and 16 MB of columns are small in a worker of 512 MB; at half
the pauses between requests begin to show, double gains nothing."""

_SMALLEST_FETCH_BYTES = 1024 * 1024
"""A topic's default max.message.bytes: less than a batch per request would cost a round trip for each."""

_MAX_WAIT_MS = 250
"""How long the broker holds an answer that has no bytes. Ranges are known to be there, so this only paces the wait for a
leader that has just taken over. A connection answers in order: longer would hold up its other requests."""

_RETRY_MS = 50
"""Pause after an answer that brought nothing but errors."""

_UNKNOWN_TOPIC_PATIENCE_MS = 10_000
"""A broker that restarts does not know its topics for a moment; half a busy broker's worst case, double a stuck query."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OffsetRange:
    """Offsets start <= offset < end of one partition."""

    where: TopicPartition
    start: int
    end: int


@dataclass
class _Progress:
    """How far a range has been fetched. `stalled_ms` is the time that requests have taken since the last step ahead."""

    range: OffsetRange
    position: int
    boundary: int = -1
    stalled_ms: float = 0.0
    last: str = "no answer"

    @property
    def done(self) -> bool:
        return self.position >= self.range.end

    def advance(self, position: int) -> None:
        """Go ahead to `position`, at most to the end of the range."""
        if position > self.position:
            self.position = min(position, self.range.end)
            self.stalled_ms = 0.0


@dataclass
class _Asked:
    """One request in flight; the loop's thread fills in the answer."""

    leader: int
    partitions: list[TopicPartition]
    sent: float = field(default_factory=time.monotonic)
    took_ms: float = 0.0
    answer: Answer = None


def record_schema(include_headers: bool) -> pa.Schema:
    """The columns that come out, those of Spark's Kafka source."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", HEADERS_TYPE)] if include_headers else fields)


class Fetcher:
    """Reads offset ranges of one cluster. Stateless between calls of `read`.

    `fail_on_data_loss` as Spark's option of that name: offsets of a range that the broker no longer has raise DataLoss,
    or are passed over with a warning. `stall_timeout_ms` bounds the time without any step ahead on a range (the
    settings' delivery timeout where None).
    """

    def __init__(
        self,
        cluster: Cluster,
        isolation: str = READ_COMMITTED,
        *,
        include_headers: bool = False,
        fail_on_data_loss: bool = True,
        fetch_bytes: int = FETCH_BYTES,
        stall_timeout_ms: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.include_headers = include_headers
        self.fail_on_data_loss = fail_on_data_loss
        self.fetch_bytes = fetch_bytes
        self.stall_timeout_ms = stall_timeout_ms or cluster.settings.delivery_timeout_ms
        self.schema = record_schema(include_headers)
        self._level = ISOLATION_LEVELS[isolation]

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """The visible records of the ranges as batches of `schema`, each batch of one partition; ends when every range
        has been read.

        At most one range per partition. DataLoss where offsets are gone, UnknownTopic where a topic is, BrokerUnavailable
        where nothing came for the stall timeout (which says how far the partition can be read); what was yielded before
        stays valid.
        """
        progress = {each.where: _Progress(each, each.start) for each in ranges if each.start < each.end}
        inbox: SimpleQueue[_Asked] = SimpleQueue()
        asked: set[int] = set()
        self._find_leaders(progress, set())
        self._ask(progress, asked, inbox)
        while progress:
            one = inbox.get()
            asked.discard(one.leader)
            visible = self._take(one, progress)
            for where in [where for where, each in progress.items() if each.done]:
                del progress[where]
            # The next answer travels while this one is decoded.
            self._ask(progress, asked, inbox)
            for offsets, batches in visible:
                yield from self._columns(offsets, batches)

    # ---- asking

    def _ask(
        self, progress: dict[TopicPartition, _Progress], asked: set[int], inbox: SimpleQueue[_Asked]
    ) -> None:
        while progress:
            by_leader = group_by_leader(self.cluster, progress)
            leaderless = by_leader.pop(-1, [])
            share = max(
                self.fetch_bytes // max(1, len(by_leader)), min(_SMALLEST_FETCH_BYTES, self.fetch_bytes)
            )
            for leader, group in by_leader.items():
                if leader not in asked:
                    asked.add(leader)
                    self._send(
                        _Asked(leader, group), self._request([progress[each] for each in group], share), inbox
                    )
            if asked:
                return
            for where in leaderless:
                self._stall(progress[where], _RETRY_MS, "no leader")
            self.cluster.pause(_RETRY_MS)
            self._find_leaders(progress, {where.topic for where in leaderless})

    def _send(self, one: _Asked, request: m.Message, inbox: SimpleQueue[_Asked]) -> None:
        def done(answer: Answer) -> None:
            one.took_ms = (time.monotonic() - one.sent) * 1000
            one.answer = answer
            inbox.put(one)

        network = self.cluster.network
        network.on_loop(lambda: network.send_on_loop(one.leader, request, done))

    def _request(self, wanted: Sequence[_Progress], max_bytes: int) -> m.Message:
        topic_class = m.FetchRequest.FetchTopic
        topics: list[Any] = []
        for each in wanted:
            # Neighbours of one topic share an entry; the order stays, because the broker fills the answer in it.
            if not topics or topics[-1].topic != each.range.where.topic:
                topics.append(topic_class(topic=each.range.where.topic, partitions=[]))
            topics[-1].partitions.append(
                topic_class.FetchPartition(
                    partition=each.range.where.partition,
                    current_leader_epoch=-1,
                    fetch_offset=each.position,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=max_bytes,
                )
            )
        return self.cluster.build(
            m.FetchRequest,
            replica_id=-1,
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self._level,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="",
        )

    # ---- taking answers

    def _take(
        self, one: _Asked, progress: dict[TopicPartition, _Progress]
    ) -> list[tuple[OffsetRange, list[Batch]]]:
        """Advance the ranges of an answer as far as it goes; returns what of it is visible."""
        if isinstance(one.answer, BrokerUnavailable):
            for where in one.partitions:
                self._stall(progress[where], one.took_ms + _RETRY_MS, str(one.answer))
            self.cluster.pause(_RETRY_MS)
            self._find_leaders(progress, {where.topic for where in one.partitions})
            return []
        if isinstance(one.answer, ExactlyOnceError):
            raise one.answer
        visible: list[tuple[OffsetRange, list[Batch]]] = []
        stale: set[str] = set()
        answered = dict(_fetched(one.answer.responses))
        without_bytes = not any(data.records for data in answered.values())
        before = {where: progress[where].position for where in one.partitions}
        for where in one.partitions:
            each = progress[where]
            data = answered.get(where)
            if data is None:  # a throttled broker answers without partitions (KIP-219)
                each.last = "the broker throttles this client"
                continue
            action = action_for(m.FetchRequest.API_KEY, data.error_code)
            if action is Action.DONE:
                each.boundary = data.last_stable_offset if self._level else data.high_watermark
                each.last = "no records"
                batches = self._visible(each, data)
                if batches:
                    visible.append((OffsetRange(where, before[where], each.range.end), batches))
                if without_bytes and each.boundary >= each.range.end:
                    # Readable up to the end, and nothing there: compaction has removed the last records.
                    each.advance(each.range.end)
                continue
            each.last = name_of(data.error_code)
            if data.error_code == Code.OFFSET_OUT_OF_RANGE:
                self._out_of_range(each)
            elif action is Action.REDISCOVER:
                stale.add(where.topic)
            elif action is not Action.RETRY:
                raise refusal(m.FetchRequest, data.error_code, str(where), "READ on the topic")
        moved = [where for where in one.partitions if progress[where].position > before[where]]
        # Who got nothing comes first in the next request.
        for where in moved:
            progress[where] = progress.pop(where)
        if not moved:
            for where in one.partitions:
                self._stall(progress[where], one.took_ms + _RETRY_MS, progress[where].last)
            if one.took_ms < _MAX_WAIT_MS:
                self.cluster.pause(max(_RETRY_MS, one.answer.throttle_time_ms))
        if stale:
            self._find_leaders(progress, stale)
        return visible

    def _visible(self, each: _Progress, data: Any) -> list[Batch]:
        """The batches of an answer that hold visible records of the range."""
        kept: list[Batch] = []
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ())
        aborting: set[int] = set()
        upcoming = 0
        for batch in scan(data.records or b""):
            info = batch[0]
            if info.base_offset >= each.range.end:
                each.advance(each.range.end)
                break
            while upcoming < len(aborted) and aborted[upcoming][0] <= info.last_offset:
                aborting.add(aborted[upcoming][1])
                upcoming += 1
            if info.control:
                if info.producer_id in aborting and control_marker(batch).kind is MarkerKind.ABORT:
                    aborting.discard(info.producer_id)
            elif not (self._level and info.transactional and info.producer_id in aborting):
                kept.append(batch)
            each.advance(info.last_offset + 1)
        return kept

    def _columns(self, offsets: OffsetRange, batches: list[Batch]) -> Iterator[pa.RecordBatch]:
        try:
            for decoded in decode_chunks(batches, include_headers=self.include_headers):
                within = decoded.between(offsets.start, offsets.end)
                if len(within):
                    yield self._batch(offsets.where, within)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{offsets.where}: {error.message}; nothing of this batch was used", error.facts
            ) from error

    def _batch(self, where: TopicPartition, records: DecodedBatch) -> pa.RecordBatch:
        rows = len(records)
        times, out_of_reach = microseconds(records.timestamp_ms)
        if out_of_reach:
            _log.warning("%s from offset %d on: %d times that no timestamp can hold, given as the furthest", where, records.offset[0], out_of_reach)  # fmt: skip
        columns = [
            records.key,
            records.value,
            pa.repeat(pa.scalar(where.topic, pa.string()), rows),
            pa.array(np.full(rows, where.partition, dtype=np.int32)),
            pa.array(records.offset),
            pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            pa.array(records.log_append_time.astype(np.int32)),
        ]
        if self.include_headers:
            columns.append(records.headers)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    # ---- what can go wrong

    def _stall(self, each: _Progress, took_ms: float, last: str) -> None:
        each.stalled_ms += took_ms
        each.last = last
        if each.stalled_ms < self.stall_timeout_ms:
            return
        where, limit = each.range.where, ""
        if 0 <= each.boundary < each.range.end:
            name = "last stable offset" if self._level else "high watermark"
            limit = f"; its {name} is {each.boundary}" + (
                ", so a transaction is still open there" * self._level
            )
        raise BrokerUnavailable(
            f"{where} brought no records from offset {each.position} for {self.stall_timeout_ms} ms "
            f"(last: {each.last}){limit}",
            {"partition": str(where), "offset": each.position, "end": each.range.end},
        )

    def _out_of_range(self, each: _Progress) -> None:
        where = each.range.where
        offsets = Offsets(self.cluster)
        first = offsets.earliest([where])[where]
        end = offsets.latest([where], READ_UNCOMMITTED)[where]
        if each.position < first:
            lost, go_on = f"offsets {each.position} to {min(first, each.range.end) - 1} are deleted", first
        elif each.position > end:
            lost, go_on = f"the partition ends at {end}: it was made anew or cut", each.range.end
        else:
            return  # it moved in between: ask again
        self._lose(where, lost, {"position": each.position, "earliest": first, "latest": end})
        each.advance(go_on)

    def _lose(self, where: TopicPartition, lost: str, facts: dict[str, int]) -> None:
        """Raise DataLoss, or warn and return where the user allows it."""
        if self.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}, but they were still to be read; nothing was skipped; restore them, or set "
                "failOnDataLoss=false to go on without them",
                {"partition": str(where), **facts},
            )
        _log.warning("%s: %s; the query goes on without them (failOnDataLoss=false)", where, lost)

    def _find_leaders(self, progress: dict[TopicPartition, _Progress], stale: set[str]) -> None:
        """Refresh these topics and those never seen; ranges whose partition is gone for good end as lost data."""
        names = {where.topic for where in progress}
        unseen = {where.topic for where in progress if self.cluster.leader(where) < 0}
        for name in sorted(names & (stale | unseen)):
            mine = [where for where in progress if where.topic == name]
            try:
                count = len(Offsets(self.cluster).partitions([name], patience_ms=_UNKNOWN_TOPIC_PATIENCE_MS))
            except UnknownTopic:
                if self.fail_on_data_loss:
                    raise
                count = 0
            for where in mine:
                if where.partition >= count:
                    self._lose(where, "the partition is gone", {"position": progress[where].position})
                    del progress[where]


def _fetched(responses: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    return each_partition(responses, "topic")
