"""Raw reads of one partition's log: record batches as they are, markers included.

Owns: one-partition Fetch from a leader that may move.
Does not know: isolation of rows, columns, Spark (the fetcher that feeds Spark is `client.fetcher`).
Invariants:
- Nothing is filtered.
- Where the topic's id is known, no answer is of another topic of the name.
- The returned batches begin at or before the requested offset.
- An answer without records is returned only where the log ends at the offset, as far as the reader's
  isolation goes. A broker whose remote store is slow sends such an answer too, without an error, and so does a new
  leader that has not learnt how far the log is acknowledged: its Fetch does not say so, its ListOffsets does
  (KIP-207).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from kafka_core.errors import BrokerUnavailable
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.asking import ask_leader
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Again, Budget, again_or_refuse
from pyspark_kafka_eos.client.reading.offsets import (
    ISOLATION_LEVELS,
    READ_UNCOMMITTED,
    Offsets,
    each_partition,
    refusal,
)
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.records import BatchInfo, scan

_UNCOMMITTED = ISOLATION_LEVELS[READ_UNCOMMITTED]

_EMPTY_PAUSE_MS = 50
"""Pause after an answer without records although there are some: a slow store must not be polled faster."""

LONGEST_WAIT_MS = 8_000
"""How long the broker may hold an answer at most, doubled from try to try: enough for a store that takes 5 s.
Half would not suffice for that; double comes near the time after which a request counts as unanswered."""

PATIENT_CONNECTION = "patient"
"""The connection for requests that a broker may hold that long: each connection is answered in order."""


@dataclass(frozen=True)
class RawRead:
    """One Fetch answer: `records` are whole batches, perhaps with a torn one at the end; offsets are the log's."""

    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    out_of_range: bool = False


def read_raw(
    cluster: Cluster,
    where: TopicPartition,
    offset: int,
    *,
    max_bytes: int = 4 * 1024 * 1024,
    isolation: int = _UNCOMMITTED,
    timeout_ms: float | None = None,
    max_wait_ms: int = 100,
    connection: str | None = None,
    topic_id: str = "",
    until: int = 0,
) -> RawRead:
    """Record batches of a partition from an offset on; empty records where the log, as far as `isolation` reads it,
    still ends there after `max_wait_ms`.

    `connection`: the name of a dedicated connection, so that a long wait delays no other request. `topic_id`: of the
    topic that the offset was found in, empty for any of the name. `until`: where the log ended when it was asked for,
    so a leader whose high watermark is before that is behind. Raises BrokerUnavailable where neither records nor
    the log's end are known after `timeout_ms`; AuthorizationFailed without READ on the topic.
    """
    budget = cluster.budget(timeout_ms)
    ask = _Ask(offset, max_bytes, isolation, max_wait_ms, topic_id)
    while True:
        read = _fetch(cluster, where, ask, budget, connection)
        if read.out_of_range or _first(read.records, offset) is not None:
            return read
        end = read.last_stable_offset if isolation else read.high_watermark
        if max(offset, read.high_watermark) < until:
            # An election may have taken the end of the log. A leader that is behind refuses to say where it ends.
            until = min(until, Offsets(cluster).latest([where], READ_UNCOMMITTED, budget.left_ms)[where])
        if max(offset, read.high_watermark) < until:
            end = until
        elif offset >= end or (isolation and _is_open_behind(cluster, where, ask, end, budget, connection)):
            return read
        if budget.left_ms <= 0:
            raise BrokerUnavailable(
                f"{where} returned no records from offset {offset} on within the time allowed, although it "
                f"ends at {end}; nothing is concluded from this; its remote store may be down or slow. If "
                "the topic is compacted and its last records are gone, the next record that is written to "
                "the partition ends the wait",
                {"partition": str(where), "offset": offset, "end": end, "timeout_ms": budget.total_ms},
            )
        cluster.pause(_EMPTY_PAUSE_MS)
        # Brokers return a whole batch even where it is larger; bytes without one mean that it was cut.
        ask = replace(
            ask,
            max_wait_ms=longer_wait(cluster, ask.max_wait_ms),
            max_bytes=ask.max_bytes * (2 if len(read.records) else 1),
        )
        connection = connection or PATIENT_CONNECTION


