"""One connection to a broker: requests out in order, each with a deadline; answers to whoever waits for them.

Owns: which requests wait to be sent and which are unanswered, until when; the versions that this broker offers; pauses
that the broker asks for; when a connection that was still is trusted again.
Does not know: how it was opened and logged in (`opening`), which connection serves which broker (`pool`), the form of
an answer (`wire`).
Invariants:
- Each request ends once: with its answer, or with the reason why none comes. Whether a request that was sent has had an
  effect is then not known; one that was not sent goes to the next connection.
- A request is built when it is sent, in a version that this broker offers.
- What is no answer to the oldest request ends the connection, and so does an answer that comes too late.

Everything runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, InternalError
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.net.failures import ConnectionClosed, ConnectionFailed, NotKafka, TimedOut, of_system
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.transport import PlainTransport
from pyspark_kafka_eos.client.wire.answer_frames import BadAnswer
from pyspark_kafka_eos.client.wire.conversation import Conversation, Piece
from pyspark_kafka_eos.client.wire.versions import Request, Versions, built

log = logging.getLogger(__name__)

Done = Callable[[Any], None]
"""Gets the answer, or the exception that stands for it."""

_STILL_S = 60.0
"""After so long without a byte a connection is asked for the broker's versions before it gets anything else: a box on
the way may have forgotten it and drop all packets. Half asks more often for nothing; boxes forget after 240 s and more.
"""

_TRIED_FIRST_S = 2.0
"""How long that first question may take. Half is too short for a broker that collects its garbage; with double a
request waits that long for a new connection.
"""

_THROTTLED_AT_MOST_MS = 60_000
"""The longest pause that a broker may ask for (KIP-219). Kafka's quotas are kept over windows of 11 s. With half, a
broker with longer windows would be asked too early; without a limit one wrong number shuts a connection for 24 days.
"""

_TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS alert. As the length of an answer they would be more than 350 MB."""


class State(Enum):
    """What a connection is doing."""

    OPENING = auto()
    """Versions and login: only the opener's own requests are sent."""
    READY = auto()
    PAUSED = auto()
    """Ready but for a pause: a login is renewed, the broker has asked for it, or the first question is unanswered."""
    CLOSED = auto()


class _Asked:
    """One request: what it is, who waits, until when (monotonic seconds), since when it is on its way."""

    __slots__ = ("api_key", "deadline", "done", "request", "sent_at")

    def __init__(self, request: Request, done: Done, deadline: float) -> None:
        self.request, self.done, self.deadline = request, done, deadline
        self.api_key = -1
        self.sent_at = 0.0


