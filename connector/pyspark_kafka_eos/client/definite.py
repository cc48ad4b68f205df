"""The loop that repeats a request until its answer is definite, and what counts as not definite yet.

Owns: the budget of time, the pauses, which codes are worth another try.
Does not know: who is asked, what an answer means.
Invariants:
- A lost connection or an unreachable broker proves nothing, so the request is retried.
- Any other error ends the retries at once.
- At the deadline `late` receives the last reason; it raises, or returns a value in place of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol.error_codes import Action, action_for, name_of

T = TypeVar("T")

RETRY_BACKOFF_MS = 20.0
"""Pause between tries of a coordinator request. CONCURRENT_TRANSACTIONS lasts a few milliseconds while markers are
written; Java's 100 ms would be most of a small commit, 2 ms would load the broker for nothing."""

ELECTION_BACKOFF_MS = 50.0
"""Pause while waiting for a new leader or controller: an election takes longer than a marker. Half would only
load a busy broker, double would delay every read behind an election."""

NEW_TOPIC_MS = 2_000
"""How long to retry for a topic that no broker has: a new topic reaches every broker within a second. Half
would reject it on a busy cluster; double only delays the error for a misspelt name."""


LEAST_REQUEST_MS = 1_000
"""The least time that one request gets, also at the end of a budget: a request that times out takes its connection with
it, and what others have on their way there. With half, a busy broker loses connections; with double, a question ends
so much later than asked.
"""


class Budget:
    """The time of one question, from now on. Each part of it gets what is left: the search for a coordinator, a
    request, the look at another broker. Steady clock; `total_ms` as it was at first, for messages.
    """

    def __init__(self, total_ms: float) -> None:
        self.total_ms = total_ms
        self._until_s = runtime.monotonic() + total_ms / 1000

    @property
    def left_ms(self) -> float:
        """What is left, 0 where nothing is."""
        return max(0.0, (self._until_s - runtime.monotonic()) * 1000)

    def request_ms(self, most_ms: int) -> int:
        """How long one request may take: `most_ms` (kafka.request.timeout.ms), or what is left."""
        return int(min(most_ms, max(self.left_ms, LEAST_REQUEST_MS)))


@dataclass(frozen=True)
class Again:
    """A result that is not definite: the reason, and whether another broker must be found first (`moved`).
    `error`: the error of the broker or the lost connection, None where an answer was merely not definite."""

    reason: str
    moved: bool = False
    error: ExactlyOnceError | None = None

    def __str__(self) -> str:
        return self.reason

    def as_error(self) -> ExactlyOnceError:
        """The error to raise at the deadline."""
        return self.error or BrokerUnavailable(self.reason)


def until_definite(
    attempt: Callable[[], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    pause: Callable[[float], None],
    pause_ms: float = RETRY_BACKOFF_MS,
) -> T:
    """The first result of `attempt` that is not `Again`, or that of `late` once `deadline_ms` are over.

    BrokerUnavailable counts as `Again`. There is at least one attempt, and none follows one that ends after
    the deadline.
    """
    budget = Budget(deadline_ms)
    while True:
        try:
            found = attempt()
            if not isinstance(found, Again):
                return found
            last = found
        except BrokerUnavailable as error:
            last = Again(str(error), error=error)
        if budget.left_ms <= 0:
            return late(last)
        pause(pause_ms)


def again_or_refuse(
    api_key: int, code: int, refuse: Callable[[Action, int], ExactlyOnceError], about: object = ""
) -> Again | None:
    """None for a good code, `Again` for a code that the table marks as retriable (`about` goes into the
    reason). Raises the error from `refuse` for any other code."""
    action = action_for(api_key, code)
    if action is Action.DONE:
        return None
    if action in (Action.RETRY, Action.REDISCOVER):
        reason = f"{name_of(code)} for {about}" if about else name_of(code)
        return Again(reason, moved=action is Action.REDISCOVER)
    raise refuse(action, code)
