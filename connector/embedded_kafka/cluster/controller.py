"""The controller: who leads a partition when a broker goes, comes back, or is asked to.

Owns: elections, the replicas in sync, when a silent broker is given up.
Does not know: sockets; what a leader does with its office: `on_elected` is told.
Invariants:
- A broker that was given up leads nothing, and is in sync with nothing but what it alone has.
- A leader that is cut off keeps what it had when another one was elected (`Outlook.replaced`).
Sources: Kafka's ReplicationControlManager and PartitionChangeBuilder (a leader out of the replicas in sync; the last
one stays in sync though nobody leads), BrokerHeartbeatManager (broker.session.timeout.ms).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator

from embedded_kafka.clock import Clock
from embedded_kafka.cluster.brokers import Broker, Brokers
from embedded_kafka.cluster.outlook import Outlook
from embedded_kafka.topics.leaders import Election, Leaders
from embedded_kafka.topics.placement import NO_LEADER, next_leader
from embedded_kafka.topics.topics import Topic, Topics
from kafka_core.values import TopicPartition

OnElected = Callable[[TopicPartition, int, int], None]
"""Called behind each election with the partition, its leader before, and its leader now; either may be NO_LEADER."""


class Controller:
    """The elections of one cluster. `session_timeout_ms`: how long a broker may be silent before it is given up.
    `outlooks`: what each broker knows.
    """

    def __init__(
        self, topics: Topics, leaders: Leaders, brokers: Brokers, clock: Clock, session_timeout_ms: int,
        outlooks: Collection[Outlook], on_elected: OnElected,
    ) -> None:  # fmt: skip
        self._topics, self._leaders, self._brokers, self._clock = topics, leaders, brokers, clock
        self._session_timeout_ms = session_timeout_ms
        self._outlooks = outlooks
        self._on_elected = on_elected
        topics.on_more = self._placed

    # ---- brokers

    def silent(self, broker: Broker) -> None:
        """Nothing is heard of the broker from now on."""
        if broker.silent_since_ms is None:
            broker.silent_since_ms = self._clock.now_ms()
        self.look_for_silent()

    def heard(self, broker: Broker) -> None:
        """The broker is there again, with every record."""
        broker.silent_since_ms, broker.fenced = None, False
        elections = []
        for where in self._partitions():
            placed = self._leaders.placed(where)
            if broker.node_id not in placed.replicas:
                continue
            in_sync = tuple(each for each in placed.replicas if each in placed.in_sync or each == broker.node_id)
            if placed.leader != NO_LEADER:
                self._leaders.set_in_sync(where, in_sync)
            elif broker.node_id in placed.in_sync:
                elections.append(Election(where, broker.node_id))
        self._elect(elections)

    def look_for_silent(self) -> None:
        """Give up the brokers that have been silent for too long."""
        now_ms = self._clock.now_ms()
        for broker in self._brokers:
            since_ms = broker.silent_since_ms
            if since_ms is not None and not broker.fenced and now_ms - since_ms >= self._session_timeout_ms:
                self._give_up(broker)

    def _give_up(self, broker: Broker) -> None:
        broker.fenced = True
        elections = []
        for where in self._partitions():
            placed = self._leaders.placed(where)
            in_sync = tuple(each for each in placed.in_sync if each != broker.node_id) or placed.in_sync
            if placed.leader == broker.node_id:
                elections.append(Election(where, self._next(where), in_sync))
            elif in_sync != placed.in_sync:
                self._leaders.set_in_sync(where, in_sync)
        self._elect(elections)

    # ---- partitions

    def elect(self, where: TopicPartition, leader: int | None = None, lost_from: int | None = None) -> int:
        """Elect a leader of the partition; returns its epoch. None: the next replica that can lead it.

        `lost_from`: the new leader lacks the batch with this offset and what follows. Refused, ValueError: nothing has
        changed.
        """
        self._topics.log(where)
        if leader is None:
            leader = self._next(where)
        elif leader != NO_LEADER and leader not in self._leaders.replicas(where):
            raise ValueError(f"broker {leader} has no replica of {where}; {list(self._leaders.replicas(where))} have")
        elif leader != NO_LEADER and self._brokers[leader].fenced:
            raise ValueError(f"broker {leader} is not alive")
        if lost_from is not None:
            self._tell(where, leader)
            self._topics.cut(where, lost_from)
        self._elect([Election(where, leader, self._leaders.in_sync(where))])
        return self._leaders.epoch(where)

    def scatter(self, topic: str | None, chance: random.Random) -> int:
        """Elect a leader by chance for every partition of a topic (None: of all); returns how many have another one."""
        elections = []
        for where in self._partitions():
            placed = self._leaders.placed(where)
            able = [each for each in placed.in_sync if not self._brokers[each].fenced]
            if topic in (None, where.topic) and able:
                leader = chance.choice(able)
                if leader != placed.leader:
                    elections.append(Election(where, leader))
        self._elect(elections)
        return len(elections)

    def set_in_sync(self, where: TopicPartition, in_sync: Iterable[int]) -> None:
        """Let only these replicas be in sync. ValueError for a broker without a replica, and without the leader."""
        self._topics.log(where)
        placed, wanted = self._leaders.placed(where), tuple(in_sync)
        if placed.leader not in wanted or not set(wanted) <= set(placed.replicas):
            raise ValueError(
                f"{where} is led by {placed.leader} and has replicas on {list(placed.replicas)}; the leader must be in sync"
            )
        self._leaders.set_in_sync(where, tuple(each for each in placed.replicas if each in wanted))

    def _next(self, where: TopicPartition) -> int:
        placed = self._leaders.placed(where)
        alive = [each.node_id for each in self._brokers.alive]
        return next_leader(placed.replicas, placed.in_sync, alive, placed.leader)

    def _partitions(self) -> Iterator[TopicPartition]:
        for topic in self._topics:
            for number in range(topic.partitions):
                yield TopicPartition(topic.name, number)

    def _placed(self, topic: Topic, first: int) -> None:
        """New partitions are led by a broker that is alive, and the others are not in sync."""
        if len(self._brokers.alive) == len(self._brokers):
            return
        elections = []
        for number in range(first, topic.partitions):
            where = TopicPartition(topic.name, number)
            replicas = self._leaders.replicas(where)
            able = tuple(each for each in replicas if not self._brokers[each].fenced)
            if able != replicas:
                elections.append(Election(where, able[0] if able else NO_LEADER, able or replicas))
        self._elect(elections)

    def _elect(self, elections: list[Election]) -> None:
        if not elections:
            return
        before = [self._leaders.leader(each.where) for each in elections]
        for each in elections:
            self._tell(each.where, each.leader)
        self._leaders.elect_all(elections)
        for each, leader in zip(elections, before, strict=True):
            self._on_elected(each.where, leader, each.leader)

    def _tell(self, where: TopicPartition, leader: int) -> None:
        for outlook in self._outlooks:
            outlook.replaced(where, leader)
