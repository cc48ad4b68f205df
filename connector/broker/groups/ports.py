"""What the group coordinator needs of a log.

Owns: the shape of what it writes and reads back.
Does not know: files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from connector.broker.log import ScannedBatch


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
        """Write; the first and last offset. Refused where nothing was written."""

    def scan_batches(self) -> Iterator[ScannedBatch]:
        """Everything from the start."""


class GroupLogs(Protocol):
    """All of them."""

    def internal_log(self, topic: str, partition: int) -> GroupLog:
        """The partition's log, made at its first use."""

    def existing(self, topic: str) -> Iterable[tuple[int, GroupLog]]:
        """The partitions that have ever been written to."""

    def offline(self, topic: str) -> Collection[int]:
        """The partitions whose files are damaged."""

    def take_offline(self, topic: str, partition: int, error: Exception) -> None:
        """A partition's records cannot be read."""
