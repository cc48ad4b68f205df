"""The product's cluster of three brokers in a simulated process, over real log files that survive its death.

Owns: the brokers' addresses and links, what starts and ends them, one by one or all at once.
Does not know: when (`faults`, `one_broker`).
Invariants:
- A broker that something happened to is made whole at a moment that is known then, or by `mend`.
- What lasts is the cluster's: its faults, rights, disk, settings. A broker that is started again has them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from embedded_kafka.clock import Clock
from embedded_kafka.cluster.brokers import LOOPBACK
from embedded_kafka.cluster.life import BrokerState
from embedded_kafka.log import PartitionLog
from embedded_kafka.log.segments import files
from embedded_kafka.node import Node
from embedded_kafka.producer_ids import FileBlocks, ProducerIds
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import DAY_MS, BrokerConfig
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.records import BatchInfo, MarkerKind, control_marker, decode, scan
from tests.simulation.hooks import CountedFaults, Disk, Rights, Wiretap
from tests.simulation.library import SimLoop
from tests.simulation.network import Net
from tests.simulation.world import Process, World

BROKERS = 3
PORTS = tuple(range(9092, 9092 + BROKERS))
ADDRESS = ",".join(f"127.0.0.1:{port}" for port in PORTS)

NOTICED_S = 9.0
"""Kafka's broker.session.timeout.ms: so long a broker may be silent before others lead in its place."""


LINKS = tuple(f"broker{node_id}" for node_id in range(BROKERS))
"""The names of the brokers' ends of links, by id; "broker" is that of all."""


