"""The network loop of one process: connections, TLS, SASL and back-off, as kafka-python's `kafka.net` does them.

Owns: the loop's thread and the translation of the library's failures into this package's errors.
Does not know: topics, transactions, what a request means.
Invariants:
- Only `pyspark_kafka_eos.client` imports `kafka.net`.
- Callbacks run on the loop's thread and must not block.
- A connection is used, and closed, by the loop's thread alone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kafka_core import runtime
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    TokenUnavailable,
    UnsupportedVersion,
)
from kafka_core.protocol.messages import FetchRequest, Message
from pyspark_kafka_eos.client.net import login, refusals
from pyspark_kafka_eos.client.net.fast_socket import receive_large
from pyspark_kafka_eos.client.net.library_logs import keep_secrets_out
from pyspark_kafka_eos.client.net.loop import open_loop
from pyspark_kafka_eos.client.net.manager import Manager
from pyspark_kafka_eos.client.wire.produce import SingleBatchProduce
from pyspark_kafka_eos.client.wire.versions import Request, Versions, built
from pyspark_kafka_eos.model import ClientSettings

Node = int | str
"""A broker's id, or the name of a dedicated connection to one (`Network.dedicated`)."""

Answer = Message | ExactlyOnceError
Done = Callable[[Answer], None]
Elsewhere = Callable[[Sequence[int]], Mapping[int, Answer]]
"""Numbers of requests that nobody has answered yet -> the answers that were got elsewhere, or the errors with which
they are given up. What comes for those later is dropped.
"""

_RECEIVE_MAX_BYTES = 128 * 1024 * 1024
"""Largest answer accepted. Brokers send one batch whatever fetch.max.bytes is, and topics may allow tens of
MB. Half rejects such topics; double only matters for memory if a broker sends a wrong length."""

_QUEUE_PER_CONNECTION = 10_000
"""The library fails a send past its own in-flight limit instead of queueing it. The limit of 5 that idempotence needs
applies to Produce alone, and the producer's shell enforces it; every other request may queue."""

MOST_UNANSWERED = 512
"""Requests of one `call_many` that are on their way at once. Half would let connections run dry. The bound is from the
time when the library searched all timers at each answer (10,000 EndTxn at once took 4.8 s); since `loop` does not,
whether more would help was not measured.
"""

_ON_THE_WAY_MS = 1.0
"""How long until a queued request is on its way: the loop's next round writes it to the socket."""

_LOOP_ALIVE_S = 1.0
"""How often a waiting caller checks whether the loop still runs."""

_ENDS_WITHIN_MS = 1_000
"""How long closing waits for the loop. It is always between two requests' bytes or answers, so half would do on an idle
machine; a loop that does not end within double is stuck, and its thread ends with the process.
"""

_CONNECT_TIMES = 2
"""How many request timeouts a connection may take before a request's own timeout begins: one to connect, one
for versions and credentials. With fewer, a slow handshake would look like a loop that has ended."""

# The library logs every lost connection as an error; this package decides which of them matter. Handlers that
# the user configures still receive these records.
logging.getLogger("kafka").addHandler(logging.NullHandler())
keep_secrets_out()