def longer_wait(cluster: Cluster, wait_ms: int) -> int:
    """How long the broker may hold the next answer, after one without records although there are some."""
    return min(2 * max(1, wait_ms), LONGEST_WAIT_MS, cluster.settings.request_timeout_ms // 2)


def first_batch(
    cluster: Cluster, where: TopicPartition, offset: int, timeout_ms: int, topic_id: str = ""
) -> BatchInfo | None:
    """The first batch in the log at or after an offset, committed or not, if one answer contains it. None
    proves nothing. `topic_id` as in `read_raw`."""
    ask = _Ask(offset, 1, _UNCOMMITTED, 0, topic_id)
    return _first(_fetch(cluster, where, ask, Budget(timeout_ms), None).records, offset)


@dataclass(frozen=True)
class FetchBuild:
    """A Fetch of a reader without a session that accepts any amount of data. With `rack` a leader may name a follower
    in that rack instead of records (KIP-392).

    Where the id of every topic is known, the broker is asked by id and refuses another topic of the name (KIP-516).
    Where it cannot be (Kafka 3.0, clusters without ids), see `is_by_id`.
    """

    topics: tuple[Any, ...]
    max_bytes: int
    isolation: int
    max_wait_ms: int
    rack: str = ""

    @staticmethod
    def of(wanted: Iterable[tuple[TopicPartition, str, m.Message]], **limits: Any) -> FetchBuild:
        """`wanted`: places, the ids of their topics (empty where unknown), and `fetch_partition`s."""
        # Neighbours of one topic share an entry, in the given order: the broker fills the answer in it.
        topics: list[Any] = []
        for where, topic_id, part in wanted:
            uuid = UUID(topic_id) if topic_id else None
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (where.topic, uuid):
                topics.append(m.FetchRequest.FetchTopic(topic=where.topic, topic_id=uuid, partitions=[]))
            topics[-1].partitions.append(part)
        return FetchBuild(tuple(topics), **limits)

    def __call__(self, versions: Versions) -> m.Message:
        """The request for one broker (`wire.versions.Build`)."""
        version = versions.of(m.FetchRequest, NO_TRANSACTION)
        if not all(each.topic_id for each in self.topics):
            version = min(version, m.FETCH_BY_ID - 1)
        return m.FetchRequest(
            version=version,
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            session_id=0,
            session_epoch=-1,
            topics=list(self.topics),
            forgotten_topics_data=[],
            rack_id=self.rack,
        )

    def parts(self, answer: m.Message) -> Iterator[tuple[TopicPartition, Any]]:
        """The partitions of an answer, by place."""
        if not is_by_id(answer):
            yield from each_partition(answer.responses, "topic")
            return
        names = {topic.topic_id: topic.topic for topic in self.topics}
        for topic in answer.responses:
            for part in topic.partitions if topic.topic_id in names else ():
                yield TopicPartition(names[topic.topic_id], part.partition_index), part


def is_by_id(answer: m.Message) -> bool:
    """Whether a Fetch named topics by id. The answer to another one proves only with metadata that came after it that
    it is of the topic that was meant.
    """
    return bool(answer.API_VERSION >= m.FETCH_BY_ID)


def fetch_partition(number: int, offset: int, leader_epoch: int, max_bytes: int) -> m.Message:
    """One partition of a Fetch. `leader_epoch`: of the intended leader (another one refuses), -1 for any."""
    return m.FetchRequest.FetchTopic.FetchPartition(
        partition=number,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


# ---- one request


@dataclass(frozen=True)
class _Ask:
    offset: int
    max_bytes: int
    isolation: int
    max_wait_ms: int
    topic_id: str


def _fetch(cluster: Cluster, where: TopicPartition, ask: _Ask, budget: Budget, connection: str | None) -> RawRead:
    def build() -> FetchBuild:
        epoch = cluster.leader_epoch(where)
        wanted = fetch_partition(where.partition, ask.offset, epoch, ask.max_bytes)
        return FetchBuild.of(
            [(where, ask.topic_id, wanted)],
            max_bytes=ask.max_bytes,
            isolation=ask.isolation,
            max_wait_ms=ask.max_wait_ms,
        )

    partition = _ask_leader(cluster, where, build, budget, connection, ask.topic_id)
    return RawRead(
        records=partition.records or b"",
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        out_of_range=partition.error_code == Code.OFFSET_OUT_OF_RANGE,
    )


def _first(records: bytes | memoryview, offset: int) -> BatchInfo | None:
    found = (info for info, _ in scan(records, check_crc=False) if info.last_offset >= offset)
    return next(found, None)


def _is_open_behind(
    cluster: Cluster, where: TopicPartition, ask: _Ask, stable: int, budget: Budget, connection: str | None
) -> bool:
    """Whether compaction has removed all before the last stable offset: the first batch is then behind it."""
    read = _fetch(cluster, where, replace(ask, isolation=_UNCOMMITTED, max_bytes=1), budget, connection)
    first = _first(read.records, ask.offset)
    return first is not None and first.base_offset >= stable


def _judge(request: FetchBuild, answer: m.Message, where: TopicPartition) -> tuple[int, m.Message]:
    """The code to judge, and the partition's part of the answer. A throttling broker omits that part
    (KIP-219)."""
    if answer.error_code:
        return int(answer.error_code), None
    partition = dict(request.parts(answer)).get(where)
    if partition is None:
        return int(Code.THROTTLING_QUOTA_EXCEEDED), None
    code = int(partition.error_code)
    return int(Code.NONE) if code == Code.OFFSET_OUT_OF_RANGE else code, partition


def _ask_leader(
    cluster: Cluster,
    where: TopicPartition,
    build: Callable[[], FetchBuild],
    budget: Budget,
    connection: str | None = None,
    topic_id: str = "",
) -> m.Message:
    """The partition's part of an answer whose code is good or OFFSET_OUT_OF_RANGE."""
    asked = build()  # The topics are the same at every try.

    def judge(answer: m.Message) -> m.Message | Again:
        code, partition = _judge(asked, answer, where)
        again = again_or_refuse(
            m.FetchRequest.API_KEY,
            code,
            lambda _, code: refusal(m.FetchRequest, code, str(where), f"READ on topic {where.topic!r}"),
        )
        if again is None and topic_id and not is_by_id(answer):
            found = cluster.topic(where.topic, refresh=True).topic_id
            if found not in ("", topic_id):
                return Again(f"the topic has the id {found}, and {topic_id} was asked for")
        return again or partition

    def late(last: Again) -> m.Message:
        raise BrokerUnavailable(
            f"{where} could not be read within the time allowed (last: {last})",
            {"partition": str(where), "timeout_ms": budget.total_ms},
        )

    return ask_leader(cluster, where, build, judge, deadline_ms=budget.left_ms, late=late, connection=connection)
