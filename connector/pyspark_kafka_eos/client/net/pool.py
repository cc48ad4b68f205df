"""A connection for each broker and use: opened when it is needed, closed when it is idle, moved when its broker moves.

Owns: which connection serves which node, the memory of a refused login, the brokers' list and when it is read again,
when everything begins again from the bootstrap servers (KIP-899, KIP-1102).
Does not know: topics, transactions, what a request means.
Invariants:
- Credentials that a broker has refused are not sent to it again for `_REFUSED_FOR_S`: accounts are locked after a few
  wrong passwords.
- A node and an address are two things: a connection to an address that its broker has left serves no new request.
- What was learnt at the bootstrap is learnt again where it happens again.

Everything runs on the loop's thread but `take`, `dedicated`, `place_of` and `least_loaded`, which are for any.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Any

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.net.connection import BrokerConnection, State
from pyspark_kafka_eos.client.net.failures import REFUSED, ConnectionFailed, TimedOut
from pyspark_kafka_eos.client.net.known import Known
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.opening import Opener, Place
from pyspark_kafka_eos.client.net.refusals import reason_of
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.model import ClientSettings

log = logging.getLogger(__name__)

Node = int | str
"""A broker's id, or the name of a dedicated connection to one (`Pool.dedicated`)."""

_REFUSED_FOR_S = 10.0
"""How long a refused login is repeated from memory. Half of it doubles the wrong passwords that a running query may
send; with double an account that was mended works again only after so long.
"""

_IDLE, _CAN_SERVE, _NOT_NOW, _SLOW = range(4)
"""How well a broker can be asked, the best first."""

_SLOW_S = 3.0
"""A broker with a request unanswered for so long is not asked what any broker knows. Half would pass over a broker that
waits for its disk; with double a question that another could answer hangs for longer.
"""

_AGAIN_S, _AGAIN_AT_MOST_S = 0.1, 1.0
"""Pauses between attempts to read the brokers after a connection was lost. Half loads a broker that starts; with double
of the second a new leader is found so much later."""

_REBOOTSTRAP_AFTER_S = 2.0
"""So long no known broker is reached until the bootstrap servers are asked again (KIP-899). Java asks them at once:
with less, a broker that restarts costs a look at a balancer each time; double only delays the way out."""

_NOT_ANSWERING_S = 300.0
"""Java's metadata.recovery.rebootstrap.trigger.ms: brokers that take connections and do not answer (KIP-1102)."""

STEP_S = 0.1
"""By so much a step of an opening that is late may tell its own reason. Half is little for a busy machine; double only
adds to the time of a connection that fails."""

CONNECTION_LOST = "%s: %s"
"""Logged with a connection's name and its failure."""

_IDLE_LOOKS = 4
"""So often in an idle connection's time it is looked for idle ones."""


