"""Raw reads of one partition's log: record batches as they are, markers included.

Owns: one-partition Fetch from a leader that may move.
Does not know: isolation of rows, columns, Spark (the fetcher that feeds Spark is `client.fetcher`).
Invariants: nothing is filtered; what is returned begins at or before the offset asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from connector.client.cluster import Cluster
from connector.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError, ProtocolViolation
from connector.model import TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Code, name_of

READ_UNCOMMITTED = 0

_MOVED = frozenset(
    {
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.LEADER_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.REPLICA_NOT_AVAILABLE,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.REQUEST_TIMED_OUT,
    }
)


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
    isolation: int = READ_UNCOMMITTED,
    timeout_ms: int = 30_000,
    max_wait_ms: int = 100,
    lane: str | None = None,
) -> RawRead:
    """Record batches of a partition from an offset on; empty records where the log still ends there after `max_wait_ms`.

    `lane`: the name of a connection of its own, so that a long wait holds nothing else up.
    """
    request_class = m.FetchRequest
    topic_class = request_class.FetchTopic
    request = cluster.build(
        request_class,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[
            topic_class(
                topic=where.topic,
                partitions=[
                    topic_class.FetchPartition(
                        partition=where.partition,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = _ask_leader(cluster, where, request, timeout_ms, _fetch_code, lane)
    (partition,) = answer.responses[0].partitions
    return RawRead(
        records=partition.records or b"",
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        out_of_range=partition.error_code == Code.OFFSET_OUT_OF_RANGE,
    )


def _fetch_code(answer: m.Message) -> int:
    if answer.error_code:
        return int(answer.error_code)
    code = int(answer.responses[0].partitions[0].error_code)
    return Code.NONE if code == Code.OFFSET_OUT_OF_RANGE else code


def _ask_leader(
    cluster: Cluster,
    where: TopicPartition,
    request: m.Message,
    timeout_ms: int,
    code_of: Callable[[m.Message], int],
    lane: str | None = None,
) -> m.Message:
    deadline = time.monotonic() + timeout_ms / 1000
    last = "no leader"
    while True:
        leader = cluster.leader(where)
        if leader < 0:
            cluster.topic(where.topic, refresh=True, timeout_ms=timeout_ms)
            leader = cluster.leader(where)
        if leader >= 0:
            try:
                node = leader if lane is None else cluster.network.lane(leader, lane)
                answer = cluster.call(node, request)
                code = code_of(answer)
                if code == Code.NONE:
                    return answer
                if code == Code.TOPIC_AUTHORIZATION_FAILED:
                    raise AuthorizationFailed(
                        f"reading {where} was refused: {name_of(code)}; grant READ on topic {where.topic!r}; nothing was "
                        "changed",
                        {"partition": str(where)},
                    )
                if code not in _MOVED:
                    raise ProtocolViolation(
                        f"reading {where} answered {name_of(code)}", {"partition": str(where)}
                    )
                last = name_of(code)
            except BrokerUnavailable as error:
                last = str(error)
            except ExactlyOnceError:
                raise
            cluster.refresh_topics([where.topic], timeout_ms)
        if time.monotonic() >= deadline:
            raise BrokerUnavailable(
                f"{where} could not be read within the time allowed (last: {last})",
                {"partition": str(where), "timeout_ms": timeout_ms},
            )
        cluster.pause(50)
