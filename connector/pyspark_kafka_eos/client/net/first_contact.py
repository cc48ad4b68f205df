"""The first connection, by a bootstrap server: which is asked, when to give up, and what is wrong where none answers.

Owns: the order of the servers and their pauses, the questions that show what a listener speaks which ends a connection
without a reason.
Does not know: topics, what is asked after the first connection.
Invariants:
- A failure that waiting cannot mend ends the first connection at once where no other server can help.
- A login that was refused is not tried at another server.
- Each server's last reason is in the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, LoginRefused, TokenUnavailable
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.net import addresses, refusals
from pyspark_kafka_eos.client.net.connection import BrokerConnection
from pyspark_kafka_eos.client.net.credentials.kerberos import of_gssapi
from pyspark_kafka_eos.client.net.failures import (
    ConnectionClosed,
    ConnectionFailed,
    HandshakeFailed,
    LacksApi,
    MechanismNotOffered,
    TimedOut,
)
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.opening import Opener, Place
from pyspark_kafka_eos.client.net.pool import STEP_S, Pool
from pyspark_kafka_eos.client.net.refusals import Asked

log = logging.getLogger(__name__)

_PROBE_S = 1.5
"""How long to look for what a listener speaks that closes the connection. Half is too short for a far broker; with
double the reason could come later than 3 s.
"""

_OTHERS_S = 1.5
"""How long each other server is tried once one has refused for good, for the same reason."""

_SILENT_LOGINS = 3
"""So many connections that end in the middle of a login are a refusal: some brokers give no other answer. With fewer, a
broker that is shut down at that moment would be one.
"""

_AGAIN_S = 10.0
"""How long one attempt to begin again may take; the next one follows it."""


class FirstContact:
    """Everything runs on the loop's thread."""

    def __init__(self, loop: Loop, pool: Pool, opener: Opener, asked: Asked) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        """(lowest, highest) version of each API, of the server that was reached last."""
        self._loop, self._pool, self._opener, self._asked = loop, pool, opener, asked
        self._silent_logins = 0

    async def make(self, deadline: float) -> None:
        """Connect to one of the servers and read the brokers from it.

        Raises the error of a refused login at once; another refusal that waiting cannot mend as soon as every server
        has one, or at the deadline; else BrokerUnavailable at the deadline, with each server's last reason.
        """
        known, began = self._pool.known, runtime.monotonic()
        servers = list(known.servers)
        random.shuffle(servers)
        refused: dict[Place, ExactlyOnceError] = {}
        reasons: dict[Place, str] = {}
        failure: Exception | None = None
        while not self._pool.closed and (now := runtime.monotonic()) < deadline:
            server = min(servers, key=known.delay_s)
            if (delay_s := known.delay_s(server)) > 0:
                await asyncio.sleep(min(delay_s, deadline - now))
                continue
            whole_s = known.allowed_s(server)
            allowed_s = min(_OTHERS_S if refused else whole_s, deadline - now)
            failed = await self._from(server, allowed_s)
            if failed is None:
                known.reached(server)
                return
            known.failed(server, refusals.reason_of(failed))
            if server in reasons and allowed_s < whole_s and isinstance(failed, TimedOut):
                continue  # our limit came before its answer: what it has said before stands
            failure = failed
            reasons[server] = refusals.reason_of(failure)
            refusal = refusals.refusal_of(failure, str(server), self._asked)
            if isinstance(refusal, LoginRefused):
                raise refusal
            if refusal is None:
                refused.pop(server, None)
            else:
                refused[server] = refusal
            if refused.keys() == set(servers):
                break
        if refused:
            raise next(iter(refused.values()))
        if failure is not None and isinstance(root := refusals.root_of(failure), TokenUnavailable):
            raise root
        waited_ms = round((runtime.monotonic() - began) * 1000)
        seen = "; ".join(f"{server}: {reason}" for server, reason in sorted(reasons.items(), key=str))
        raise BrokerUnavailable(
            f"no broker could be reached within {waited_ms} ms: {seen or 'nothing was tried'}; "
            "start a broker there, or correct kafka.bootstrap.servers"
        )

    async def again(self) -> bool:
        """The same for a client that no known broker can be reached by; whether one was reached (KIP-899)."""
        try:
            await self.make(runtime.monotonic() + _AGAIN_S)
        except ExactlyOnceError as error:
            log.debug("no bootstrap server was reached: %s", error)
            self._pool.refusal = None if isinstance(error, BrokerUnavailable) else error
            return False
        log.warning("no known broker could be reached: the brokers were read anew from kafka.bootstrap.servers")
        self._pool.refusal = None
        return True

    async def _from(self, server: Place, allowed_s: float) -> Exception | None:
        """None when the brokers are known, else why they are not."""
        until = runtime.monotonic() + allowed_s
        connection = self._pool.open(str(server), f"server {server}", server, allowed_s, _nothing)
        assert connection.opening is not None
        try:
            # It has its own limit. A question that waits for it in the queue could be given up first, without a reason.
            await asyncio.wait([connection.opening])
            left_s = max(0.0, until - runtime.monotonic())
            await self._pool.read_brokers(connection, left_s + 2 * STEP_S, all_of_them=True)
        except Exception as error:
            if isinstance(error, ExactlyOnceError) and not isinstance(error, BrokerUnavailable):
                # Another cluster's, or no broker's.
                raise
            return await self.explained(server, connection, error)
        finally:
            connection.close()
        self.versions = connection.versions
        self._opener.learn(connection)
        return None

    # ---- what a listener speaks that ends a connection without a reason

    async def explained(self, server: Place, connection: BrokerConnection, error: Exception) -> Exception:
        """The failure itself, or a better one where another question shows what the listener speaks."""
        address, root = str(server), refusals.root_of(error)
        if isinstance(root, ExactlyOnceError) or of_gssapi(root):
            # Nothing that the listener has done.
            return error
        if isinstance(error, LacksApi) and self._asked.mechanism is not None and not connection.was_ready:
            # Its versions are known, and the requests of a login are not among them.
            return refusals.takes_no_login(address, self._asked)
        try:
            if isinstance(error, MechanismNotOffered):
                offered = await self._mechanisms(server)
                return refusals.not_offered(address, self._asked, offered) if offered else error
            if isinstance(error, TimedOut) or refusals.refusal_of(error, address, self._asked) is not None:
                return error
            if isinstance(error, HandshakeFailed):
                if await self._speaks_kafka_without_tls(server):
                    return refusals.wants_no_tls(address, self._asked)
            elif connection.was_ready:
                if self._asked.mechanism is None and isinstance(error, ConnectionClosed):
                    offered = await self._mechanisms(server)
                    return refusals.wants_login(address, self._asked, offered) if offered else error
            elif connection.versions:
                if self._asked.mechanism is not None:
                    if await self._answers_without_login(server):
                        return refusals.takes_no_login(address, self._asked)
                    return self._silent(address, error)
            elif connection.was_made and self._asked.tls is None and await self._speaks_tls(server):
                return refusals.wants_tls(address, self._asked)
        except Exception:  # noqa: BLE001 -- a question that is not answered explains nothing
            return error
        return error

    def _silent(self, address: str, error: Exception) -> Exception:
        self._silent_logins += 1
        if self._silent_logins < _SILENT_LOGINS:
            return error
        return LoginRefused(
            f"{address} ended the connection in the middle of the login {_SILENT_LOGINS} times, without a reason: "
            "correct user and password (kafka.sasl.*)",
            {"server": address, "mechanism": self._asked.mechanism},
        )

    async def _mechanisms(self, server: Place) -> tuple[str, ...]:
        """The mechanisms that the listener offers; empty where it takes no login."""
        async with self._probe(server, with_tls=self._asked.tls is not None) as connection:
            # A mechanism that nobody has: the answer lists those that there are, and no login is begun.
            request = m.SaslHandshakeRequest(version=1, mechanism="?")
            answer = await connection.ask_now(request, runtime.monotonic() + _PROBE_S)
            return tuple(answer.mechanisms or ())

    async def _answers_without_login(self, server: Place) -> bool:
        """Whether the listener answers what a SASL listener answers only after a login."""
        async with self._probe(server, with_tls=self._asked.tls is not None) as connection:
            connection.opened()
            before = self._pool.known.brokers
            with contextlib.suppress(ConnectionFailed, ConnectionClosed):
                await self._pool.ask_brokers(connection, _PROBE_S)
                return self._pool.known.brokers is before
            return False

    async def _speaks_kafka_without_tls(self, server: Place) -> bool:
        async with self._probe(server, with_tls=False) as connection:
            return bool(connection.versions)

    @contextlib.asynccontextmanager
    async def _probe(self, server: Place, *, with_tls: bool):  # type: ignore[no-untyped-def]
        """A connection to a server without a login: its versions were asked for, nothing else."""
        until = runtime.monotonic() + _PROBE_S
        connection = BrokerConnection(self._loop, str(server), f"probe of {server}", self._pool.client_id, _nothing)
        try:
            await asyncio.wait_for(self._opener.connect(connection, server, with_tls=with_tls), _PROBE_S)
            await self._opener.learn_versions(connection, server, until)
            yield connection
        finally:
            connection.close()

    async def _speaks_tls(self, server: Place) -> bool:
        """Whether the server answers a TLS greeting as TLS does."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname="broker").do_handshake()

        async def asked() -> bytes:
            sock = await addresses.connected(self._loop, server.host, server.port, int(_PROBE_S * 1000))
            try:
                await self._loop.asyncio.sock_sendall(sock, outgoing.read())
                return await self._loop.asyncio.sock_recv(sock, 2)
            finally:
                sock.close()

        head = await asyncio.wait_for(asked(), _PROBE_S)
        # A handshake or an alert, of whatever version.
        return head in (b"\x16\x03", b"\x15\x03")


def _nothing(_: BrokerConnection) -> None:
    """Of a connection that no node has."""
