"""The readers that wait for records of a partition.

Owns: who waits for which partition.
Does not know: requests, what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from kafka_core.values import TopicPartition


class Readers:
    """The waiting readers of one broker, on its event loop."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, dict[asyncio.Event, None]] = {}

    def wake(self, where: TopicPartition) -> None:
        """Records or a marker were written there, or another leader was elected."""
        for event in self._waiting.get(where, ()):
            event.set()

    @contextlib.contextmanager
    def watching(self, partitions: list[TopicPartition]) -> Iterator[asyncio.Event]:
        """An event that is set whenever something is written to one of these partitions."""
        event = asyncio.Event()
        partitions = list(dict.fromkeys(partitions))
        for where in partitions:
            self._waiting.setdefault(where, {})[event] = None
        try:
            yield event
        finally:
            for where in partitions:
                waiting = self._waiting[where]
                waiting.pop(event, None)
                if not waiting:
                    del self._waiting[where]
