"""Offsets: the earliest and the latest of partitions, the first one at a timestamp, a group's committed ones.

Owns: ListOffsets and OffsetFetch, retried until every partition has a definite answer or the time is over.
Does not know: records, Spark's offsets.
Invariants:
- An answer covers every partition that was requested.
- "latest" of a read_committed reader is the last stable offset, so the outcome of no record below it is open
  (KIP-98).
- Committed offsets are stable ones (KIP-447).
- A leader older than the one under which the caller has read is not believed (KIP-320), nor one that does not know yet
  how far its log is readable (KIP-207).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_core import runtime
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, action_for, name_of
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.asking import ask_coordinator, ask_leaders
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import Again, again_or_refuse
from pyspark_kafka_eos.client.every_broker import answers_to, ask_every_broker
from pyspark_kafka_eos.client.single import only
from pyspark_kafka_eos.client.wire.versions import Build
from pyspark_kafka_eos.model import GroupOffset, committed

_T = TypeVar("_T")

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATION_LEVELS = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
"""Kafka's numbers of the isolation levels (KIP-98)."""

EARLIEST = -2
LATEST = -1
"""ListOffsets' timestamps for the two ends of a partition; Spark's startingOffsets uses the same numbers."""


@dataclass(frozen=True)
class LogMark:
    """The log that an offset was found in: its topic's id, empty where the cluster has none, and the epoch of
    the leader that answered, -1 where it returned none."""

    topic_id: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True)
class LogEnd:
    """The end of a partition for a reader, and the log that ends there."""

    offset: int
    log: LogMark


