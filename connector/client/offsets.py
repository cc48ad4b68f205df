"""Positions in Kafka: where partitions begin and end, which offset belongs to a time, what a group has committed.

Owns: ListOffsets and OffsetFetch, sent until every partition has a definite answer or the time is over.
Does not know: records, Spark's offsets.
Invariants: an answer holds every partition that was asked for; "latest" of a read_committed reader is the last stable
offset, so no record below it can still change its fate (KIP-98); committed offsets are stable ones (KIP-447).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from connector.client.cluster import NEW_TOPIC_MS, Cluster, CoordinatorKind
from connector.client.network import Node
from connector.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
)
from connector.model import TopicPartition, by_topic
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, Code, action_for, name_of

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATION_LEVELS = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
"""Kafka's numbers of the isolation levels (KIP-98)."""

EARLIEST = -2
LATEST = -1
"""ListOffsets' timestamps for the two ends of a partition; Spark's startingOffsets uses the same numbers."""


@dataclass(frozen=True)
class LogMark:
    """The log that an offset was found in: its topic's id, empty where the cluster has none, and the epoch of the leader that
    said so, -1 where it said none."""

    topic_id: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True)
class End:
    """The end of a partition for a reader, and the log that ends there."""

    offset: int
    log: LogMark


class Offsets:
    """Questions about positions on one cluster. Stateless; safe to use from several threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def partitions(
        self,
        topics: Iterable[str],
        *,
        patience_ms: int = 0,
        deadline_ms: int = 60_000,
        expected: Iterable[TopicPartition] = (),
    ) -> list[TopicPartition]:
        """All partitions of these topics now, in order. UnknownTopic where a topic is missing for `patience_ms`: a broker
        that has just started does not know its topics for a moment. Partitions that are `expected`, because they were
        there before, are waited for as long; what is missing then is left out."""
        give_up = time.monotonic() + patience_ms / 1000
        names = sorted(set(topics))
        wanted = set(expected)
        while True:
            patient = time.monotonic() < give_up
            with suppress(*([UnknownTopic] if patient else [])):
                self.cluster.refresh_topics(names, deadline_ms)
                found = [
                    TopicPartition(name, number)
                    for name in names
                    for number in range(len(self.cluster.topic(name).leaders))
                ]
                if not patient or wanted <= set(found):
                    return found
            self.cluster.pause(100)

    def topic_names(self) -> list[str]:
        """The names of all topics that this user may see, without Kafka's internal ones."""
        request = self.cluster.build(m.MetadataRequest, topics=None, allow_auto_topic_creation=False)
        answer = self.cluster.call_any(request)
        return sorted(topic.name for topic in answer.topics if not topic.is_internal)

    def earliest(
        self, partitions: Iterable[TopicPartition], deadline_ms: int = 60_000
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        found = self._definite(dict.fromkeys(partitions, EARLIEST), READ_UNCOMMITTED, deadline_ms)
        return {where: each.offset for where, each in found.items()}

    def latest(
        self,
        partitions: Iterable[TopicPartition],
        isolation: str = READ_COMMITTED,
        deadline_ms: int = 60_000,
    ) -> dict[TopicPartition, int]:
        """One past the last offset that a reader of this isolation level may read: the last stable offset for
        read_committed, the high watermark for read_uncommitted."""
        return {where: end.offset for where, end in self.ends(partitions, isolation, deadline_ms).items()}

    def ends(
        self,
        partitions: Iterable[TopicPartition],
        isolation: str = READ_COMMITTED,
        deadline_ms: int = 60_000,
    ) -> dict[TopicPartition, End]:
        """The same with the logs that end there: what reads up to an end later can then tell whether it is still that log."""
        return self._definite(dict.fromkeys(partitions, LATEST), isolation, deadline_ms)

    def at_time(
        self,
        times_ms: Mapping[TopicPartition, int],
        isolation: str = READ_COMMITTED,
        deadline_ms: int = 60_000,
    ) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than the partition's time (ms since 1970); None where there is
        no such record."""
        found = self._list(times_ms, isolation, deadline_ms)
        return {where: None if each.offset < 0 else each.offset for where, each in found.items()}

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, deadline_ms: int = 60_000
    ) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed, of these partitions or of all; a partition without one is
        left out. Waits for open transactions that commit offsets of the group, so the answer is stable."""
        wanted = None if partitions is None else sorted(set(partitions))
        if wanted == []:
            return {}
        deadline = time.monotonic() + deadline_ms / 1000
        while True:
            last = "no answer"
            try:
                node = self.cluster.coordinator(CoordinatorKind.GROUP, group)
                (answered,) = self.cluster.call(node, self._committed_request(group, wanted)).groups
                action, last = self._judge_committed(group, answered, wanted or ())
                if action is Action.DONE:
                    return {
                        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
                        for topic in answered.topics
                        for partition in topic.partitions
                        if partition.committed_offset >= 0
                    }
                if action is Action.REDISCOVER:
                    self.cluster.forget_coordinator(CoordinatorKind.GROUP, group)
            except BrokerUnavailable as error:
                self.cluster.forget_coordinator(CoordinatorKind.GROUP, group)
                last = str(error)
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(
                    f"the committed offsets of group {group!r} are not known within the time allowed (last: {last}); "
                    "a transaction that commits offsets of this group may still be open",
                    {"group": group, "timeout_ms": deadline_ms},
                )
            self.cluster.pause()

    # ---- committed offsets

    def _committed_request(self, group: str, wanted: Sequence[TopicPartition] | None) -> m.Message:
        group_class = m.OffsetFetchRequest.OffsetFetchRequestGroup
        topics = None
        if wanted is not None:
            topics = [
                group_class.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(wanted)
            ]
        return self.cluster.build(
            m.OffsetFetchRequest,
            groups=[group_class(group_id=group, member_id=None, member_epoch=-1, topics=topics)],
            require_stable=True,
        )

    @staticmethod
    def _judge_committed(
        group: str, answered: m.Message, wanted: Iterable[TopicPartition]
    ) -> tuple[Action, str]:
        codes = [answered.error_code]
        codes += [partition.error_code for topic in answered.topics for partition in topic.partitions]
        # A partition that does not exist has no committed offset, which its -1 says already.
        for code in (code for code in codes if code not in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION)):
            action = action_for(m.OffsetFetchRequest.API_KEY, code)
            if action in (Action.RETRY, Action.REDISCOVER):
                return action, name_of(code)
            raise refusal(
                m.OffsetFetchRequest, code, f"group {group!r}", "READ on the group, DESCRIBE on the topic"
            )
        missing = set(wanted) - {where for where, _ in each_partition(answered.topics)}
        if missing:
            return Action.RETRY, f"the answer lacks {min(missing)}"
        return Action.DONE, ""

    # ---- ListOffsets

    def _definite(
        self, times: Mapping[TopicPartition, int], isolation: str, deadline_ms: int
    ) -> dict[TopicPartition, End]:
        found = self._list(times, isolation, deadline_ms)
        for where, each in found.items():
            if each.offset < 0:
                raise ProtocolViolation(
                    f"ListOffsets gave no offset for an end of {where}",
                    {"partition": str(where), "offset": each.offset},
                )
        return found

    def _list(
        self, times: Mapping[TopicPartition, int], isolation: str, deadline_ms: int
    ) -> dict[TopicPartition, End]:
        level = ISOLATION_LEVELS[isolation]
        found: dict[TopicPartition, End] = {}
        missing = dict(times)
        deadline = time.monotonic() + deadline_ms / 1000
        last = "no answer"
        stale: set[str] = set()
        absent = MissingPartitions()
        while missing:
            if stale:
                self.cluster.refresh_topics(sorted(stale), max(1, int((deadline - time.monotonic()) * 1000)))
                stale = set()
            by_leader = group_by_leader(self.cluster, missing)
            leaderless = by_leader.pop(-1, [])
            absent.judge(self.cluster, leaderless)
            stale |= {where.topic for where in leaderless}
            calls: list[tuple[Node, m.Message]] = [
                (leader, self._list_request({where: missing[where] for where in group}, level))
                for leader, group in by_leader.items()
            ]
            for group, answer in zip(by_leader.values(), self.cluster.network.call_many(calls), strict=True):
                if isinstance(answer, BrokerUnavailable):
                    last = str(answer)
                    stale |= {where.topic for where in group}
                    continue
                if isinstance(answer, ExactlyOnceError):
                    raise answer
                for where, partition in each_partition(answer.topics):
                    action = action_for(m.ListOffsetsRequest.API_KEY, partition.error_code)
                    if action is Action.DONE:
                        log = LogMark(self.cluster.topic_id(where.topic), partition.leader_epoch)
                        found[where] = End(partition.offset, log)
                        missing.pop(where, None)
                        continue
                    last = f"{name_of(partition.error_code)} for {where}"
                    if action is Action.REDISCOVER:
                        stale.add(where.topic)
                    elif action is not Action.RETRY:
                        raise refusal(
                            m.ListOffsetsRequest, partition.error_code, str(where), "DESCRIBE on the topic"
                        )
            if missing:
                if time.monotonic() >= deadline:
                    raise BrokerUnavailable(
                        f"the offsets of {min(missing)} are not known within the time allowed (last: {last})",
                        {"partition": str(min(missing)), "timeout_ms": deadline_ms},
                    )
                self.cluster.pause()
        return {where: found[where] for where in times}

    def _list_request(self, times: Mapping[TopicPartition, int], level: int) -> m.Message:
        topic_class = m.ListOffsetsRequest.ListOffsetsTopic
        topics = [
            topic_class(
                name=name,
                partitions=[
                    topic_class.ListOffsetsPartition(
                        partition_index=number,
                        current_leader_epoch=self.cluster.leader_epoch(TopicPartition(name, number)),
                        timestamp=times[TopicPartition(name, number)],
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(times)
        ]
        return self.cluster.build(m.ListOffsetsRequest, replica_id=-1, isolation_level=level, topics=topics)


# ---- shared with the fetcher


def group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Partitions by the broker that leads them, under -1 those without a leader now: also such as the metadata does not
    have (yet), which are the caller's to wait for (`MissingPartitions`). UnknownTopic for a topic that does not exist."""
    groups: dict[int, list[TopicPartition]] = {}
    for where in partitions:
        cluster.topic(where.topic)
        groups.setdefault(cluster.leader(where), []).append(where)
    return groups


class MissingPartitions:
    """Patience for partitions that their topic's metadata lacks: a broker that lags, or one that restarts, answers without
    a partition that is there."""

    def __init__(self, patience_ms: int = NEW_TOPIC_MS) -> None:
        self._patience_s = patience_ms / 1000
        self._missed_s: dict[TopicPartition, float] = {}

    def judge(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
        """UnknownTopic where one of these has been missing for all of the patience, at every look since the first."""
        now_s = time.monotonic()
        missing: dict[TopicPartition, float] = {}
        for where in partitions:
            count = len(cluster.topic(where.topic).leaders)
            if where.partition < count:
                continue
            missing[where] = self._missed_s.get(where, now_s)
            if now_s - missing[where] >= self._patience_s:
                raise UnknownTopic(
                    f"topic {where.topic!r} has {count} partitions, so there is no partition {where.partition}; it was "
                    "made anew with fewer, or the number is wrong",
                    {"topic": where.topic, "partition": where.partition, "partitions": count},
                )
        self._missed_s = missing


def each_partition(
    topics: Iterable[Any], name: str = "name", number: str = "partition_index"
) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of an answer, each with its place, which its fields `name` (of the topic) and `number` give."""
    for topic in topics:
        for partition in topic.partitions:
            yield TopicPartition(getattr(topic, name), getattr(partition, number)), partition


def refusal(request_class: type[Any], code: int, what: str, rights: str) -> ExactlyOnceError:
    """The error for a code after which nobody may ask again."""
    api, name = m.api_name(request_class.API_KEY), name_of(code)
    facts = {"api": api, "about": what, "code": name}
    if action_for(request_class.API_KEY, code) is Action.AUTHORIZE:
        return AuthorizationFailed(f"{api} for {what} was refused: {name}; grant {rights}", facts)
    return ProtocolViolation(f"{api} for {what} answered {name}, which has no place there", facts)
