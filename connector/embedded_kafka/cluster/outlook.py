"""What one broker knows of the cluster: all of it, or, while it is cut off, what it knew then.

Owns: a broker's picture of topics, leaders and addresses, and what follows from it for a partition: whether the broker
leads it, whether it led it and was replaced without noticing.
Does not know: requests, logs' contents.
Invariants:
- A broker that is not cut off knows the cluster as it is, at once. Kafka's learns of it within milliseconds.
- A picture that was kept does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from embedded_kafka.cluster.brokers import Address, Broker, Brokers
from embedded_kafka.log import Fork
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.leaders import Leaders, Leadership
from embedded_kafka.topics.placement import NO_LEADER
from embedded_kafka.topics.topics import Topic, Topics
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

_NOWHERE: frozenset[int] = frozenset()


class Stand(NamedTuple):
    """What a leader that was replaced without noticing has of a partition: the end of its log, which is its high
    watermark for good, and its epoch. `fork`: appends what no other replica gets; None where the files are damaged.
    """

    end: int
    epoch: int
    fork: Fork | None = None


class Memory:
    """The cluster as it was at one moment."""

    def __init__(self, topics: Topics, leaders: Leaders, brokers: Brokers) -> None:
        self.topics: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self.placed: Mapping[TopicPartition, Leadership] = {
            where: leaders.placed(where)
            for topic in topics
            for where in (TopicPartition(topic.name, number) for number in range(topic.partitions))
        }
        self.alive: list[Address] = [each.address for each in brokers.alive]
        self.controller = brokers.controller


class Outlook:
    """The cluster as `me` sees it."""

    def __init__(self, topics: Topics, leaders: Leaders, brokers: Brokers, me: Broker) -> None:
        self._topics, self._leaders, self._brokers, self._me = topics, leaders, brokers, me
        self._memory: Memory | None = None
        self._stands: dict[TopicPartition, Stand] = {}
        self._elsewhere: dict[str, tuple[int, frozenset[int]]] = {}

    def keep(self) -> None:
        """Learn nothing from now on."""
        self._memory = Memory(self._topics, self._leaders, self._brokers)

    def catch_up(self) -> None:
        """Know everything again."""
        self._memory = None
        self._stands.clear()
        self._elsewhere.clear()

    def replaced(self, where: TopicPartition, leader: int) -> None:
        """`leader` leads the partition from here on, with the log as it is now. Only a broker that cannot hear it needs
        to be told: it goes on from there, alone."""
        if self._memory is None or leader in (self._me.node_id, NO_LEADER) or where in self._stands:
            return
        if self.leads(where):
            try:
                log = self._topics.log(where)
            except Refused:
                # Its files are damaged, so it has nothing to go on from.
                self._stands[where] = Stand(0, self.epoch(where))
            else:
                self._stands[where] = Stand(log.end_offset, self.epoch(where), log.fork())

    # ---- the cluster

    @property
    def alive(self) -> list[Address]:
        """The brokers that metadata name."""
        return [each.address for each in self._brokers.alive] if self._memory is None else self._memory.alive

    @property
    def controller(self) -> int:
        """The controller that metadata name."""
        return self._brokers.controller if self._memory is None else self._memory.controller

    def address(self, node_id: int) -> Address | None:
        """Where a broker is; None where it is not alive, or there is none of that id."""
        return next((each for each in self.alive if each.node_id == node_id), None)

    def topics(self) -> Iterable[Topic]:
        """Every topic."""
        return self._topics if self._memory is None else self._memory.topics.values()

    def topic(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self._topics.get(name) if self._memory is None else self._memory.topics.get(name)

    def topic_by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic of that id."""
        if self._memory is None:
            return self._topics.by_id(topic_id)
        return next((each for each in self._memory.topics.values() if each.topic_id == topic_id), None)

    def placed(self, where: TopicPartition) -> Leadership:
        """Who leads the partition, under which epoch, and where its replicas are."""
        known = None if self._memory is None else self._memory.placed.get(where)
        return self._leaders.placed(where) if known is None else known

    # ---- this broker's own place

    def leads(self, where: TopicPartition) -> bool:
        """Whether this broker leads the partition."""
        if self._memory is None:
            return self._leaders.leader(where) == self._me.node_id
        return self.placed(where).leader == self._me.node_id

    def stand_of(self, where: TopicPartition, *, replica: bool = False) -> Stand | None:
        """Refused as by a broker that does not lead the partition. `replica`: a broker that has it may answer as well.

        Otherwise None; or, where another broker leads it by now, what this one has of it.
        """
        if self.leads(where):
            return self._stands.get(where) if self._stands else None
        topic = self.topic(where.topic)
        if topic is None or not 0 <= where.partition < topic.partitions:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"partition {where} does not exist")
        if replica and self._me.node_id in self.placed(where).replicas:
            return None
        raise Refused(Code.NOT_LEADER_OR_FOLLOWER, f"broker {self._me.node_id} does not lead {where}")

    def has_replica(self, where: TopicPartition) -> bool:
        """Whether a replica of the partition is here."""
        return self._me.node_id in self.placed(where).replicas

    def epoch(self, where: TopicPartition) -> int:
        """The partition's leader epoch."""
        return self._leaders.epoch(where) if self._memory is None else self.placed(where).epoch

    def elsewhere(self, topic: str) -> frozenset[int]:
        """The partitions of one of the broker's own topics that this broker does not lead."""
        if len(self._brokers) == 1 and not self._leaders.version:
            return _NOWHERE
        version, found = self._elsewhere.get(topic, (-1, _NOWHERE))
        known = self._topics.get(topic)
        count = self._topics.internal_partitions(topic) if known is None else known.partitions
        if version != self._leaders.version + count:
            found = frozenset(each for each in range(count) if not self.leads(TopicPartition(topic, each)))
            self._elsewhere[topic] = (self._leaders.version + count, found)
        return found

    def check_append(self, where: TopicPartition, *, all_acks: bool = True) -> None:
        """Refused where this broker does not lead the partition, or an append would not be acknowledged.

        `all_acks`: it has to be in every replica in sync, of which there must be min.insync.replicas. The followers of
        a leader that was replaced without noticing ask another one, so what it appends is never acknowledged.
        """
        if self.stand_of(where) is not None:
            raise Refused(Code.REQUEST_TIMED_OUT, f"no follower of broker {self._me.node_id} has the append to {where}")
        if all_acks and len(self._brokers) > 1:
            self._check_in_sync(where)

    def _check_in_sync(self, where: TopicPartition) -> None:
        topic = self.topic(where.topic)
        needed = 1 if topic is None else int(topic.configs.get("min.insync.replicas", "1"))
        in_sync = self.placed(where).in_sync
        if len(in_sync) < needed:
            raise Refused(
                Code.NOT_ENOUGH_REPLICAS,
                f"{where} has {len(in_sync)} replicas in sync, and min.insync.replicas is {needed}",
            )


def leaderless(outlook: Outlook, where: TopicPartition) -> bool:
    """Whether nobody leads the partition that clients can be sent to."""
    leader = outlook.placed(where).leader
    return leader == NO_LEADER or outlook.address(leader) is None