class Offsets:
    """Queries for positions on one cluster. Stateless; safe to use from several threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def partitions_of(
        self,
        topics: Iterable[str],
        *,
        patience_ms: int = 0,
        deadline_ms: float | None = None,
        expected: Iterable[TopicPartition] = (),
    ) -> list[TopicPartition]:
        """All partitions of these topics now, in order. Raises UnknownTopic where a topic is missing for
        `patience_ms`: a broker that has just started lacks its topics for a moment. This also waits that long
        for the `expected` partitions, which existed before; those still missing then are left out."""
        give_up = runtime.monotonic() + patience_ms / 1000
        names = sorted(set(topics))
        wanted = set(expected)
        while True:
            # Not `until_definite`: after `patience_ms` there is one more attempt, and that one decides.
            patient = runtime.monotonic() < give_up
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

    def existing(self, partitions: Iterable[TopicPartition], *, new_topic_ms: int = 0) -> set[TopicPartition]:
        """Those of the partitions that exist now: a topic may have been deleted since. One request for each topic; one
        that does not exist is waited for as long as `new_topic_ms`.
        """
        found: set[TopicPartition] = set()
        for topic, numbers in by_topic(partitions):
            with suppress(UnknownTopic):
                count = len(self.cluster.topic(topic, refresh=True, new_topic_ms=new_topic_ms).leaders)
                found |= {TopicPartition(topic, number) for number in numbers if number < count}
        return found

    def topic_names(self, *, of_all: bool = False) -> list[str]:
        """The names of all topics that this user may see, without Kafka's internal ones. `of_all`: that any broker
        names, also one that was cut off and names deleted ones.
        """
        request = self.cluster.build(m.MetadataRequest, topics=None, allow_auto_topic_creation=False)
        answers = [self.cluster.call_any(request), *(answers_to(self.cluster, request) if of_all else ())]
        return sorted({topic.name for answer in answers for topic in answer.topics if not topic.is_internal})

    def earliest(
        self, partitions: Iterable[TopicPartition], deadline_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        found = self._definite(dict.fromkeys(partitions, EARLIEST), READ_UNCOMMITTED, deadline_ms)
        return {where: each.offset for where, each in found.items()}

    def latest(
        self,
        partitions: Iterable[TopicPartition],
        isolation: str = READ_COMMITTED,
        deadline_ms: float | None = None,
    ) -> dict[TopicPartition, int]:
        """One past the last offset that a reader of this isolation level may read: the last stable offset for
        read_committed, the high watermark for read_uncommitted."""
        return {where: end.offset for where, end in self.ends(partitions, isolation, deadline_ms).items()}

    def ends(
        self,
        partitions: Iterable[TopicPartition],
        isolation: str = READ_COMMITTED,
        deadline_ms: float | None = None,
        *,
        known: Mapping[TopicPartition, LogMark] | None = None,
    ) -> dict[TopicPartition, LogEnd]:
        """Like `latest`, with the logs that end there, so that a later reader can verify the log.

        `known`: logs that the caller stands in. Of such a partition only a leader of that epoch or a later one is
        believed, as long as the topic is the same: one that was cut off from the others goes on to answer as the log
        was (KIP-320).
        """
        return self._definite(dict.fromkeys(partitions, LATEST), isolation, deadline_ms, known)

    def at_time(
        self,
        times_ms: Mapping[TopicPartition, int],
        isolation: str = READ_COMMITTED,
        deadline_ms: float | None = None,
    ) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than the partition's time (ms since 1970); None where there is
        no such record."""
        found = self._list(times_ms, isolation, deadline_ms)
        return {where: None if each.offset < 0 else each.offset for where, each in found.items()}

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        deadline_ms: float | None = None,
        *,
        sure: bool = False,
    ) -> dict[TopicPartition, GroupOffset]:
        """The offsets that a consumer group has committed, of these partitions or of all; a partition without one is
        left out. Waits for open transactions that commit offsets of the group, so the answer is stable. `sure`: of the
        coordinator that most brokers name; one that was replaced shows earlier offsets, or none."""
        budget = self.cluster.budget(deadline_ms)
        wanted = None if partitions is None else sorted(set(partitions))
        if wanted == []:
            return {}

        def judge(answer: m.Message) -> dict[TopicPartition, GroupOffset] | Again:
            answered = only(answer.groups, m.OffsetFetchRequest, f"group {group!r}")
            return self._judge_committed(group, answered, wanted or ())

        def late(last: Again) -> dict[TopicPartition, GroupOffset]:
            raise BrokerUnavailable(
                f"the committed offsets of group {group!r} were not found within the time allowed "
                f"(last: {last}); a transaction that commits offsets of this group may still be open",
                {"group": group, "timeout_ms": budget.total_ms},
            )

        return self._ask_group(group, wanted, judge, late, budget.left_ms, sure=sure)

    def unstable(self, group: str, deadline_ms: float | None = None) -> bool:
        """Whether a transaction that replaces committed offsets of the group lacks its end, or its marker there, now.
        Does not wait for it. The broker lists no partition whose first offset is still pending.
        AuthorizationFailed where the right to read the group's offsets is missing."""
        budget = self.cluster.budget(deadline_ms)

        def judge(answer: m.Message) -> bool | Again:
            answered = only(answer.groups, m.OffsetFetchRequest, f"group {group!r}")
            codes = [answered.error_code, *(part.error_code for _, part in each_partition(answered.topics))]
            if Code.UNSTABLE_OFFSET_COMMIT in codes:
                return True
            found = self._judge_committed(group, answered, ())
            return found if isinstance(found, Again) else False

        def late(last: Again) -> bool:
            raise BrokerUnavailable(
                f"the coordinator of group {group!r} did not list its offsets within the time allowed (last: {last})",
                {"group": group, "timeout_ms": budget.total_ms},
            )

        return self._ask_group(group, None, judge, late, budget.left_ms)

    # ---- committed offsets

    def _ask_group(
        self,
        group: str,
        wanted: Sequence[TopicPartition] | None,
        judge: Callable[[m.Message], _T | Again],
        late: Callable[[Again], _T],
        deadline_ms: float,
        *,
        sure: bool = False,
    ) -> _T:
        return ask_coordinator(
            self.cluster,
            CoordinatorKind.GROUP,
            group,
            lambda: self._committed_request(group, wanted),
            judge,
            deadline_ms=deadline_ms,
            late=late,
            sure=sure,
        )

    def _committed_request(self, group: str, wanted: Sequence[TopicPartition] | None) -> Build:
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
    ) -> dict[TopicPartition, GroupOffset] | Again:
        def refused(_action: Action, code: int) -> ExactlyOnceError:
            return refusal(m.OffsetFetchRequest, code, f"group {group!r}", "READ on the group, DESCRIBE on the topic")

        parts = dict(each_partition(answered.topics))
        for code in (answered.error_code, *(part.error_code for part in parts.values())):
            # A partition that does not exist has no committed offset, which its -1 already means.
            if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            again = again_or_refuse(m.OffsetFetchRequest.API_KEY, code, refused)
            if again is not None:
                return again
        missing = set(wanted) - set(parts)
        if missing:
            return Again(f"the answer lacks {min(missing)}")
        return {
            where: committed(part.committed_offset, part.committed_leader_epoch, part.metadata, group)
            for where, part in parts.items()
            if part.committed_offset >= 0
        }

    # ---- ListOffsets

    def _definite(
        self,
        times: Mapping[TopicPartition, int],
        isolation: str,
        deadline_ms: float | None,
        known: Mapping[TopicPartition, LogMark] | None = None,
    ) -> dict[TopicPartition, LogEnd]:
        found = self._list(times, isolation, deadline_ms, known)
        for where, each in found.items():
            if each.offset < 0:
                raise ProtocolViolation(
                    f"ListOffsets returned no offset for an end of {where}",
                    {"partition": str(where), "offset": each.offset},
                )
        return found

    def _list(
        self,
        times: Mapping[TopicPartition, int],
        isolation: str,
        deadline_ms: float | None,
        known: Mapping[TopicPartition, LogMark] | None = None,
    ) -> dict[TopicPartition, LogEnd]:
        level = ISOLATION_LEVELS[isolation]
        budget = self.cluster.budget(deadline_ms)
        doubted: set[str] = set()

        def least(where: TopicPartition) -> int:
            log = (known or {}).get(where, LogMark())
            return log.leader_epoch if log.topic_id == self.cluster.topic_id(where.topic) != "" else -1

        def build(group: Sequence[TopicPartition]) -> Build:
            if doubted:
                ask_every_broker(self.cluster, doubted)
                doubted.clear()
            return self._list_request({where: times[where] for where in group}, level, least)

        def judge(where: TopicPartition, part: m.Message) -> LogEnd | Again:
            found = judge_part(where, part)
            if isinstance(found, Again):
                doubted.update([where.topic] if found.moved and least(where) >= 0 else ())
            elif 0 <= found.log.leader_epoch < least(where):
                doubted.add(where.topic)
                return Again(
                    f"a leader of epoch {found.log.leader_epoch}; the query stands in the log of epoch {least(where)}",
                    moved=True,
                )
            return found

        def judge_part(where: TopicPartition, part: m.Message) -> LogEnd | Again:
            again = again_or_refuse(
                m.ListOffsetsRequest.API_KEY,
                part.error_code,
                lambda _, code: refusal(m.ListOffsetsRequest, code, str(where), "DESCRIBE on the topic"),
                where,
            )
            return again or LogEnd(part.offset, LogMark(self.cluster.topic_id(where.topic), part.leader_epoch))

        def late(where: TopicPartition, last: Again) -> ExactlyOnceError:
            return BrokerUnavailable(
                f"the offsets of {where} were not found within the time allowed (last: {last}); nothing is concluded from this",
                {"partition": str(where), "timeout_ms": budget.total_ms},
            )

        found = ask_leaders(
            self.cluster,
            times,
            build,
            lambda answer: each_partition(answer.topics),
            judge,
            deadline_ms=budget.left_ms,
            late=late,
        )
        return {where: found[where] for where in times}

    def _list_request(
        self, times: Mapping[TopicPartition, int], level: int, least: Callable[[TopicPartition], int]
    ) -> Build:
        topic_class = m.ListOffsetsRequest.ListOffsetsTopic
        topics = [
            topic_class(
                name=name,
                partitions=[
                    topic_class.ListOffsetsPartition(
                        partition_index=number,
                        current_leader_epoch=max(
                            self.cluster.leader_epoch(TopicPartition(name, number)),
                            least(TopicPartition(name, number)),
                        ),
                        timestamp=times[TopicPartition(name, number)],
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(times)
        ]
        return self.cluster.build(m.ListOffsetsRequest, replica_id=-1, isolation_level=level, topics=topics)


# ---- shared with other readers


def each_partition(
    topics: Iterable[Any], name: str = "name", number: str = "partition_index"
) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of an answer, by place. `name`, `number`: the fields for topic and partition."""
    for topic in topics:
        for partition in topic.partitions:
            yield TopicPartition(getattr(topic, name), getattr(partition, number)), partition


def refusal(request_class: type[Any], code: int, what: str, rights: str) -> ExactlyOnceError:
    """The error for a code that must not be retried."""
    api, name = m.api_name(request_class.API_KEY), name_of(code)
    facts = {"api": api, "about": what, "code": name}
    if action_for(request_class.API_KEY, code) is Action.AUTHORIZE:
        return AuthorizationFailed(f"{api} for {what} was refused: {name}; grant {rights}", facts)
    return ProtocolViolation(f"{api} for {what} answered {name}, which is not a valid answer to this request", facts)
