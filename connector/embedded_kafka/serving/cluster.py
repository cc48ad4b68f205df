"""The cluster: what its brokers share, the brokers themselves, and what happens to them.

Owns: start and stop and their order, the sweep, the lives of the brokers, the coordinators' moves.
Does not know: requests; why a broker is killed, frozen or cut off.
Invariants:
- Stopping closes the logs last.
- One broker is a cluster of one: there is no second way through the code.
- A coordinator's partition is loaded where it is led, and nowhere else; a broker that is cut off keeps what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from embedded_kafka.clock import Clock
from embedded_kafka.cluster.brokers import Address, Brokers
from embedded_kafka.cluster.controller import Controller
from embedded_kafka.cluster.life import BrokerState, CutOff, Froze, Rejoined, Thawed
from embedded_kafka.cluster.outlook import Outlook
from embedded_kafka.connections.unread import Unread
from embedded_kafka.faults.faults import Faults
from embedded_kafka.groups import GroupCoordinator
from embedded_kafka.groups.group_configs import GroupConfigs
from embedded_kafka.node import Node
from embedded_kafka.parts import Coordinators, Shared
from embedded_kafka.producer_ids import ProducerIds
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.settings.choices import unknown
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.storage import DataDirectory
from embedded_kafka.topics.cleaner import Cleaner
from embedded_kafka.topics.internal_topics import INTERNAL, OFFSETS_TOPIC
from embedded_kafka.topics.leaders import Leaders
from embedded_kafka.topics.readers import Readers
from embedded_kafka.topics.topics import Topics
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.markers import Markers
from embedded_kafka.wire.server import REQUESTS, api_name
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

_DUE_AT_MOST = 10
"""Due items of each kind per sweep, ten sweeps a second: expiring 10 ids takes some 2 ms, in
which nothing else is served. With a tenth, 10,000 transactions that time out together would wait
for a quarter of an hour."""

_FIRST_RETENTION_CHECK_MS = 30_000
"""Kafka's InitialTaskDelayMs."""

_REPLICAS_AT_MOST = 3
"""Of topics that are made without a number of replicas. Kafka's default is 1, with which the end of any broker of a
test's cluster would make partitions unavailable; production sets 3."""


