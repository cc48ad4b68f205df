"""The log interface that the group coordinator needs.

Owns: the shape of the records that it writes and loads.
Does not know: files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from embedded_kafka.log import ScannedBatch


class GroupLog(Protocol):
    """One partition of `__consumer_offsets`."""

    def append_internal(
        self,
        records: list[tuple[bytes, bytes | None]],
        *,
        now_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
    ) -> tuple[int, int]:
        """Append; returns the first and last offset. Refused means that nothing was written."""

    def scan_batches(self) -> Iterator[ScannedBatch]:
        """Every batch from the start."""


class GroupLogs(Protocol):
    """All partitions of `__consumer_offsets`."""

    def internal_log(self, topic: str, partition: int) -> GroupLog:
        """The partition's log, created on first use."""

    def existing(self, topic: str) -> Iterable[tuple[int, GroupLog]]:
        """The partitions that have ever been written to, of those that this broker coordinates."""

    def offline(self, topic: str) -> Collection[int]:
        """The partitions that this broker does not coordinate: damaged, or another one's."""

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        """A partition's records cannot be read."""