class Pool:
    """The connections to one cluster."""

    def __init__(self, loop: Loop, opener: Opener, settings: ClientSettings) -> None:
        self.known = Known(settings.bootstrap_servers)
        self.client_id = settings.client_id
        self.closed = False
        self.refusal: ExactlyOnceError | None = None
        """Why the bootstrap servers cannot be used any more; no known broker can be reached then."""
        self.bootstrap: Callable[[], Any] = _nothing
        """Begins again from the bootstrap servers, a coroutine function: whether one was reached."""
        self.explain: Callable[[Place, BrokerConnection, Exception], Any] = _as_it_is
        """What is behind the failure of a connection that was never ready, a coroutine function."""
        self._loop, self._opener, self._settings = loop, opener, settings
        self._connections: dict[Node, tuple[BrokerConnection, Place]] = {}
        self._retired: dict[BrokerConnection, None] = {}
        self._dedicated: dict[str, int] = {}
        self._refused: dict[Place, tuple[float, Exception]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        """Since when no attempt to read the brokers was a success; None after one."""

    # ---- nodes

    def place_of(self, node: Node) -> Place | None:
        """Where a node is to be reached; None where that is not known."""
        number = self._dedicated.get(node) if isinstance(node, str) else node
        return None if number is None else self.known.brokers.get(number)

    def dedicated(self, node: int, use: int | str) -> str:
        """The name of a connection of its own to a broker."""
        name = f"{node}.{use}"
        self._dedicated[name] = node
        return name

    def least_loaded(self, but: Collection[int] = ()) -> int | None:
        """A broker that can be asked now: one that is connected and idle before one that is busy, one that has left a
        request unanswered for seconds last, those of `but` behind them; None where none can be reached.
        """
        now = runtime.monotonic()
        ranked: list[tuple[tuple[bool, int, int], int]] = []
        for node, place in self.known.brokers.items():
            held = self._connections.get(node)
            connection = held[0] if held is not None and held[1] == place else None
            if connection is None:
                if self.known.delay_s(place) > 0:
                    continue
                rank = (_CAN_SERVE, 0)
            elif connection.silent_s(now) > _SLOW_S:
                rank = (_SLOW, connection.load)
            elif connection.state is State.READY:
                rank = (_IDLE if connection.load == 0 else _CAN_SERVE, connection.load)
            else:
                rank = (_NOT_NOW, connection.load)
            ranked.append(((node in but, *rank), node))
        if not ranked:
            return None
        best = min(rank for rank, _ in ranked)
        return random.choice([node for rank, node in ranked if rank == best])

    @property
    def open_connections(self) -> int:
        """How many can be used."""
        return sum(each.connected for each, _ in list(self._connections.values()))

    def known_versions(self) -> list[tuple[Node, dict[int, tuple[int, int]]]]:
        """What each node supports that is connected."""
        held = list(self._connections.items())
        return [(node, connection.versions) for node, (connection, _) in held if connection.connected]

    # ---- connections

    def connection(self, node: Node) -> BrokerConnection:
        """The connection to a node, opened where there is none. The refusal of its last login while that is new;
        ConnectionFailed where its address is not known, or the next attempt has to wait.
        """
        place = self.place_of(node)
        if place is None:
            raise ConnectionFailed("its address is not known")
        held = self._connections.get(node)
        if held is not None:
            if held[1] == place:
                return held[0]
            self._retire(node)
            return self.connection(node)
        until, refusal = self._refused.get(place, (0.0, None))
        if refusal is not None and runtime.monotonic() < until:
            raise refusal
        if self.closed:
            raise ConnectionFailed("the connections were closed")
        if self.known.delay_s(place) > 0:
            raise ConnectionFailed(self.known.reason_at(place))
        return self._open(node, place)

    def _open(self, node: Node, place: Place) -> BrokerConnection:
        def ended(connection: BrokerConnection) -> None:
            self._retired.pop(connection, None)
            if self._connections.get(node, (None, None))[0] is connection:
                del self._connections[node]
            self._lost(connection, place)

        connection = self.open(node, f"broker {node} at {place}", place, self.known.allowed_s(place), ended)
        connection.replaced_by(lambda: self.connection(node))
        self._connections[node] = connection, place
        return connection

    def open(
        self, node: Node, name: str, place: Place, allowed_s: float, ended: Callable[[BrokerConnection], None]
    ) -> BrokerConnection:
        """Begin to open a connection; it serves requests once it is ready."""
        connection = BrokerConnection(self._loop, node, name, self.client_id, ended)
        until = runtime.monotonic() + allowed_s

        async def work() -> None:
            try:
                await self._opener.open(connection, place, until)
                self.known.reached(place)
            except Exception as error:  # noqa: BLE001 -- whatever it is, there is no connection
                connection.close(error)

        task = self._loop.task(work())

        def too_late() -> None:
            connection.close(TimedOut(f"{connection.step} took longer than {allowed_s:.1f} s"))

        def last_step() -> None:
            # A timer of its own: after a stall of this process the limit and the steps' own ends are due at once, and
            # only a step's end knows what was waited for.
            if not task.done():
                limits.append(self._loop.later(STEP_S, too_late))

        def opened(_: object) -> None:
            for limit in limits:
                limit.cancel()

        limits = [self._loop.later(allowed_s, last_step)]
        task.add_done_callback(opened)
        connection.opening = task
        return connection

    def _lost(self, connection: BrokerConnection, place: Place) -> None:
        failure = connection.failure
        if self.closed or failure is None:
            return
        log.debug(CONNECTION_LOST, connection.name, failure)
        if not connection.was_ready:
            if self.known.only_advertised(place) and not self.known.reason_at(place):
                self._loop.task(self._look_behind(place, connection, failure))
            self.known.failed(place, reason_of(failure))
        if isinstance(failure, REFUSED):
            self._refused[place] = (runtime.monotonic() + _REFUSED_FOR_S, failure)
        if not connection.closed_here:
            self.refresh_soon()

    async def _look_behind(self, place: Place, connection: BrokerConnection, failure: Exception) -> None:
        # One listener of several may speak another protocol than the bootstrap servers' (TLS, SASL).
        explained = await self.explain(place, connection, failure)
        if explained is not failure:
            self.known.explained(place, reason_of(explained))

    def _retire(self, node: Node) -> None:
        connection, _ = self._connections.pop(node)
        self._retired[connection] = None
        connection.close_when_drained()

    # ---- the brokers' list

    def take(self, answer: m.Message, *, all_of_them: bool = False) -> None:
        """Keep the brokers that an answer to Metadata names. OptionsError for another cluster's."""
        if getattr(answer, "error_code", 0) == Code.REBOOTSTRAP_REQUIRED:
            self._loop.run_if_open(self._begin_again)
            raise BrokerUnavailable("the broker has the client begin again from kafka.bootstrap.servers (KIP-1102)")
        self.known.take(answer.brokers, answer.cluster_id, all_of_them=all_of_them)
        self._opener.cluster_id = self.known.cluster_id

    def _begin_again(self) -> None:
        self._failing_since = float("-inf")
        self.refresh_soon()

    async def ask_brokers(self, connection: BrokerConnection, timeout_s: float) -> m.Message:
        """The answer of one of them to a question for the brokers alone."""
        future: asyncio.Future[m.Message] = self._loop.asyncio.create_future()

        def settle(answer: Any) -> None:
            if not future.done():
                future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)

        connection.send(_brokers_alone, settle, runtime.monotonic() + timeout_s)
        return await future

    async def read_brokers(self, connection: BrokerConnection, timeout_s: float, *, all_of_them: bool = False) -> None:
        """Read the brokers from one of them."""
        answer = await self.ask_brokers(connection, timeout_s)
        self.take(answer, all_of_them=all_of_them)
        if not self.known.brokers:
            raise ConnectionFailed("it knows no brokers")
        self._failing_since = None

    def refresh_soon(self) -> None:
        """Read the brokers again, until it succeeds: a connection was lost."""
        if self._refreshing is None and not self.closed and self.known.brokers:
            self._refreshing = self._loop.task(self._refresh_until_done())

    async def _refresh_until_done(self) -> None:
        pause_s = _AGAIN_S
        try:
            while not self.closed:
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
                if await self.refresh():
                    return
                pause_s = min(_AGAIN_AT_MOST_S, pause_s * 2)
        finally:
            self._refreshing = None

    async def refresh(self) -> bool:
        """Read the brokers from one of them, else begin again where none was reached for long; whether it was done."""
        now = runtime.monotonic()
        failing_s = 0.0 if self._failing_since is None else now - self._failing_since
        if failing_s < _NOT_ANSWERING_S:
            node = self.least_loaded()
            try:
                if node is not None:
                    timeout_s = self._settings.request_timeout_ms / 1000
                    await self.read_brokers(self.connection(node), timeout_s, all_of_them=True)
                    return True
            except Exception as error:  # noqa: BLE001 -- the next request tells its sender
                log.debug("the brokers were not read from broker %s: %s", node, error)
        if self._failing_since is None:
            self._failing_since = now
        unreachable = failing_s >= _REBOOTSTRAP_AFTER_S and not self.open_connections
        return bool((unreachable or failing_s >= _NOT_ANSWERING_S) and await self.bootstrap())

    # ---- as time goes by

    def keep(self) -> None:
        """Begin to read the brokers every metadata.max.age.ms, and to close connections that are idle."""
        self._loop.later(self._settings.metadata_max_age_ms / 1000, self._aged)
        self._loop.later(self._settings.connections_max_idle_ms / 1000 / _IDLE_LOOKS, self._close_idle)

    def _aged(self) -> None:
        if not self.closed:
            self.refresh_soon()
            self._loop.later(self._settings.metadata_max_age_ms / 1000, self._aged)

    def _close_idle(self) -> None:
        if self.closed:
            return
        idle_s = self._settings.connections_max_idle_ms / 1000
        now = runtime.monotonic()
        for connection, _ in list(self._connections.values()):
            if connection.connected and not connection.load and now - connection.heard_at >= idle_s:
                log.debug("%s: closed, idle for %.0f s", connection.name, now - connection.heard_at)
                connection.close()
        self._loop.later(idle_s / _IDLE_LOOKS, self._close_idle)

    # ---- the end

    def close(self) -> None:
        """Close every connection; requests on them fail."""
        self.closed = True
        for connection in [*(each for each, _ in self._connections.values()), *self._retired]:
            connection.close()


def _brokers_alone(versions: Versions) -> m.Message:
    version = versions.of(m.MetadataRequest, NO_TRANSACTION)
    return m.MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)


async def _nothing() -> bool:
    return False


async def _as_it_is(_: Place, __: BrokerConnection, failure: Exception) -> Exception:
    return failure
