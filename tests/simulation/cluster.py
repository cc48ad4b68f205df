"""A broker of the product in a simulated process, over real log files that survive its death."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from embedded_kafka.clock import Clock
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

PORT = 9092
ADDRESS = f"127.0.0.1:{PORT}"


class SimBroker:
    """One broker that can be killed and started again with the same directory."""

    def __init__(self, world: World, net: Net, directory: Path, *, transaction_version: int = 2) -> None:
        self.world, self.net, self.directory = world, net, directory
        self.config = BrokerConfig(
            transaction_version=transaction_version,
            transaction_state_partitions=4,
            offsets_topic_partitions=4,
            sweep_interval_ms=500,
            # The group's offsets stay where a fault moves the broker's clock by days.
            offsets_retention_ms=1_000 * DAY_MS,
        )
        self.faults, self.rights, self.disk = CountedFaults(world), Rights(world), Disk(world, self.start)
        self.tap = Wiretap(net)
        self.process: Process | None = None
        self.node: Node | None = None
        self.cluster: KafkaCluster | None = None
        self.loop: SimLoop | None = None
        self.tasks: list[object] = []
        """What runs in the loop on behalf of nothing in the broker: a loop keeps no task alive."""
        self.ready = False
        self.ready_at = 0.0
        self.error: BaseException | None = None

    @property
    def up(self) -> bool:
        """Whether it serves."""
        return self.process is not None and self.process.alive and self.ready

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None or not self.process.alive:
            self.ready = False
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

    def finalize(self, transaction_version: int) -> None:
        """Set the feature transaction.version, now and for every later start, as `kafka-features upgrade` does."""
        self.config = replace(self.config, transaction_version=transaction_version)

        def act(node: Node) -> None:
            node.parts = replace(node.parts, config=self.config)
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
            self.directory / "data", ids, self.config, ports=(PORT,), clock=Clock(), faults=self.faults
        )
        self.node = cluster.nodes[0]
        self.node.parts = replace(self.node.parts, authorizer=self.rights)
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
