"""The cleaner: compacts one log after another while the broker serves requests.

Owns: which log is next, how long a slice may block the event loop, logs that cannot be cleaned.
Does not know: what compaction keeps (`log.compaction`), requests.
Invariants:
- The cleaner works on one log at a time.
- It releases a log that was closed, cut or deleted in the meantime at the next pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Final

from embedded_kafka.clock import Clock
from embedded_kafka.log import PartitionLog
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.topics import Topics
from embedded_kafka.waiting import set_within
from kafka_core import runtime
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

_SLICE_S: Final = 0.002
"""Work between two pauses, so the extra latency of a request. With a tenth, pauses would take as long as the work."""

_PAUSE_S: Final = 0.002
"""As long as a slice, so requests get half of the broker's time while it cleans."""


class Cleaner:
    """Compacts the logs of `topics` for as long as `run` runs."""

    def __init__(self, topics: Topics, clock: Clock, backoff_ms: int) -> None:
        self._topics = topics
        self._clock = clock
        self._backoff_s = backoff_ms / 1000
        self._woken = asyncio.Event()
        self._uncleanable: weakref.WeakSet[PartitionLog] = weakref.WeakSet()

    def wake(self) -> None:
        """Check for dirty logs now, because a test has moved the clock."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await set_within(self._woken, self._backoff_s)
            self._woken.clear()
            for where, partition_log in await self._dirty():
                if self._topics.opened_log(where) is partition_log:
                    await self._clean(where, partition_log)

    async def _dirty(self) -> list[tuple[TopicPartition, PartitionLog]]:
        """The logs worth cleaning, dirtiest first."""
        found = []
        until = runtime.perf_counter() + _SLICE_S
        for where, partition_log in self._topics.opened():
            if partition_log in self._uncleanable or self._topics.opened_log(where) is not partition_log:
                continue
            try:
                due = partition_log.dirty(self._clock.now_ms())
            except OSError as error:
                log.warning("%s cannot be cleaned now: %s", where, error)
                continue
            if due is not None:
                found.append((due.ratio, where, partition_log))
            if runtime.perf_counter() >= until:
                await asyncio.sleep(_PAUSE_S)
                until = runtime.perf_counter() + _SLICE_S
        found.sort(key=lambda each: each[0], reverse=True)
        return [(where, partition_log) for _, where, partition_log in found]

    async def _clean(self, where: TopicPartition, partition_log: PartitionLog) -> None:
        try:
            compaction = partition_log.compaction(self._clock.now_ms())
            if compaction is None:
                return
            # Closing the generator on an early exit removes its half-written segment.
            with contextlib.closing(compaction.steps()) as steps:
                until = runtime.perf_counter() + _SLICE_S
                for work in steps:
                    if work is not None:
                        await asyncio.to_thread(work)
                    elif runtime.perf_counter() < until:
                        continue
                    else:
                        await asyncio.sleep(_PAUSE_S)
                    if self._topics.opened_log(where) is not partition_log:
                        return
                    until = runtime.perf_counter() + _SLICE_S
            partition_log.compacted(compaction)
        except Refused as refused:
            if refused.code in (Code.CORRUPT_MESSAGE, Code.UNSUPPORTED_COMPRESSION_TYPE):
                self._uncleanable.add(partition_log)
            log.error("%s cannot be cleaned: %s", where, refused)
        except OSError as error:
            log.warning("%s cannot be cleaned now: %s", where, error)
        except Exception:
            # One log that cannot be cleaned must not block the others.
            self._uncleanable.add(partition_log)
            log.exception("%s cannot be cleaned", where)