class Network:
    """A thread that drives the connections to one cluster; usable from any thread, closed once.

    OptionsError, before anything is opened, where a file that the options name cannot be used.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        configs: dict[str, Any] = {
            "bootstrap_servers": list(settings.bootstrap_servers),
            "client_id": settings.client_id,
            "client_software_name": "pyspark-kafka-eos",
            "request_timeout_ms": settings.request_timeout_ms,
            "receive_message_max_bytes": _RECEIVE_MAX_BYTES,
            "max_in_flight_requests_per_connection": _QUEUE_PER_CONNECTION,
            "metadata_max_age_ms": settings.metadata_max_age_ms,
            # The library's default, half a minute of back-off, would far outlast a coordinator's move.
            "reconnect_backoff_max_ms": 1_000,
            **login.library_settings(settings.security),
        }
        self._asked = login.asked(settings.security)
        login.check(self._asked, settings.security)
        self._selector = open_loop(settings.client_id)
        self._manager = Manager(self._selector, self._asked, settings, **configs)
        self._selector.start()
        self._dedicated: dict[tuple[int, int | str], tuple[tuple[str, int], Node]] = {}
        self._closed = False

    def bootstrap(self, timeout_ms: int) -> None:
        """Connect to a bootstrap server.

        At once: LoginRefused where one refuses the credentials; BrokerNotTrusted or OptionsError where every server
        fails for a reason that waiting cannot mend. After `timeout_ms`: the same where one server fails so, else
        BrokerUnavailable with each server's last reason.
        """
        try:
            self._manager.bootstrap(timeout_ms=timeout_ms)
        except BrokerUnavailable as error:
            raise type(error)(error.message, self._where()) from error
        except ExactlyOnceError:
            raise
        except Exception as error:
            raise self._translate(error, "bootstrap") from error

    def versions_of(self, node: Node, timeout_ms: int | None = None) -> Versions:
        """What a broker supports, by its connection, which is opened where there is none. Not from the loop's thread.

        BrokerUnavailable where it is not open within `timeout_ms` (the settings' request timeout where None).
        """
        allowed_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        found: list[Versions | ExactlyOnceError] = []
        ready = runtime.event()

        def take(answer: Versions | ExactlyOnceError) -> None:
            found.append(answer)
            ready.set()

        def opened(connection: Any) -> None:
            take(_versions(connection, node))

        self.on_loop(lambda: self._when_open(node, opened, take, allowed_ms))
        if not ready.wait((allowed_ms + _LOOP_ALIVE_S * 1000) / 1000):
            raise BrokerUnavailable(f"broker {node} did not say what it supports within {allowed_ms} ms", self._where())
        if isinstance(found[0], ExactlyOnceError):
            raise found[0]
        return found[0]

    def known_versions(self) -> list[Versions]:
        """What the brokers support that this process is connected to, and the first one that it was. Asks nobody."""
        first = self._manager.broker_version_data
        known = [] if first is None else [Versions(first.api_versions)]
        # A copy: the loop's thread adds and removes connections.
        open_now = [each for each in list(self._manager._conns.values()) if each.connected]
        return known + [_versions(each, each.node_id) for each in open_now]

    def any_node(self, but: Collection[int] = ()) -> Node:
        """The least loaded broker, and one of `but` only where there is no other; BrokerUnavailable where none is known
        to be reachable.
        """
        node = self._manager.least_loaded_node(but)
        if node is None:
            raise BrokerUnavailable("no broker of the cluster can be reached right now", self._where())
        return node  # type: ignore[no-any-return]

    def brokers(self) -> list[int]:
        """The ids of all known brokers."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    @property
    def connections(self) -> int:
        """How many connections to brokers are open."""
        # A copy: the loop's thread adds and removes connections.
        return sum(each.connected for each in list(self._manager._conns.values()))

    def knows(self, node: Node) -> bool:
        """Whether the address of a node is known."""
        return self._manager.cluster.broker_metadata(node) is not None

    def refresh_brokers(self) -> None:
        """Refresh the list of brokers. A failure is only logged: the request for the broker reports it."""
        try:
            self._manager.run(self._manager.cluster.refresh_metadata)
        except Exception as error:  # noqa: BLE001 -- the library's failures share no base class
            logging.getLogger(__name__).debug("broker list not refreshed: %r", error)

    def named(self, node: int, use: str) -> Node:
        """A dedicated connection to a broker whose address is known; the shared one where it is not."""
        known = self._manager.cluster.broker_metadata(node)
        return node if known is None else self.dedicated(node, use, known.host, known.port)

    def dedicated(self, node: int, use: int | str, host: str, port: int) -> Node:
        """A dedicated connection to a broker, which no Produce or Fetch can delay; one for each use."""
        place, name = self._dedicated.get((node, use), (None, node))
        if place != (host, port):
            address = SimpleNamespace(error_code=0, error_message=None, node_id=f"{node}.{use}", host=host, port=port)
            name = self._manager.cluster.add_coordinator(address, 1, f"{node}.{use}")
            # The library makes an address anew for each of ten thousand ids, and never drops one.
            self._dedicated[node, use] = (host, port), name
        return name

    def on_loop(self, action: Callable[[], None]) -> None:
        """Run `action` soon on the loop's thread; BrokerUnavailable where the loop has ended."""
        try:
            self._selector.call_soon_threadsafe(action)
        except Exception as error:  # the library raises whatever ended the loop
            raise BrokerUnavailable(
                f"the connections are closed or broken: {type(error).__name__}: {error}", self._where()
            ) from error

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run `action` on the loop's thread after a delay. Call on the loop's thread."""
        self._selector.call_later(delay_ms / 1000, action)

    def send_on_loop(self, node: Node, request: Request, done: Done, timeout_ms: int | None = None) -> None:
        """Send from the loop's thread; `done` receives the answer or an error. After an error the request may
        have taken effect.

        A request that is built for its connection is built when that is open, in what is left of its time.
        """
        allowed_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        until = runtime.monotonic() + allowed_ms / 1000

        def send(connection: Any) -> None:
            try:
                left_ms = max(1, int((until - runtime.monotonic()) * 1000))
                future = _send(connection, built(request, _versions(connection, node)), left_ms)
            except UnsupportedVersion as error:
                done(error)
                return
            except Exception as error:  # noqa: BLE001 -- the library's failures share no base class
                done(self._translate(error, node))
                return
            future.add_callback(done)
            future.add_errback(lambda error: done(self._translate(error, node)))

        self._when_open(node, send, done, allowed_ms)

    def _when_open(self, node: Node, then: Callable[[Any], None], failed: Done, allowed_ms: float) -> None:
        """On the loop's thread: `then` with the connection to a node as soon as it is open, or `failed` with why it is
        not; one of them, once. In the order of the calls.
        """
        try:
            connection = self._manager.get_connection(node)
        except Exception as error:  # noqa: BLE001 -- the library's failures share no base class
            failed(self._translate(error, node))
            return
        if not connection.initializing:
            then(connection)
            return
        waiting = [then]

        def ready(_: object) -> None:
            if waiting:
                waiting.pop()(connection)

        def lost(error: BaseException) -> None:
            if waiting:
                waiting.clear()
                failed(self._translate(error, node))

        def late() -> None:
            if waiting:
                waiting.clear()
                failed(
                    BrokerUnavailable(
                        f"no answer from broker {node}: its connection was not open within {allowed_ms:.0f} ms",
                        self._where(),
                    )
                )

        connection.init_future.add_callback(ready)
        connection.init_future.add_errback(lost)
        self.later(allowed_ms, late)

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
            self._close_connections()
            self._selector.stop(timeout_ms=_ENDS_WITHIN_MS)
            # stop() ends the thread only; the loop's own wake-up sockets would stay open.
            self._selector.close()

    def _close_connections(self) -> None:
        """Close them on the loop's thread: it may be about to write to one."""
        closed = runtime.event()

        def close() -> None:
            try:
                self._manager.close()
            finally:
                closed.set()

        try:
            self.on_loop(close)
        except BrokerUnavailable:
            # The loop has failed, so no other thread uses them; the library's part that still wants the loop fails too.
            with contextlib.suppress(Exception):
                self._manager.close()
        else:
            closed.wait(_ENDS_WITHIN_MS / 1000)

    def _where(self) -> dict[str, str | int]:
        return {"bootstrap_servers": ",".join(self.settings.bootstrap_servers)}

    def _translate(self, error: BaseException, node: Node) -> ExactlyOnceError:
        """The error of one request. A name without an address and a file that cannot be read are no refusals here:
        brokers and files come back while they are replaced.
        """
        known = self._manager.cluster.broker_metadata(node)
        address = "the broker" if known is None else f"{known.host}:{known.port}"
        refusal = refusals.refusal_of(error, address, self._asked)
        if isinstance(refusal, AuthorizationFailed):
            return refusal
        at = "" if known is None else f" ({address})"
        unavailable = TokenUnavailable if isinstance(refusals.root_of(error), TokenUnavailable) else BrokerUnavailable
        return unavailable(
            f"no answer from broker {node}{at}: {refusals.reason_of(error)}",
            self._where(),
        )


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


def _versions(connection: Any, node: Node) -> Versions:
    known = connection.broker_version_data
    return Versions({} if known is None else known.api_versions, node)


def _send(connection: Any, request: Message, timeout_ms: int | None) -> Any:
    """Send on a connection; returns the future of the answer. A large batch is written to the socket without
    a copy, and a connection that fetches is switched to `fast_socket`.

    Everything happens on the loop's thread, so no other bytes get between a request's head and its records.
    """
    if isinstance(request, FetchRequest):
        receive_large(connection)
    if not isinstance(request, SingleBatchProduce):
        return connection.send_request(request, request_timeout_ms=timeout_ms)
    transport = connection.transport
    if transport is None:
        # It waits for the connection, and is encoded whole later.
        return connection.send_request(request, request_timeout_ms=timeout_ms)
    request.keep_records_apart()
    future = connection.send_request(request, request_timeout_ms=timeout_ms)
    # Empty where the request still waits for authentication: it is encoded whole later.
    rest = request.take_rest()
    if rest:
        transport.writelines(rest)
    return future