class BrokerConnection(asyncio.BufferedProtocol):
    """`node`: whose it is; `name`: what messages call it. `ended`: called once with this connection, when it has
    ended.
    """

    def __init__(
        self, loop: Loop, node: int | str, name: str, client_id: str, ended: Callable[[BrokerConnection], None]
    ) -> None:
        self.node, self.name = node, name
        self.state = State.OPENING
        self.was_made = self.was_ready = False
        """Whether there was a stream to the other side; and whether requests could be sent."""
        self.step = "the connection"
        """Of its opening, in words."""
        self.failure: Exception | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        """(lowest, highest) version of each API that this broker offers; empty until it was asked."""
        self.heard_at = runtime.monotonic()
        self.renewal: asyncio.TimerHandle | None = None
        self.opening: asyncio.Task[None] | None = None
        """What opens it; ends with it."""
        self.closed_here = False
        """Whether this side has ended it, without a failure."""
        self._loop, self._ended = loop, ended
        self._transport: asyncio.Transport | None = None
        self._talk = Conversation(client_id)
        self._heard = False
        self._queue: deque[_Asked] = deque()
        self._out: list[Piece] = []
        self._pauses = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._waiting_for_ready: list[asyncio.Future[None]] = []
        self._replaced_by: Callable[[], BrokerConnection] | None = None
        self._closes_drained = False

    # ---- what is known of it

    @property
    def load(self) -> int:
        """Requests that are unanswered or not sent yet."""
        return len(self._talk.unanswered) + len(self._queue)

    @property
    def connected(self) -> bool:
        """Whether requests can be sent, now or after a pause."""
        return self.state in (State.READY, State.PAUSED)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.failure is not None

    def silent_s(self, now: float) -> float:
        """For how long the oldest unanswered request has been on its way."""
        unanswered = self._talk.unanswered
        return max(0.0, now - unanswered[0].asked_for.sent_at) if unanswered else 0.0

    # ---- requests

    def send(self, request: Request, done: Done, deadline: float) -> None:
        """Send it as soon as the connection is ready. `done` gets the answer; or the failure of the connection,
        TimedOut or UnsupportedVersion.
        """
        if self.failure is not None:
            self._tell(done, self.failure)
            return
        asked = _Asked(request, done, deadline)
        if self.state is State.READY:
            if self._talk.unanswered or runtime.monotonic() - self.heard_at < _STILL_S:
                self._send_now(asked)
                return
            self._try_first()
        self._queue.append(asked)
        self._watch(deadline)

    def ask_now(self, request: m.Message, deadline: float) -> asyncio.Future[Any]:
        """Send a request of the opening or of a login at once; the future has its answer, or why none came."""
        future: asyncio.Future[Any] = self._loop.asyncio.create_future()

        def settle(answer: Any) -> None:
            if future.done():
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        if self.failure is not None:
            settle(self.failure)
        else:
            self._send_now(_Asked(request, settle, deadline))
        return future

    def _send_now(self, asked: _Asked) -> None:
        try:
            request = built(asked.request, Versions(self.versions, self.node))
            pieces = self._talk.encode(request, asked)
        except ExactlyOnceError as error:
            self._tell(asked.done, error)
            return
        except Exception as error:  # noqa: BLE001 -- whatever the library's encoder stumbles over
            problem = f"a request could not be encoded, and was not sent: {type(error).__name__}: {error}"
            self._tell(asked.done, InternalError(problem))
            return
        asked.api_key = request.API_KEY
        asked.sent_at = runtime.monotonic()
        if not self._out:
            self._loop.at_end_of_turn(self._flush)
        self._out += pieces
        self._watch(asked.deadline)

    def _flush(self) -> None:
        pieces, self._out = self._out, []
        if pieces and self._transport is not None:
            self._transport.writelines(pieces)

    # ---- deadlines: one timer for all requests, at the earliest that was known when it was set

    def _watch(self, deadline: float) -> None:
        if self._timer is None or deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.later(max(0.0, deadline - runtime.monotonic()), self._look)

    def _look(self) -> None:
        self._timer = None
        now = runtime.monotonic()
        on_their_way = [each.asked_for for each in self._talk.unanswered]
        late = next((each for each in on_their_way if each.deadline <= now), None)
        if late is not None:
            waited_ms = round((now - late.sent_at) * 1000)
            self.close(TimedOut(f"no answer to {m.api_name(late.api_key)} within {waited_ms} ms"))
            return
        waiting = list(self._queue)
        self._queue = deque(each for each in waiting if each.deadline > now)
        deadlines = [each.deadline for each in (*on_their_way, *self._queue)]
        if deadlines:
            self._watch(min(deadlines))
        for each in waiting:
            if each.deadline <= now:
                unready = f"the connection was not ready in time ({self.state.name.lower()}); nothing was sent"
                self._tell(each.done, TimedOut(unready))

    # ---- pauses

    def opened(self) -> None:
        """Versions and login are done: send what waits."""
        self.state, self.was_ready = State.READY, True
        self._tell_ready()
        self._send_waiting()

    def pause(self) -> None:
        """Send nothing but the requests of `ask_now` until `go_on`, once for each pause."""
        self._pauses += 1
        if self.state is State.READY:
            self.state = State.PAUSED

    def go_on(self) -> None:
        """One pause is over."""
        self._pauses -= 1
        if self._pauses == 0 and self.state is State.PAUSED:
            self.state = State.READY
            self._loop.turn(self._send_waiting)

    async def ready(self, allowed_s: float) -> None:
        """Wait until it serves requests; its failure, or TimedOut after so long."""
        if self.state is State.OPENING:
            future = self._loop.asyncio.create_future()
            self._waiting_for_ready.append(future)
            try:
                await asyncio.wait_for(future, allowed_s)
            except (asyncio.TimeoutError, TimeoutError):
                raise TimedOut(f"its connection was not open within {round(allowed_s * 1000)} ms") from None
        if self.failure is not None:
            raise self.failure

    def _tell_ready(self) -> None:
        waiting, self._waiting_for_ready = self._waiting_for_ready, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def drained(self) -> None:
        """Wait until no request is unanswered."""
        if self._talk.unanswered:
            self._drained = self._loop.asyncio.create_future()
            await self._drained

    def _send_waiting(self) -> None:
        while self._queue and self.state is State.READY:
            self._send_now(self._queue.popleft())

    def _throttle(self, answer: Any) -> None:
        asked_ms = getattr(answer, "throttle_time_ms", 0)
        if asked_ms and asked_ms > 0 and self.connected:
            pause_ms = min(asked_ms, _THROTTLED_AT_MOST_MS)
            log.debug("%s asks for a pause of %d ms (quota)", self.name, pause_ms)
            self.pause()
            self._loop.later(pause_ms / 1000, self.go_on)

    # ---- a connection that was still

    def replaced_by(self, another: Callable[[], BrokerConnection]) -> None:
        """What was not sent yet goes to `another()` where this connection is lost."""
        self._replaced_by = another

    def _try_first(self) -> None:
        self.pause()
        until = runtime.monotonic() + _TRIED_FIRST_S
        request = m.ApiVersionsRequest(version=0)

        def answered(answer: Any) -> None:
            if not isinstance(answer, Exception):
                self.go_on()

        self._send_now(_Asked(request, answered, until))

    def _hand_over(self) -> None:
        """What was never sent goes to a new connection."""
        if self._replaced_by is None or not self._queue:
            return
        try:
            another = self._replaced_by()
        except Exception as error:  # noqa: BLE001 -- the refusal of the new one is theirs
            log.debug("%s: no new connection for what waits: %r", self.name, error)
            return
        waiting, self._queue = self._queue, deque()
        for each in waiting:
            another.send(each.request, each.done, each.deadline)

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls it first."""
        assert isinstance(transport, asyncio.Transport)
        self.was_made = True
        if self.failure is None:
            self._transport = transport
        else:
            transport.abort()

    @property
    def transport(self) -> asyncio.Transport | None:
        """None before the connection is made and after it has ended."""
        return self._transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._talk.room()

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have arrived there."""
        self._loop.turn(self._arrived, nbytes)

    def _arrived(self, count: int) -> None:
        if self.failure is not None:
            return
        if not self._heard and (stranger := _stranger(bytes(self._talk.room()[:4]), count)):
            self.close(NotKafka(stranger))
            return
        self._heard = True
        self.heard_at = runtime.monotonic()
        try:
            for unanswered, answer in self._talk.took(count):
                self._throttle(answer)
                self._tell(unanswered.asked_for.done, answer)
                if self.over:
                    return
        except BadAnswer as error:
            self.close(error)
            return
        if self._drained is not None and not self._talk.unanswered:
            drained, self._drained = self._drained, None
            drained.set_result(None)
        if self._closes_drained:
            self._close_if_drained()

    def _tell(self, done: Done, answer: Any) -> None:
        try:
            done(answer)
        except Exception:
            # The connection serves others, too.
            log.exception("a defect of this package: the receiver of an answer failed")

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio calls it last."""
        self._transport = None
        if isinstance(exc, OSError) and not isinstance(exc, ssl.SSLError):
            failure: Exception = ConnectionClosed(f"the connection was lost: {of_system(exc)}")
            failure.__cause__ = exc
        elif exc is not None:
            failure = ConnectionFailed(str(exc))
            failure.__cause__ = exc
        else:
            failure = ConnectionClosed("the broker closed the connection")
        self._loop.turn(self._finish_with, failure)

    # ---- the end

    def close(self, failure: Exception | None = None) -> None:
        """End it, and every request on it with `failure`; without one nothing on it is tried elsewhere."""
        if failure is None:
            self.closed_here, self._replaced_by = True, None
        self._loop.turn(self._finish_with, failure or ConnectionClosed("the connection was closed here"))

    def close_when_drained(self) -> None:
        """End it once nothing on it is unanswered; what was not sent yet goes to the next connection."""
        self._hand_over()
        self._closes_drained = True
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._closes_drained and not self.load:
            self.close()

    def _finish_with(self, failure: Exception) -> None:
        if self.failure is not None:
            return
        self.state, self.failure = State.CLOSED, failure
        for timer in (self._timer, self.renewal):
            if timer is not None:
                timer.cancel()
        if self.opening is not None and self.opening is not asyncio.current_task(self._loop.asyncio):
            self.opening.cancel()
        if self._transport is not None:
            # TLS tells the other side, whose word on it nobody waits for.
            self._transport.close()
            if not self.closed_here or not isinstance(self._transport, PlainTransport):
                self._transport.abort()
        self._tell_ready()
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(failure)
        self._ended(self)
        lost = [each.asked_for for each in self._talk.unanswered]
        self._talk.unanswered.clear()
        if self.was_ready:
            self._hand_over()
        lost += self._queue
        self._queue.clear()
        for asked in lost:
            self._tell(asked.done, failure)


def _stranger(head: bytes, count: int) -> str | None:
    if count < len(head):
        head = head[:count]
    if head.startswith(_TLS_ALERT):
        return "TLS"
    return "HTTP" if head == b"HTTP" else None
