"""Hands out producer ids from claimed blocks, and claims the next block before the current one is used up.

Owns: the block in use, the one after it, and the thread that claims them.
Does not know: where blocks come from, Kafka's protocol.
Invariants:
- Ids only increase.
- Only a block whose claim succeeded is used.
- One claim runs at a time.
- The lock is never held while the store works, so `next_id` does not wait for the store.
Sources: the idempotent producer's section 5.1.2; Kafka's RPCProducerIdManager for fetching ahead.
"""

from __future__ import annotations

import logging
from typing import Protocol

from embedded_kafka.producer_ids.block import Block
from kafka_core import runtime
from kafka_core.errors import BlocksUnavailable, ExactlyOnceError, InternalError, RetriableError

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 50
"""As in Kafka. A store that lost one race is available at once."""
LONGEST_BACKOFF_MS = 1_000
"""The longest time until a store that is back is noticed; half only polls a dead store more often."""

# The store ends its claim when it is closed. Longer: a stuck disk or network delays the shutdown.
_CLOSED_WITHIN_S = 2.0


class BlockStore(Protocol):
    """Where blocks are claimed."""

    def claim(self) -> Block:
        """A block that no other broker had or will have; may wait, is called by one thread.

        Raises BlocksUnavailable when a retry is allowed (the store abandons a block whose claim is in doubt).
        Any other error of the tree is final.
        """
        ...

    def close(self) -> None:
        """Ends a running claim and releases everything, within a few seconds; from any thread."""
        ...


class ProducerIds:
    """The broker's producer ids. `start()` before the first use; `close()` discards the rest of a block."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        self._changed = runtime.condition()
        self._current: Block | None = None
        self._next: Block | None = None
        self._position = 0
        self._fatal: ExactlyOnceError | None = None
        self._failure: RetriableError | None = None
        self._closed = False
        self._thread = runtime.thread(self._keep_ahead, "producer-ids")

    def start(self) -> None:
        """Begins to claim the first block, and returns without waiting for it."""
        self._thread.start()

    def next_id(self) -> int:
        """An id that was never handed out before, larger than all before it; never waits.

        Raises BlocksUnavailable while there is none (claiming continues by itself); a final error every time.
        """
        with self._changed:
            self._raise_if_over()
            if self._current is None or self._position > self._current.end:
                if self._next is None:
                    raise self._nothing_at_hand()
                self._current, self._next = self._next, None
                self._position = self._current.start
            given = self._position
            self._position += 1
            if self._next_is_wanted():
                self._changed.notify_all()
            return given

    def wait_until_ready(self, timeout_ms: int) -> bool:
        """Blocks until `next_id` has an id to give; False when the time is up. Not for the event loop."""
        with self._changed:
            over = self._changed.wait_for(
                lambda: self._fatal is not None or self._closed or self._has_ids(), timeout_ms / 1000
            )
            self._raise_if_over()
            return over

    def close(self) -> None:
        """Ends claiming, and closes the store. Ids not handed out are lost: no producer will get them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._store.close()
        if self._thread.ident is not None:
            self._thread.join(_CLOSED_WITHIN_S)

    def _has_ids(self) -> bool:
        return self._next is not None or (self._current is not None and self._position <= self._current.end)

    def _next_is_wanted(self) -> bool:
        if self._next is not None:
            return False
        if self._current is None:
            return True
        # At 90 % as in Kafka: what is left lasts until the store has answered.
        used = self._position - self._current.start
        return used * 10 >= self._current.size * 9

    def _nothing_at_hand(self) -> BlocksUnavailable:
        if self._failure is None:
            return BlocksUnavailable("the next block of producer ids is being fetched; retry")
        return BlocksUnavailable(
            f"no block of producer ids could be claimed yet: {self._failure.message}", self._failure.facts
        )

    def _raise_if_over(self) -> None:
        if self._fatal is not None:
            # A new instance each time: one that is raised repeatedly would collect all its callers' traces.
            raise type(self._fatal)(self._fatal.message, self._fatal.facts) from self._fatal
        if self._closed:
            raise BlocksUnavailable("producer ids are no longer handed out: the broker is closing")

    # ---- the thread

    def _keep_ahead(self) -> None:
        backoff_ms = FIRST_BACKOFF_MS
        while self._wait_until_wanted():
            try:
                block = self._store.claim()
            except RetriableError as error:
                if not self._wait_after(error, backoff_ms):
                    return
                backoff_ms = min(2 * backoff_ms, LONGEST_BACKOFF_MS)
            except ExactlyOnceError as error:
                self._end(error)
                return
            except Exception as error:  # noqa: BLE001 -- a bug that only ended this thread would look like a dead store
                self._end(InternalError(f"claiming a block of producer ids failed unexpectedly: {error!r}"))
                return
            else:
                backoff_ms = FIRST_BACKOFF_MS
                if not self._accept(block):
                    return

    def _wait_until_wanted(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next_is_wanted())
            return not self._closed

    def _wait_after(self, error: RetriableError, backoff_ms: int) -> bool:
        with self._changed:
            if self._failure is None and not self._closed:
                log.warning("no block of producer ids: %s", error)
            self._failure = error
            return not self._changed.wait_for(lambda: self._closed, backoff_ms / 1000)

    def _accept(self, block: Block) -> bool:
        with self._changed:
            if self._current is not None and block.start <= self._current.end:
                error = InternalError(
                    "the store of producer ids went back to an earlier block; no id of it was handed out",
                    {"block_start": block.start, "last_block_end": self._current.end},
                )
            else:
                if self._failure is not None:
                    log.info("blocks of producer ids are claimed again: %d to %d", block.start, block.end)
                self._failure, self._next = None, block
                self._changed.notify_all()
                return True
        self._end(error)
        return False

    def _end(self, error: ExactlyOnceError) -> None:
        log.critical("no more producer ids are handed out: %s", error)
        with self._changed:
            self._fatal = error
            self._changed.notify_all()