class KafkaCluster:
    """Brokers on the loopback interface, over one data directory.

    `directory`: its data, kept after `stop`. `ids`: the source of producer ids, closed by `stop`. `brokers`: how many;
    their ids begin at node.id. `ports`: of the brokers; 0 picks a free one, and so do those that are not named.
    """

    def __init__(
        self,
        directory: Path,
        ids: ProducerIds,
        config: BrokerConfig | None = None,
        *,
        brokers: int = 1,
        ports: tuple[int, ...] = (),
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        config, clock = config or BrokerConfig(), clock or Clock()
        self.config, self.ids = config, ids
        self._register = Brokers(range(config.node_id, config.node_id + brokers))
        for broker, port in zip(self._register, ports, strict=False):
            broker.port = port
        topics, readers = Topics(directory, config, clock, min(brokers, _REPLICAS_AT_MOST)), Readers()
        leaders = Leaders(directory, topics, self._register.ids)
        self._outlooks = {each.node_id: Outlook(topics, leaders, self._register, each) for each in self._register}
        self._coordinators: dict[int, Coordinators] = {}
        self.shared = Shared(
            clock=clock,
            faults=faults or Faults(),
            directory=directory,
            authorizer=Authorizer(config.security, directory),
            group_configs=GroupConfigs(directory, config),
            listener_security=ListenerSecurity(config.security, clock),
            unread=Unread(config.unread_answers_max_bytes),
            topics=topics,
            leaders=leaders,
            readers=readers,
            markers=Markers(topics, clock, on_offsets=self._on_offsets, on_written=readers.wake, leads=self._led),
            brokers=self._register,
            controller=Controller(
                topics, leaders, self._register, clock, config.broker_session_timeout_ms, self._outlooks.values(),
                self._on_elected,
            ),
            coordinators=self._coordinators,
        )  # fmt: skip
        self.cleaner = Cleaner(topics, clock, config.cleaner_backoff_ms)
        self._numbers = itertools.count(1)
        self._nodes = {node_id: self._node(node_id) for node_id in self._register.ids}
        self._data: DataDirectory | None = None
        self._logs_due_ms = clock.now_ms() + min(_FIRST_RETENTION_CHECK_MS, config.log_retention_check_interval_ms)
        self._sweeper: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    @property
    def nodes(self) -> list[Node]:
        """Every broker, also those that are down, in the order of their ids."""
        return list(self._nodes.values())

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port` of every broker, with commas between them."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def _node(self, node_id: int, older: Mapping[int, int] | None = None) -> Node:
        me, outlook = self._register[node_id], self._outlooks[node_id]
        node = Node(self.shared, me, outlook, self.config, self.ids, numbers=self._numbers, older=older or {})
        self._coordinators[node_id] = node.coordinators
        return node

    # ---- start and stop

    async def start(self) -> None:
        """Load the directory and listen. StorageInUse where the directory or a port is taken; then
        nothing keeps running."""
        shared = self.shared
        self._data = DataDirectory(shared.directory)
        try:
            self._register.cluster_id = self._data.cluster_id
            shared.clock.advance(max(0, self._data.clock_added_ms - shared.clock.added_ms))
            shared.authorizer.load()
            shared.group_configs.load()
            shared.topics.load()
            shared.leaders.load()
            for node in self.nodes:
                node.parts.groups.load()
            self.ids.start()
            for node in self.nodes:
                node.parts.transactions.load()
            for node in self.nodes:
                await node.listen()
        except BaseException:
            await self.stop()
            raise
        self._sweeper = asyncio.ensure_future(self._sweep_forever())
        self._cleaning = asyncio.ensure_future(self.cleaner.run())

    async def stop(self) -> None:
        """Close everything; a next start finds the logs cleanly closed."""
        for task in (self._sweeper, self._cleaning):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._sweeper = self._cleaning = None
        self.shared.faults.clear()
        for node in self.nodes:
            await node.stop()
        self.shared.unread.close()
        # In a thread, because a ZooKeeper that does not answer can block the close for seconds.
        await asyncio.to_thread(self.ids.close)
        self.shared.topics.close()
        if self._data is not None:
            self._data.release()
            self._data = None

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_interval_ms / 1000)
            try:
                self.sweep(_DUE_AT_MOST)
            except Exception:
                # A failure in one sweep must not stop the following sweeps.
                log.exception("the broker's sweep failed")

    def advance(self, by_ms: int) -> None:
        """Move the clock, and handle what falls due. Later brokers on the directory start at the moved time."""
        self.shared.clock.advance(by_ms)
        if self._data is not None:
            self._data.clock_added_ms = self.shared.clock.added_ms
        self.sweep()
        self.cleaner.wake()

    def sweep(self, at_most: int | None = None) -> None:
        """Handle what falls due with time: silent brokers, transactions, ids, members, offsets, records, producers.

        Handles `at_most` transactions, ids and groups of each broker (None: all that are due). Its cost follows the
        number of due items, not of all items.
        """
        self.shared.controller.look_for_silent()
        for node in self._nodes.values():
            if node.parts.me.serves:
                node.parts.transactions.tick(at_most)
                node.parts.groups.tick(at_most)
        now_ms = self.shared.clock.now_ms()
        if now_ms >= self._logs_due_ms:
            self._logs_due_ms = now_ms + self.config.log_retention_check_interval_ms
            for _, partition_log in self.shared.topics.opened():
                partition_log.expire_producers(now_ms)
                partition_log.retention(now_ms)

    # ---- what happens to a broker; ValueError where it cannot happen to a broker as this one is

    async def kill(self, node_id: int) -> None:
        """End a broker as by SIGKILL: its connections break, its coordinators' memory is gone."""
        broker = self._register[node_id]
        if broker.life.state is BrokerState.DOWN:
            raise ValueError(f"broker {node_id} is down")
        await self._nodes[node_id].stop()
        self._coordinators.pop(node_id, None)
        self._outlooks[node_id].catch_up()
        self.shared.controller.silent(broker)

    async def revive(
        self,
        node_id: int,
        port: int | None = None,
        advertised: tuple[str, int] | None = None,
        api_versions: Mapping[str, int] | None = None,
    ) -> Address:
        """Start a broker that is down; returns its address. `port`: None is the one that it had. `advertised`: what
        clients are told instead of its address. `api_versions`: the highest that it has of some APIs."""
        broker = self._register[node_id]
        if broker.life.state is not BrokerState.DOWN:
            raise ValueError(f"broker {node_id} is not down, it is {broker.life.state.value}")
        older = _by_key(api_versions or {})
        broker.port = broker.port if port is None else port
        broker.advertised = advertised
        node = self._nodes[node_id] = self._node(node_id, older)
        # What it leads still, where nobody has missed it; nothing where it was given up.
        node.parts.groups.load()
        node.parts.transactions.load()
        await node.listen()
        self.shared.controller.heard(broker)
        return Address(node_id, broker.host, broker.port)

    def freeze(self, node_id: int) -> None:
        """Stop a broker as by SIGSTOP."""
        self._register[node_id].happens(Froze())
        self.shared.controller.silent(self._register[node_id])

    def thaw(self, node_id: int) -> None:
        """Let a frozen broker go on. It learns first what has changed: Kafka's needs some milliseconds for that."""
        broker = self._register[node_id]
        broker.happens(Thawed())
        self.shared.controller.heard(broker)

    def cut_off(self, node_id: int) -> None:
        """Cut a broker off from the controller and from the other brokers, not from clients."""
        broker = self._register[node_id]
        broker.happens(CutOff())
        self._outlooks[node_id].keep()
        self.shared.controller.silent(broker)

    def rejoin(self, node_id: int) -> None:
        """Let a broker that is cut off find the others again. It drops what it did alone."""
        broker, outlook = self._register[node_id], self._outlooks[node_id]
        broker.happens(Rejoined())
        for where in self._internal():
            if outlook.leads(where):
                self._resign(node_id, where)
        outlook.catch_up()
        for where in self._internal():
            if outlook.leads(where):
                self._take_over(node_id, where)
        self.shared.controller.heard(broker)

    # ---- coordinators

    def _on_offsets(self, partition: int, producer_id: int, commit: bool) -> None:
        found = self._coordinators.get(self.shared.leaders.leader(TopicPartition(OFFSETS_TOPIC, partition)))
        if found is not None:
            found.groups.on_marker(partition, producer_id, commit)

    def _led(self, where: TopicPartition) -> bool:
        leader = self.shared.leaders.leader(where)
        return leader in self._coordinators and self._register[leader].serves

    def _on_elected(self, where: TopicPartition, before: int, after: int) -> None:
        if where.topic in INTERNAL:
            # Also where the leader stays: its log may have lost its end.
            self._resign(before, where)
            self._take_over(after, where)
        # Wakes waiting readers: the records that come next are another leader's.
        self.shared.readers.wake(where)

    def _internal(self) -> Iterator[TopicPartition]:
        for name in INTERNAL:
            topic = self.shared.topics.get(name)
            yield from (TopicPartition(name, number) for number in range(0 if topic is None else topic.partitions))

    def _resign(self, node_id: int, where: TopicPartition) -> None:
        if (coordinator := self._coordinator(node_id, where)) is not None:
            coordinator.resign(where.partition)

    def _take_over(self, node_id: int, where: TopicPartition) -> None:
        if (coordinator := self._coordinator(node_id, where)) is not None:
            coordinator.take_over(where.partition)

    def _coordinator(self, node_id: int, where: TopicPartition) -> GroupCoordinator | TransactionCoordinator | None:
        """Of what the partition stores. A broker that is down has no memory to change; one that is cut off hears
        nothing of it.
        """
        found = self._coordinators.get(node_id)
        if found is None or self._register[node_id].life.state is BrokerState.CUT_OFF:
            return None
        return found.groups if where.topic == OFFSETS_TOPIC else found.transactions


def _by_key(api_versions: Mapping[str, int]) -> dict[int, int]:
    keys = {api_name(key): key for key in REQUESTS}
    for name in api_versions:
        if name not in keys:
            raise ValueError(unknown("API", name, keys))
    return {keys[name]: highest for name, highest in api_versions.items()}
