"""A world for the group coordinator: logs in memory, a clock that tests move, and everything that can be restarted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from embedded_kafka.clock import Clock
from embedded_kafka.groups import GroupCoordinator, NewOffset
from embedded_kafka.groups.group_configs import GroupConfigs
from embedded_kafka.groups.machine.moves import AnswerJoin
from embedded_kafka.log import ScannedBatch
from embedded_kafka.log.records import InternalRecord
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

T = TypeVar("T")

RANGE = [("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")]
"""A consumer's subscription to topic "t"."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class StoppedClock(Clock):
    """Moves only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._at_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self._at_ms

    def advance(self, by_ms: int) -> None:
        self._at_ms += by_ms


@dataclass
class MemoryLog:
    """One partition in memory: as a real one, it fences producers, and refuses everything while `refusal` is set."""

    batches: list[ScannedBatch] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    refusal: Code | None = None
    end: int = 0

    def append_internal(
        self,
        records: list[tuple[bytes, bytes | None]],
        *,
        now_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
    ) -> tuple[int, int]:
        assert records and now_ms > 0
        if self.refusal is not None:
            raise Refused(self.refusal, "the test says so")
        if producer_epoch < self.epochs.get(producer_id, -1):
            raise Refused(Code.INVALID_PRODUCER_EPOCH, "fenced")
        if transactional:
            self.epochs[producer_id] = producer_epoch
        first = self.end
        written = [InternalRecord(first + at, now_ms, key, value) for at, (key, value) in enumerate(records)]
        self.batches.append(ScannedBatch(first, producer_id, producer_epoch, transactional, None, written))
        self.end += len(records)
        return first, self.end - 1

    def marker(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        self.batches.append(ScannedBatch(self.end, producer_id, epoch, True, commit, []))
        self.end += 1

    def scan_batches(self) -> Iterator[ScannedBatch]:
        return iter(list(self.batches))


@dataclass
class MemoryLogs:
    partitions: dict[int, MemoryLog] = field(default_factory=dict)

    def internal_log(self, topic: str, partition: int) -> MemoryLog:
        assert topic == "__consumer_offsets"
        return self.partitions.setdefault(partition, MemoryLog())

    def existing(self, topic: str) -> Iterable[tuple[int, MemoryLog]]:
        assert topic == "__consumer_offsets"
        return list(self.partitions.items())

    def offline(self, topic: str) -> frozenset[int]:
        return frozenset()

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        raise error


class World:
    """A coordinator and what it stands on."""

    def __init__(self, **settings: int | str) -> None:
        self.config = BrokerConfig(**settings)  # type: ignore[arg-type]
        self.clock = StoppedClock()
        self.logs = MemoryLogs()
        self._numbers = itertools.count(1)
        self.configs = GroupConfigs(Path("nowhere"), self.config)
        self.groups = self._coordinator()

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            config=self.config,
            configs=self.configs,
            clock=self.clock,
            logs=self.logs,
            new_member_id=lambda prefix: f"{prefix}-{next(self._numbers)}",
        )

    def restart(self) -> None:
        """As after SIGKILL: what is not in the logs is gone."""
        self.groups = self._coordinator()
        self.groups.load()

    def log_of(self, group_id: str) -> MemoryLog:
        return self.logs.internal_log("__consumer_offsets", self.groups.partition_for(group_id))

    def end(self, group_id: str, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        """The transaction coordinator writes a marker to the group's partition."""
        self.log_of(group_id).marker(producer_id, epoch, commit=commit)
        self.groups.on_marker(self.groups.partition_for(group_id), producer_id, commit)

    def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.groups.tick()

    async def join(self, group_id: str = "g", member_id: str = "", **changes: object) -> AnswerJoin:
        facts: dict[str, object] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "require_known_member_id": False,
        }
        return await self.groups.join(group_id, **(facts | changes))  # type: ignore[arg-type]

    async def lonely(self, group_id: str = "g") -> AnswerJoin:
        """A stable group of one member."""
        joined = await self.join(group_id)
        synced = await self.groups.sync(
            group_id,
            generation=joined.generation,
            member_id=joined.member_id,
            assignments=[(joined.member_id, b"all of it")],
        )
        assert synced.refusal is None
        return joined

    async def committed(self, group_id: str = "g", where: TopicPartition = T0, *, stable: bool = False) -> int:
        """The group's offset, -1 for none."""
        fetched = (await self.groups.fetch_offsets(group_id, [where], require_stable=stable))[where]
        return fetched.offset if fetched.code is Code.NONE else -int(fetched.code)


def offset(number: int, where: TopicPartition = T0, metadata: str = "") -> NewOffset:
    return NewOffset(where, number, 3, metadata)


def run(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test's coroutine to its end."""

    async def main() -> T:
        return await asyncio.wait_for(test(), 10)

    return asyncio.run(main())


async def soon(*started: Coroutine[object, object, T]) -> list[asyncio.Task[T]]:
    """Start each and let it come as far as it can."""
    tasks = [asyncio.create_task(each) for each in started]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks
