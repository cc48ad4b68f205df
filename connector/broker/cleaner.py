"""The cleaner: compacts one log after another, beside everything else that the broker does.

Owns: which log is next, how long the event loop is kept at a time, logs that cannot be cleaned.
Does not know: what compaction keeps (`log.compaction`), requests.
Invariants: one log at a time; a log that is closed, cut or deleted meanwhile is let go of at the next pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from typing import Final

from connector.broker.clock import Clock
from connector.broker.log import PartitionLog
from connector.broker.refusals import Refused
from connector.broker.topics import Topics
from connector.broker.waiting import set_within
from connector.model import TopicPartition
from connector.protocol.error_codes import Code

log = logging.getLogger(__name__)

_SLICE_S: Final = 0.002
"""Of work, after which requests have their turn: what one more may have to wait. A tenth would spend as long on the pauses."""

_PAUSE_S: Final = 0.002
"""So a broker that cleans has half of its time for requests."""


class Cleaner:
    """Compacts the logs of `topics` for as long as `run` runs."""

    def __init__(self, topics: Topics, clock: Clock, backoff_ms: int) -> None:
        self._topics = topics
        self._clock = clock
        self._backoff_s = backoff_ms / 1000
        self._woken = asyncio.Event()
        self._uncleanable: weakref.WeakSet[PartitionLog] = weakref.WeakSet()

    def wake(self) -> None:
        """Look now: time has been moved."""
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
        """The logs that are worth cleaning, the dirtiest first."""
        found = []
        until = time.perf_counter() + _SLICE_S
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
            if time.perf_counter() >= until:
                await asyncio.sleep(_PAUSE_S)
                until = time.perf_counter() + _SLICE_S
        found.sort(key=lambda each: each[0], reverse=True)
        return [(where, partition_log) for _, where, partition_log in found]

    async def _clean(self, where: TopicPartition, partition_log: PartitionLog) -> None:
        try:
            compaction = partition_log.compaction(self._clock.now_ms())
            if compaction is None:
                return
            # Closed at once where it is left early, so that its half-made segment goes.
            with contextlib.closing(compaction.steps()) as steps:
                until = time.perf_counter() + _SLICE_S
                for work in steps:
                    if work is not None:
                        await asyncio.to_thread(work)
                    elif time.perf_counter() < until:
                        continue
                    else:
                        await asyncio.sleep(_PAUSE_S)
                    if self._topics.opened_log(where) is not partition_log:
                        return
                    until = time.perf_counter() + _SLICE_S
            partition_log.compacted(compaction)
        except Refused as refused:
            if refused.code is Code.CORRUPT_MESSAGE:
                self._uncleanable.add(partition_log)
            log.error("%s cannot be cleaned: %s", where, refused)
        except OSError as error:
            log.warning("%s cannot be cleaned now: %s", where, error)
        except Exception:
            # One log that cannot be cleaned must not keep the others from it.
            self._uncleanable.add(partition_log)
            log.exception("%s cannot be cleaned", where)
