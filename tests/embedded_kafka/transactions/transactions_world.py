"""The coordinator's surroundings in memory: one journal of all that is durable, in the order in which it was written.

A crash is a journal's prefix: `World(journal[:n])` is what a restarted broker finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from embedded_kafka.clock import Clock
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.transactions import TransactionCoordinator
from kafka_core.errors import BlocksUnavailable
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


@dataclass(frozen=True)
class StateRecord:
    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Marker:
    where: TopicPartition
    producer_id: int
    epoch: int
    commit: bool
    at_ms: int


@dataclass(frozen=True)
class Data:
    where: TopicPartition
    producer_id: int
    epoch: int
    label: str


Durable = StateRecord | Marker | Data


class ManualClock(Clock):
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        super().__init__()
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms


@dataclass
class World:
    """The log, the partitions and the producer ids that a coordinator uses."""

    journal: list[Durable] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    config: BrokerConfig = field(default_factory=BrokerConfig)
    unreachable: set[TopicPartition] = field(default_factory=set)
    missing: set[TopicPartition] = field(default_factory=set)
    log_error: Exception | None = None
    ids_left: int = 1_000_000
    next_producer_id: int = 1_000
    steps: list[str] = field(default_factory=list)
    stop_at: str = ""
    released: asyncio.Event | None = None

    def start(self) -> TransactionCoordinator:
        """A coordinator that has just come up on what is in the journal; inside a running loop."""
        coordinator = TransactionCoordinator(
            config=self.config,
            clock=self.clock,
            ids=self,
            logs=_Logs(self),
            markers=self,
            reached=self._reached,
        )
        coordinator.load()
        return coordinator

    def next_id(self) -> int:
        if self.ids_left <= 0:
            raise BlocksUnavailable("no block")
        self.ids_left -= 1
        self.next_producer_id += 1
        return self.next_producer_id

    async def _reached(self, step: str) -> None:
        self.steps.append(step)
        if step == self.stop_at:
            self.released = asyncio.Event()
            await self.released.wait()

    # ---- partitions

    def markers(self, where: TopicPartition | None = None) -> list[Marker]:
        return [each for each in self.journal if isinstance(each, Marker) and where in (None, each.where)]

    def of_producer(self, where: TopicPartition, producer_id: int) -> list[Data | Marker]:
        return [
            each
            for each in self.journal
            if isinstance(each, Data | Marker) and (each.where, each.producer_id) == (where, producer_id)
        ]

    def produce(self, where: TopicPartition, producer_id: int, epoch: int, label: str = "") -> None:
        """Write a record, as a partition's leader does it: an older epoch is refused."""
        newest = self.of_producer(where, producer_id)[-1:]
        if newest and newest[0].epoch > epoch:
            raise Refused(Code.INVALID_PRODUCER_EPOCH, "an older epoch")
        self.journal.append(Data(where, producer_id, epoch, label))

    async def write(
        self, partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool,
        coordinator_epoch: int, transaction_version: int = 1,
    ) -> None:  # fmt: skip
        if partition in self.missing:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        if partition in self.unreachable:
            raise Refused(Code.KAFKA_STORAGE_ERROR, "the disk is full")
        newest = self.of_producer(partition, producer_id)[-1:]
        if newest and newest[0].epoch > epoch:
            raise Refused(Code.INVALID_PRODUCER_EPOCH, "an older epoch")
        self.journal.append(Marker(partition, producer_id, epoch, commit, self.clock.now_ms()))

    def ended(self, partition: TopicPartition, producer_id: int, epoch: int, since_ms: int) -> bool:
        newest = self.of_producer(partition, producer_id)[-1:]
        return any(isinstance(each, Marker) and each.epoch == epoch and each.at_ms >= since_ms for each in newest)


class _Log:
    def __init__(self, world: World, partition: int) -> None:
        self._world = world
        self._partition = partition

    def append_internal(self, records: Sequence[tuple[bytes | None, bytes | None]], *, now_ms: int) -> None:
        if self._world.log_error is not None:
            raise self._world.log_error
        self._world.journal += [StateRecord(self._partition, key, value) for key, value in records]

    def scan_records(self) -> Iterator[StateRecord]:
        for each in list(self._world.journal):
            if isinstance(each, StateRecord) and each.partition == self._partition:
                yield each


class _Logs:
    def __init__(self, world: World) -> None:
        self._world = world

    def internal_log(self, topic: str, partition: int) -> _Log:
        assert topic == "__transaction_state"
        return _Log(self._world, partition)

    def existing(self, topic: str) -> list[tuple[int, _Log]]:
        used = {each.partition for each in self._world.journal if isinstance(each, StateRecord)}
        return [(partition, self.internal_log(topic, partition)) for partition in sorted(used)]

    def offline(self, topic: str) -> frozenset[int]:
        return frozenset()

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        raise error

    def coordinator_epoch(self, topic: str, partition: int) -> int:
        return 0


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(40):
        await asyncio.sleep(0)