class SimBroker:
    """The brokers, which can be killed and started again with the same directory: each one, and all at once as by the
    end of the one process that they are.

    `whole_at`: when the last of them is made whole again, of those to which something has happened so far.
    """

    def __init__(self, world: World, net: Net, directory: Path, *, transaction_version: int = 2) -> None:
        self.world, self.net, self.directory = world, net, directory
        self.config = BrokerConfig(
            transaction_version=transaction_version,
            transaction_state_partitions=4,
            offsets_topic_partitions=4,
            sweep_interval_ms=500,
            broker_session_timeout_ms=round(1000 * NOTICED_S),
            # The group's offsets stay where a fault moves the broker's clock by days.
            offsets_retention_ms=1_000 * DAY_MS,
        )
        self.faults, self.rights = CountedFaults(world, self._log_of, self._elect), Rights(world)
        self.disk = Disk(world, self.start)
        self.tap = Wiretap(net)
        self.process: Process | None = None
        self.node: Node | None = None
        self.cluster: KafkaCluster | None = None
        self.loop: SimLoop | None = None
        self.tasks: list[object] = []
        """What runs in the loop on behalf of nothing in the broker: a loop keeps no task alive."""
        self.ready = False
        self.ready_at = self.whole_at = 0.0
        self.older = False
        """Whether a broker may be of an earlier release, so that nothing new can be finalized."""
        self.error: BaseException | None = None

    @property
    def up(self) -> bool:
        """Whether it serves."""
        return self.process is not None and self.process.alive and self.ready

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None or not self.process.alive:
            self.ready = self.older = False
            self.process = self.world.process("broker")
            self.process.at_death.append(self._release)
            self.process.write_at = self.disk.writer(self.process)
            self.world.spawn(self.process, self._serve, "broker")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.world.kill(self.process)

    def stop(self) -> None:
        """End it where that is no fault of its own."""
        if self.process is not None:
            self.world.kill(self.process, struck=False)

    def do(self, action: Callable[[Node], object]) -> None:
        """Have it happen in the broker's loop, soon. Nothing happens where the broker is down. An error ends the
        history.
        """
        loop, node = self.loop, self.node
        if not self.up or loop is None or node is None:
            return

        def act() -> None:
            try:
                action(node)
            except Exception as error:  # noqa: BLE001 -- asyncio would only log it
                self.world.schedule(0.0, partial(_raise, error))

        loop.call_soon_threadsafe(act)

    @property
    def nodes(self) -> list[Node]:
        """Every broker, also those that are down."""
        return [] if self.cluster is None else self.cluster.nodes

    def state(self, node_id: int) -> BrokerState:
        """How a broker is; all are down with their process."""
        if not self.up or self.cluster is None:
            return BrokerState.DOWN
        return self.cluster.shared.brokers[node_id].life.state

    def happens(
        self, kind: str, node_id: int, seconds: float, begin: Callable[[KafkaCluster], object],
        end: Callable[[KafkaCluster], object], *, noticed: bool,
    ) -> None:  # fmt: skip
        """Something happens to a broker that is up, and is over in so many seconds. `noticed`: the controller gives it
        up now, as if nothing had been asked since it went silent.
        """

        def act(_node: Node) -> None:
            cluster = self.cluster
            if cluster is None or self.state(node_id) is not BrokerState.UP:
                return
            self.world.fired[kind] += 1
            self.world.note(kind, node_id, seconds)
            self.whole_at = max(self.whole_at, self.world.now + seconds)
            begin(cluster)
            if noticed:
                broker = cluster.shared.brokers[node_id]
                broker.silent_since_ms = cluster.shared.clock.now_ms() - round(1000 * NOTICED_S)
                cluster.shared.controller.look_for_silent()
            # Of this process: the brokers of the next one are all well.
            self.world.schedule(seconds, lambda: self.do(lambda _: end(cluster)), self.process)

        self.do(act)

    def kill_one(
        self, node_id: int, seconds: float, *, noticed: bool, port: int | None = None,
        api_versions: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """SIGKILL of one broker, which is started again after so many seconds: at another port, or as a release with
        older APIs.
        """
        ended: list[asyncio.Task[None]] = []

        async def revived(cluster: KafkaCluster) -> None:
            await asyncio.wait(ended)
            if cluster.shared.brokers[node_id].life.state is BrokerState.DOWN:
                if port is not None:
                    self.net.links[LOOPBACK, port] = LINKS[node_id]
                await cluster.revive(node_id, port, api_versions=api_versions)

        def begin(cluster: KafkaCluster) -> None:
            ended.append(self._in_loop(cluster.kill(node_id)))

        self.happens(
            "broker killed", node_id, seconds, begin, lambda cluster: self._in_loop(revived(cluster)), noticed=noticed
        )

    def freeze_one(self, node_id: int, seconds: float, *, noticed: bool) -> None:
        """SIGSTOP of one broker, and SIGCONT."""

        def end(cluster: KafkaCluster) -> None:
            if cluster.shared.brokers[node_id].frozen:
                cluster.thaw(node_id)

        self.happens("broker frozen", node_id, seconds, lambda cluster: cluster.freeze(node_id), end, noticed=noticed)

    def cut_off(self, node_id: int, seconds: float, *, noticed: bool) -> None:
        """One broker hears nothing of the others, and goes on for its clients as things were."""

        def end(cluster: KafkaCluster) -> None:
            if self.state(node_id) is BrokerState.CUT_OFF:
                cluster.rejoin(node_id)

        self.happens("broker cut off", node_id, seconds, lambda cluster: cluster.cut_off(node_id), end, noticed=noticed)

    def _log_of(self, where: TopicPartition) -> PartitionLog | None:
        topics = None if self.cluster is None else self.cluster.shared.topics
        return topics.log(where) if topics is not None and topics.has(where) else None

    def _elect(self, where: TopicPartition, lost_from: int) -> None:
        assert self.cluster is not None
        self.cluster.shared.controller.elect(where, lost_from=lost_from)

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self.loop is not None
        task = self.loop.create_task(work)
        self.tasks.append(task)
        return task

    def finalize(self, transaction_version: int) -> None:
        """Set the feature transaction.version, now and for every later start, as `kafka-features upgrade` does."""
        self.config = replace(self.config, transaction_version=transaction_version)

        def act(_node: Node) -> None:
            assert self.cluster is not None
            self.cluster.config = self.config
            for node in self.nodes:
                node.parts = replace(node.parts, config=replace(self.config, node_id=node.parts.node_id))
                node.parts.transactions.transaction_version = transaction_version

        self.do(act)

    def _serve(self) -> None:
        try:
            self._serve_until_killed()
        except Exception as error:  # noqa: BLE001 -- the judge tells it
            self.error = error

    def _serve_until_killed(self) -> None:
        loop = self.loop = SimLoop(self.net)
        (self.directory / "data").mkdir(exist_ok=True)
        (self.directory / "ids").mkdir(exist_ok=True)
        ids = ProducerIds(FileBlocks(self.directory / "ids"))
        cluster = self.cluster = KafkaCluster(
            self.directory / "data", ids, self.config,
            brokers=BROKERS, ports=PORTS, clock=Clock(), faults=self.faults,
        )  # fmt: skip
        # Also for those that are started one by one later.
        cluster.shared = replace(cluster.shared, authorizer=self.rights)
        for node, port in zip(cluster.nodes, PORTS, strict=True):
            node.parts = replace(node.parts, authorizer=self.rights)
            self.net.links[LOOPBACK, port] = LINKS[node.parts.node_id]
        self.node = cluster.nodes[0]
        loop.run_until_complete(cluster.start())
        self.ready, self.ready_at = True, self.world.now
        loop.run_forever()

    def _release(self) -> None:
        # What the system does for a process that is dead.
        for file in [each for each in list(files._FILES._open) if each.path.is_relative_to(self.directory)]:
            files._FILES.close(file)
        if self.cluster is not None and self.cluster._data is not None:
            self.cluster._data.release()

    def written(self, topic: str, partitions: int) -> set[str]:
        """The values of all records in the bytes of the logs, committed or not."""
        return {
            value
            for number in range(partitions)
            for info, batch in self._batches(topic, number)
            if not info.control
            for value in values_of(info, batch)
        }

    def records(self, topic: str, partitions: int) -> tuple[Counter[str], int]:
        """The values that a reader of committed records gets, with how often; and how many records are open. From the
        bytes.
        """
        found: Counter[str] = Counter()
        pending: dict[tuple[int, int], list[str]] = defaultdict(list)
        for number in range(partitions):
            for info, batch in self._batches(topic, number):
                where = (number, info.producer_id)
                if info.control:
                    ended = pending.pop(where, [])
                    if control_marker((info, batch)).kind is MarkerKind.COMMIT:
                        found.update(ended)
                elif info.transactional:
                    pending[where] += values_of(info, batch)
                else:
                    found.update(values_of(info, batch))
        return found, sum(map(len, pending.values()))

    def _batches(self, topic: str, number: int) -> Iterator[tuple[BatchInfo, memoryview]]:
        assert self.node is not None
        log = self.node.parts.topics.log(TopicPartition(topic, number))
        for path in sorted(Path(log.directory).glob("*.log")):
            yield from scan(path.read_bytes())


def values_of(info: BatchInfo, batch: memoryview) -> list[str]:
    """The values of a batch's records."""
    return [value.decode() for value in decode((info, batch)).value.to_pylist()]


def _raise(error: Exception) -> None:
    raise error
