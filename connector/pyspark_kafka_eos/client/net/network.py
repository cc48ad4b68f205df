"""The face of the connections to one cluster, for any thread: requests in, answers or this package's errors out.

Owns: the hand-over between the callers' threads and the loop's, and the translation of failures.
Does not know: topics, transactions, what a request means; how a connection works (`connection`, `opening`, `pool`).
Invariants:
- Callbacks run on the loop's thread and must not block.
- A connection is used, and closed, by the loop's thread alone.
- Every request ends: with an answer, or with an error that tells the broker, its address and the reason.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from kafka_core import runtime
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    InternalError,
    TokenUnavailable,
    UnsupportedVersion,
)
from kafka_core.protocol.messages import Message
from pyspark_kafka_eos.client.net import login, refusals
from pyspark_kafka_eos.client.net.first_contact import FirstContact
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.opening import Opener, Place
from pyspark_kafka_eos.client.net.pool import Node as Node
from pyspark_kafka_eos.client.net.pool import Pool
from pyspark_kafka_eos.client.wire.versions import Request, Versions
from pyspark_kafka_eos.model import ClientSettings

log = logging.getLogger(__name__)

Answer = Message | ExactlyOnceError
Done = Callable[[Answer], None]
Elsewhere = Callable[[Sequence[int]], Mapping[int, Answer]]
"""Numbers of requests that nobody has answered yet -> the answers that were got elsewhere, or the errors with which
they are given up. What comes for those later is dropped.
"""

MOST_UNANSWERED = 512
"""Requests of one `call_many` that are on their way at once. Half would let connections run dry; whether more would
help was not measured.
"""

_ON_THE_WAY_MS = 1.0
"""How long until a queued request is on its way: it is written when the loop's turn is over."""

_LOOP_ALIVE_S = 1.0
"""How often a waiting caller checks whether the loop still runs."""

_ENDS_WITHIN_S = 1.0
"""How long closing waits for the loop. It is always between two requests' bytes or answers, so half would do on an idle
machine; a loop that does not end within double is stuck, and its thread ends with the process.
"""

_CONNECT_TIMES = 2
"""How many request timeouts a caller waits beyond a request's own, which ends it in any case: for a loop that is busy
with others. With one, a machine that swaps would look like a loop that has ended.
"""


class Network:
    """A thread that drives the connections to one cluster; usable from any thread, closed once.

    OptionsError, before anything is opened, where a file that the options name cannot be used.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._asked = login.asked(settings.security)
        login.check(self._asked, settings.security)
        self._loop = Loop(settings.client_id)
        self._opener = Opener(self._loop, self._asked, settings)
        self._pool = Pool(self._loop, self._opener, settings)
        self._first = FirstContact(self._loop, self._pool, self._opener, self._asked)
        self._pool.bootstrap, self._pool.explain = self._first.again, self._first.explained
        self._closed = False
        self._loop.start()

    def bootstrap(self, timeout_ms: int) -> None:
        """Connect to a bootstrap server.

        At once: LoginRefused where one refuses the credentials; BrokerNotTrusted or OptionsError where every server
        fails for a reason that waiting cannot mend. After `timeout_ms`: the same where one server fails so, else
        BrokerUnavailable with each server's last reason.
        """

        async def make() -> None:
            await self._first.make(runtime.monotonic() + timeout_ms / 1000)
            self._pool.keep()

        try:
            self._wait_for(make())
        except BrokerUnavailable as error:
            raise type(error)(error.message, self._where()) from error

    def versions_of(self, node: Node, timeout_ms: int | None = None) -> Versions:
        """What a broker supports, by its connection, which is opened where there is none. Not from the loop's thread.

        BrokerUnavailable where it is not open within `timeout_ms` (the settings' request timeout where None).
        """
        allowed_s = (timeout_ms or self.settings.request_timeout_ms) / 1000
        found: list[Versions] = []

        async def ask() -> None:
            connection = self._pool.connection(node)
            await connection.ready(allowed_s)
            found.append(Versions(connection.versions, node))

        try:
            self._wait_for(ask())
        except ExactlyOnceError:
            raise
        except Exception as error:
            raise self._translate(error, node) from error
        return found[0]

    def known_versions(self) -> list[Versions]:
        """What the brokers support that this process is connected to, and the first one that it was. Asks nobody."""
        first = [Versions(self._first.versions)] if self._first.versions else []
        return first + [Versions(versions, node) for node, versions in self._pool.known_versions()]

    @property
    def features(self) -> dict[str, int]:
        """The cluster's finalised features, name to level, by the newest that a broker has told. Asks nobody."""
        return self._opener.features

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, empty where its brokers tell none."""
        return self._pool.known.cluster_id or ""

    def any_node(self, but: Collection[int] = ()) -> Node:
        """The least loaded broker, and one of `but` only where there is no other; BrokerUnavailable where none is known
        to be reachable, with the reason of each.
        """
        node = self._pool.least_loaded(but)
        if node is None:
            if self._pool.refusal is not None:
                raise self._pool.refusal
            known = self._pool.known
            reasons = known.reasons()
            raise BrokerUnavailable(
                f"no broker of the cluster can be reached right now{reasons and ': '}{reasons}",
                self._where(known.brokers.values()),
            )
        return node

    def brokers(self) -> list[int]:
        """The ids of all known brokers."""
        return sorted(self._pool.known.brokers)

    @property
    def connections(self) -> int:
        """How many connections to brokers are open."""
        return self._pool.open_connections

    def knows(self, node: Node) -> bool:
        """Whether the address of a node is known."""
        return self._pool.place_of(node) is not None

    def take_brokers(self, answer: Message) -> None:
        """Keep the brokers' addresses that an answer to Metadata names; from any thread. OptionsError where it is
        another cluster's, BrokerUnavailable where it has the client begin again.
        """
        self._pool.take(answer)

    def refresh_brokers(self) -> None:
        """Refresh the list of brokers. A failure is only logged: the request for the broker reports it."""
        try:
            self._wait_for(self._pool.refresh())
        except ExactlyOnceError as error:
            log.debug("broker list not refreshed: %s", error)

    def named(self, node: int, use: str) -> Node:
        """A dedicated connection to a broker whose address is known; the shared one where it is not."""
        return self._pool.dedicated(node, use) if self.knows(node) else node

    def dedicated(self, node: int, use: int | str, host: str, port: int) -> Node:
        """A dedicated connection to a broker, which no Produce or Fetch can delay; one for each use. The address is
        what an answer has named last.
        """
        self._pool.known.moved_to(node, host, port)
        return self._pool.dedicated(node, use)

    def on_loop(self, action: Callable[[], object]) -> None:
        """Run `action` soon on the loop's thread; BrokerUnavailable where the loop has ended."""
        try:
            self._loop.run_soon(action)
        except RuntimeError as error:
            raise BrokerUnavailable(f"the connections are closed or broken: {error}", self._where()) from error

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run `action` on the loop's thread after a delay. Call on the loop's thread."""
        self._loop.later(delay_ms / 1000, action)

    def send_on_loop(self, node: Node, request: Request, done: Done, timeout_ms: int | None = None) -> None:
        """Send from the loop's thread; `done` receives the answer or an error. After an error the request may
        have taken effect.

        A request that is built for its connection is built when that is open, in what is left of its time.
        """

        def answered(answer: Any) -> None:
            done(self._translate(answer, node) if isinstance(answer, Exception) else answer)

        deadline = runtime.monotonic() + (timeout_ms or self.settings.request_timeout_ms) / 1000
        try:
            connection = self._pool.connection(node)
        except Exception as error:  # noqa: BLE001 -- whatever it is, there is no connection
            done(self._translate(error, node))
            return
        connection.send(request, answered, deadline)

    def call_many(
        self,
        requests: Sequence[tuple[Node, Request]],
        timeout_ms: int | None = None,
        *,
        sent: Callable[[], None] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> list[Answer]:
        """Send the requests and wait for every answer, in the order given. Not from the loop's thread.

        At most `MOST_UNANSWERED` are on their way at once. Bounded by one request timeout (`timeout_ms`, else the
        settings') and two more for connecting, from the last answer on. `sent` is called on the loop's thread a moment
        after all requests were queued: they are in flight, most likely the last ones unanswered. `elsewhere` is called
        on the caller's thread for each second in which an answer is missing.
        """
        asked = _Asked(self, requests, timeout_ms, sent)
        if requests:
            self.on_loop(asked.send)
            # Every request has its own timeout, so an answer or error always arrives unless the loop is gone.
            allowed_ms = answers_within_ms(self.settings, timeout_ms)
            waiting_for, deadline = asked.left, runtime.monotonic() + allowed_ms / 1000
            while not asked.finished.wait(_LOOP_ALIVE_S):
                if self._closed:
                    raise BrokerUnavailable("the connections were closed while requests were unanswered", self._where())
                if asked.left < waiting_for:
                    waiting_for, deadline = asked.left, runtime.monotonic() + allowed_ms / 1000
                for index, answer in (elsewhere(asked.missing()) if elsewhere is not None else {}).items():
                    self.on_loop(functools.partial(asked.take, index, answer))
                if runtime.monotonic() >= deadline:
                    raise BrokerUnavailable(
                        f"requests neither got an answer nor timed out within {allowed_ms:.0f} ms",
                        self._where(),
                    )
        return asked.answers

    def close(self) -> None:
        """Close every connection and end the thread."""
        if not self._closed:
            self._closed = True
            self._loop.run_if_open(self._pool.close)
            self._loop.stop(_ENDS_WITHIN_S)

    def _wait_for(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine, which is bounded, on the loop's thread and wait for its end; its error, BrokerUnavailable
        where the loop ends before it.
        """
        over = runtime.event()
        ended: list[Exception | None] = []
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                await work
                ended.append(None)
            except Exception as error:  # noqa: BLE001 -- it is the caller's
                ended.append(error)
            finally:
                over.set()

        def begin() -> None:
            task = self._loop.task(run())
            # One that is cancelled before its first step has not touched the work.
            task.add_done_callback(lambda _: work.close())
            tasks.append(task)

        def give_up() -> None:
            for each in tasks:
                each.cancel()

        try:
            self.on_loop(begin)
            while not over.wait(_LOOP_ALIVE_S) and not self._loop.ended:
                pass
        finally:
            if not ended:
                # An interrupt may come while the loop has the work in its hands: nobody else may end it then.
                self._loop.run_if_open(give_up)
            if self._loop.ended:
                work.close()
        if not ended:
            raise BrokerUnavailable("the connections were closed", self._where())
        if ended[0] is not None:
            raise ended[0]

    def _where(self, places: Iterable[Place] = ()) -> dict[str, str | int]:
        """For programs; `advertised` where all of these places are known by a broker's word alone."""
        where: dict[str, str | int] = {"bootstrap_servers": ",".join(self.settings.bootstrap_servers)}
        told = list(places)
        if told and all(map(self._pool.known.only_advertised, told)):
            where["advertised"] = ", ".join(map(str, told))
        return where

    def _translate(self, error: Exception, node: Node) -> ExactlyOnceError:
        """The error of one request. A name without an address and a file that cannot be read are no refusals here:
        brokers and files come back while they are replaced.
        """
        if isinstance(error, (UnsupportedVersion, InternalError)):
            return error
        place = self._pool.place_of(node)
        refusal = refusals.refusal_of(error, "the broker" if place is None else str(place), self._asked)
        if isinstance(refusal, AuthorizationFailed):
            return refusal
        unavailable = TokenUnavailable if isinstance(refusals.root_of(error), TokenUnavailable) else BrokerUnavailable
        reason = refusals.reason_of(error if refusal is None else refusal)
        if place is None:
            return unavailable(f"no answer from broker {node}: {reason}", self._where())
        reason = self._pool.known.explanation_at(place) or reason
        if self._pool.known.only_advertised(place):
            reason += (
                "; only the broker's own word has this address, and it was never reached: see its advertised.listeners"
            )
        return unavailable(f"no answer from broker {node} ({place}): {reason}", self._where([place]))


class _Asked:
    """The requests of one `call_many` and what came back. All but `finished` belongs to the loop's thread.

    It must not refer to itself, as functions that name each other do: an answer of megabytes would stay in memory until
    Python's collector looks for such circles, which in a process of many objects is once in thousands of batches.
    """

    def __init__(
        self,
        network: Network,
        requests: Sequence[tuple[Node, Request]],
        timeout_ms: int | None,
        sent: Callable[[], None] | None,
    ) -> None:
        self.answers: list[Answer] = [None] * len(requests)
        self.left = len(requests)
        self.finished = runtime.event()
        self._network, self._requests, self._timeout_ms, self._sent = network, requests, timeout_ms, sent
        self._following, self._sending = 0, False
        self._on_way: set[int] = set()

    def send(self) -> None:
        """Send as many as may be on their way."""
        total = len(self._requests)
        # A request that fails at once comes back through `_take` while this loop is at it.
        if self._sending or self._following == total:
            return
        self._sending = True
        while self._following < total and len(self._on_way) < MOST_UNANSWERED:
            index, (node, request) = self._following, self._requests[self._following]
            self._following += 1
            if self.answers[index] is None:
                self._on_way.add(index)
                self._network.send_on_loop(node, request, functools.partial(self.take, index), self._timeout_ms)
        self._sending = False
        if self._sent is not None and self._following == total:
            self._network.later(_ON_THE_WAY_MS, self._sent)

    def missing(self) -> list[int]:
        """The numbers of the requests without an answer. From any thread."""
        return [index for index, answer in enumerate(self.answers) if answer is None]

    def take(self, index: int, answer: Answer) -> None:
        """Keep the first answer to a request, or the error with which it is given up."""
        if self.answers[index] is not None:
            return
        self._on_way.discard(index)
        self.answers[index] = answer
        self.left -= 1
        if self.left == 0:
            self.finished.set()
        else:
            self.send()


def answers_within_ms(settings: ClientSettings, timeout_ms: int | None = None) -> float:
    """The longest time (ms) from handing over a request to its result, unless the loop has lost it."""
    request_ms = settings.request_timeout_ms
    return (timeout_ms or request_ms) + _CONNECT_TIMES * request_ms + _LOOP_ALIVE_S * 1000
