"""The interfaces that the transaction coordinator needs from the rest of the broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from kafka_core.values import TopicPartition


class Ids(Protocol):
    """The source of producer ids."""

    def next_id(self) -> int:
        """An id that was never given out before; BlocksUnavailable, NoProducerIds. Never waits."""


class StateRecord(Protocol):
    """One record of a log."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value; None is a tombstone."""


class StateLog(Protocol):
    """One partition of the transaction log."""

    def append_internal(self, records: Sequence[tuple[bytes | None, bytes | None]], *, now_ms: int) -> object:
        """Append as one batch. Refused or OSError means that nothing of it is in the log."""

    def scan_records(self) -> Iterator[StateRecord]:
        """Every record from the start, oldest first."""


class StateLogs(Protocol):
    """All partitions of the transaction log."""

    def internal_log(self, topic: str, partition: int) -> StateLog:
        """A partition, created on first use."""

    def existing(self, topic: str) -> Iterable[tuple[int, StateLog]]:
        """The partitions that have been used, of those that this broker coordinates."""

    def offline(self, topic: str) -> Collection[int]:
        """The partitions that this broker does not coordinate: damaged, or another one's."""

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        """A partition's records cannot be read."""

    def coordinator_epoch(self, topic: str, partition: int) -> int:
        """The epoch under which this broker coordinates what the partition stores."""


class MarkerWriter(Protocol):
    """The writer of transaction markers."""

    async def write(
        self, partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool,
        coordinator_epoch: int, transaction_version: int = 1,
    ) -> None:  # fmt: skip
        """End the producer's transaction in one partition. Refused or OSError means that no marker was written."""

    def ended(self, partition: TopicPartition, producer_id: int, epoch: int, since_ms: int) -> bool:
        """Whether the newest batch of the producer there is a marker of this epoch, written at `since_ms` or later.

        False where the producer has a transaction open there, is unknown, or the partition does not exist.
        """
