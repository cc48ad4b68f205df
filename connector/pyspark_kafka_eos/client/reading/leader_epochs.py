"""Whether a log that has a new leader is still the log that was planned and read (KIP-320).

Owns: OffsetForLeaderEpoch, and what its answer means for offsets that existed under an earlier leader.
Does not know: records, which ranges are read, how lost ones are handled.
Invariants:
- Only an answer of its present leader marks a log as cut.
- A partition whose leader gives no definite answer is neither cut nor whole.
Source: KIP-101 (a leader's epoch and where it ended), KIP-320 (what consumers do with it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, action_for, name_of
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.asking import group_by_leader
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import LogMark, each_partition, refusal
from pyspark_kafka_eos.client.wire.versions import Build

_FOR_CONSUMERS = 3
"""The first version that requires only DESCRIBE on the topic; Kafka 2.3 has it."""

_CONSUMER = -1
"""Sent in place of a replica's number."""

_AGAIN_MS = 100
"""Pause between two requests to leaders that have just been elected."""


@dataclass(frozen=True)
class KnownPart:
    """What is known about a log: under `leader_epoch` it reached at least to `end`. `read`: the record before
    `end` was written in exactly that epoch."""

    leader_epoch: int
    end: int
    read: bool


@dataclass
class EpochAnswers:
    """`cut`: where the log now diverges from the known one, -1 where its leader does not report that.
    `unsettled`: the partitions to request again, and why. Every partition that is in neither is whole."""

    cut: dict[TopicPartition, int]
    unsettled: dict[TopicPartition, str]


@dataclass(frozen=True)
class LostLog:
    """Why a log is no longer the known one. `cut`: the offset from which on it is another one, -1 where no leader
    reports that.
    """

    why: str
    cut: int = -1


def speaks_epochs(cluster: Cluster) -> bool:
    """Whether consumers may request from this cluster where epochs ended."""
    return cluster.offers(m.OffsetForLeaderEpochRequest, _FOR_CONSUMERS)


def ask_epochs(cluster: Cluster, known: Mapping[TopicPartition, KnownPart]) -> EpochAnswers:
    """Ask each partition's leader once whether its log still holds the known part."""
    groups = group_by_leader(cluster, known)
    unsettled = dict.fromkeys(groups.pop(-1, ()), "no leader")
    found = EpochAnswers({}, unsettled)
    calls = [(leader, _request(cluster, known, group)) for leader, group in groups.items()]
    watched = elsewhere.at_leaders(cluster, list(groups.values()), list(groups))
    for group, answer in zip(groups.values(), cluster.call_many(calls, elsewhere=watched), strict=True):
        if isinstance(answer, ExactlyOnceError):
            unsettled |= dict.fromkeys(group, str(answer))
            continue
        answered = dict(each_partition(answer.topics, "topic", "partition"))
        for where in group:
            if where in answered:
                _judge(where, known[where], answered[where], found)
            else:
                unsettled[where] = "the answer lacks it"
    return found


def lost_logs(
    cluster: Cluster, known: Mapping[TopicPartition, tuple[LogMark, int]], patience_ms: int = 10_000
) -> dict[TopicPartition, LostLog]:
    """Which of these logs no longer exist, and why. Each log is known to reach at least to an offset.

    For a caller that continues at an offset: no process reads between two of its requests, so nothing else
    would detect the loss. A leader without a definite answer in time proves nothing; later readers ask it
    again.
    """
    lost: dict[TopicPartition, LostLog] = {}
    parts: dict[TopicPartition, KnownPart] = {}
    for where, (mark, offset) in known.items():
        if mark.topic_id and cluster.topic_id(where.topic) not in ("", mark.topic_id):
            lost[where] = LostLog(f"the topic was recreated; offset {offset} belongs to the previous one")
        elif 0 <= mark.leader_epoch < cluster.leader_epoch(where):
            parts[where] = KnownPart(mark.leader_epoch, offset, read=False)
    give_up = runtime.monotonic() + patience_ms / 1000
    while parts and speaks_epochs(cluster):
        found = ask_epochs(cluster, parts)
        for where, cut in found.cut.items():
            since = f"from offset {cut} on" if cut >= 0 else "its leader does not report the offset"
            lost[where] = LostLog(
                f"records of leader epoch {parts[where].leader_epoch}, up to offset {parts[where].end}, are no longer in the log "
                f"({since}): an unclean election removed them",
                cut,
            )
        parts = {where: parts[where] for where in found.unsettled}
        if not parts or runtime.monotonic() >= give_up:
            break
        cluster.pause(_AGAIN_MS)
        cluster.refresh_topics(sorted({where.topic for where in parts}))
    return lost


def _judge(where: TopicPartition, part: KnownPart, answered: m.Message, found: EpochAnswers) -> None:
    action = action_for(m.OffsetForLeaderEpochRequest.API_KEY, answered.error_code)
    if action in (Action.RETRY, Action.REDISCOVER):
        found.unsettled[where] = name_of(answered.error_code)
    elif action is not Action.DONE:
        raise refusal(m.OffsetForLeaderEpochRequest, answered.error_code, str(where), "DESCRIBE on the topic")
    elif answered.leader_epoch < 0 or answered.end_offset < 0:
        found.cut[where] = -1
    elif answered.end_offset < part.end or (part.read and answered.leader_epoch != part.leader_epoch):
        # A record of the epoch was read, so a log without that epoch is another log, whatever its length.
        found.cut[where] = answered.end_offset


def _request(cluster: Cluster, known: Mapping[TopicPartition, KnownPart], group: list[TopicPartition]) -> Build:
    topic_class = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = []
    for name, numbers in by_topic(group):
        places = [TopicPartition(name, number) for number in numbers]
        partitions = [
            topic_class.OffsetForLeaderPartition(
                partition=where.partition,
                current_leader_epoch=cluster.leader_epoch(where),
                leader_epoch=known[where].leader_epoch,
            )
            for where in places
        ]
        topics.append(topic_class(topic=name, partitions=partitions))
    return cluster.build(m.OffsetForLeaderEpochRequest, replica_id=_CONSUMER, topics=topics)
