"""kafka-python's connections to one cluster, with the first connection and its failures in our hands.

Owns: the first connection (which server, how often, when to give up), the opening of a socket, the memory of a refused
login.
Does not know: topics, transactions, what a request means.
Invariants:
- A failure that waiting cannot mend ends the first connection at once: the library would retry everything until the
  time is over, and then report only that.
- Credentials that a broker has refused are not sent to it again for `_REFUSED_FOR_S`: accounts are locked after a few
  wrong passwords, and the library would send one every 50 ms.
- What fails a connection after the first one is a `KafkaError`: any other class ends the library's refresh of the
  metadata.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import Collection
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager

from kafka_core import runtime
from kafka_core.errors import (
    BrokerUnavailable,
    ExactlyOnceError,
    LoginRefused,
    OptionsError,
    TokenUnavailable,
)
from kafka_core.protocol.messages import ApiVersionsRequest, SaslHandshakeRequest
from pyspark_kafka_eos.client.net import refusals
from pyspark_kafka_eos.client.net.credentials import tls
from pyspark_kafka_eos.client.net.credentials.kerberos import of_gssapi
from pyspark_kafka_eos.client.net.exchange import Logins
from pyspark_kafka_eos.client.net.guarding import guard
from pyspark_kafka_eos.client.net.refusals import Asked, HandshakeFailed, NameFailed
from pyspark_kafka_eos.client.net.sessions import renew_in_time
from pyspark_kafka_eos.client.net.transport import PlainTransport, TlsTransport
from pyspark_kafka_eos.model import ClientSettings

_REFUSED_FOR_S = 10.0
"""How long a refused login is repeated from memory. Half of it doubles the wrong passwords that a running query may
send; with double an account that was mended works again only after so long.
"""

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

REFUSED = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthorizationError,
)
"""A broker's answers to a login that another attempt does not change."""


class Manager(KafkaConnectionManager):  # type: ignore[misc]
    """The library's connections. Everything but the constructor runs on the loop's thread."""

    def __init__(self, net: Any, asked: Asked, settings: ClientSettings, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._asked = asked
        self._logins = Logins(net, self.wait_for, asked, settings)
        self._refused: dict[Any, tuple[float, BaseException]] = {}
        self._silent_logins = 0
        self._probes = 0
        self.cluster.update_metadata = functools.partial(_taken, self.cluster.update_metadata)

    # ---- one connection

    def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        """The connection to a node; raises the refusal of its last login while that is new."""
        until, refusal = self._refused.get(node_id, (0.0, None))
        if refusal is not None and runtime.monotonic() < until:
            raise refusal
        known = node_id in self._conns
        connection = super().get_connection(node_id, *arguments, **options)
        if not known:
            guard(connection)
            if (first := self.broker_version_data) is not None:
                # The library would hold every connection to what the first broker supports.
                connection._api_versions_idx = first.api_version(ApiVersionsRequest)
                connection.broker_version_data = None
            if self._asked.mechanism is not None:
                # For the first login, and for each of KIP-368.
                connection._sasl_authenticate = functools.partial(self._logins.log_in, connection)
                renew_in_time(connection)
            connection.init_future.add_errback(lambda error: self._note(node_id, error))
        return connection

    def _note(self, node_id: Any, error: BaseException) -> None:
        # The first connection has one attempt and no memory: its caller gets the refusal.
        if self.bootstrapped and isinstance(error, REFUSED):
            self._refused[node_id] = (runtime.monotonic() + _REFUSED_FOR_S, error)

    def least_loaded_node(self, but: Collection[int] = ()) -> Any:
        """The broker with the fewest requests on their way, of `but` only where there is no other; None where none may
        be connected to now.
        """
        others = [each.node_id for each in self.cluster.brokers() if each.node_id not in but]
        ready = [each for each in others if self.connection_delay(each) <= 0]
        if not but or not ready:
            return super().least_loaded_node()

        def load(node: int) -> tuple[bool, int]:
            connection = self._conns.get(node)
            if connection is None:
                return True, 0
            return not connection.connected, len(connection.in_flight_requests)

        return min(ready, key=load)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """A transport to a node that is ready for Kafka's bytes; KafkaError with the cause where that fails."""
        context = None
        if self._asked.tls is not None:
            try:
                # Before the socket is opened, and anew for each: a rotated file is used by the next connection.
                context = tls.open_context(self._asked.tls)
            except (ExactlyOnceError, OSError) as error:
                raise kafka_errors.KafkaConnectionError(str(error)) from error
        sock = await self._connected(node, timeout_at)
        if context is None:
            return PlainTransport(self._net, sock, host=node.host)
        transport = None
        try:
            transport = TlsTransport(self._net, sock, node.host, context)
            await transport.handshake_until(timeout_at)
            self._judge_cipher(node, transport)
        except BaseException as error:
            # TLS takes the socket over, and leaves an empty one behind.
            (sock if transport is None else transport._sock).close()
            if isinstance(error, (OSError, ValueError, ExactlyOnceError, kafka_errors.KafkaError)):
                raise HandshakeFailed(f"TLS handshake failed: {error}") from error
            raise
        return transport

    def _judge_cipher(self, node: Any, transport: TlsTransport) -> None:
        refused = tls.cipher_refused(self._asked.tls, transport.cipher) if self._asked.tls else None
        if refused is not None:
            address = f"{node.host}:{node.port}"
            raise OptionsError(
                f"{address}: {refused}; list it, or use other versions of TLS; nothing was sent",
                {"server": address},
            )

    async def _connected(self, node: Any, timeout_at: float | None) -> Any:
        """A connected socket to the first of the host's addresses that accepts one."""
        opener = KafkaNetSocket()
        try:
            found = opener.dns_lookup(node.host, node.port, raise_error=True)
        except kafka_errors.KafkaConnectionError as error:
            raise NameFailed(str(error), getattr(error.__context__, "errno", None)) from None
        except (ValueError, OverflowError) as error:
            # A broker has named this address: a name that is none (UnicodeError), a port of more than 16 bits.
            raise kafka_errors.KafkaConnectionError(f"{node.host!r}:{node.port} is no address: {error}") from None
        failure: Exception = NameFailed(f"no address of {node.host}", None)
        for family, kind, number, _, address in found:
            sock = opener.socket(family, kind, number)
            try:
                sock.setblocking(False)
                for option in self.config["socket_options"]:
                    sock.setsockopt(*option)
                return await opener.sock_connect(self._net, sock, address, timeout_at=timeout_at)
            except (OSError, OverflowError, kafka_errors.KafkaError) as error:
                sock.close()
                failure = kafka_errors.KafkaConnectionError(f"cannot connect to {address[0]}: {error}")
            except BaseException:
                sock.close()
                raise
        raise failure

    # ---- the first connection

    async def _do_bootstrap(self, deadline: float | None) -> bool:
        """Connect to one of the servers and read the brokers from it.

        Raises the error of a refused login at once; another refusal that waiting cannot mend as soon as every server
        has one, or at the deadline; else BrokerUnavailable at the deadline, with each server's last reason.
        """
        servers = self.cluster.bootstrap_brokers()
        addresses = {f"{each.host}:{each.port}" for each in servers}
        refused: dict[str, ExactlyOnceError] = {}
        reasons: dict[str, str] = {}
        failure: BaseException | None = None
        began = runtime.monotonic()
        while not self.closed and (deadline is None or runtime.monotonic() < deadline):
            server = min(servers, key=lambda each: self.connection_delay(each.node_id))
            delay = self.connection_delay(server.node_id)
            if delay > 0:
                left = delay if deadline is None else max(0.0, deadline - runtime.monotonic())
                await self._bootstrap_wakeup(min(delay, left))
                continue
            allowed_s = _OTHERS_S if refused else self.socket_connection_setup_timeout_ms(server.node_id) / 1000
            until = runtime.monotonic() + allowed_s
            failure = await self._bootstrap_from(server, until if deadline is None else min(until, deadline))
            if failure is None:
                return True
            self.update_backoff(server.node_id)
            address = f"{server.host}:{server.port}"
            if address in refused and isinstance(refusals.root_of(failure), kafka_errors.KafkaTimeoutError):
                continue  # the limit came before its answer: what it has answered before stands
            reasons[address] = refusals.reason_of(failure)
            refusal = refusals.refusal_of(failure, address, self._asked)
            if isinstance(refusal, LoginRefused):
                raise refusal
            if refusal is None:
                refused.pop(address, None)
            else:
                refused[address] = refusal
            if refused.keys() == addresses:
                break
        if refused:
            raise next(iter(refused.values()))
        if isinstance(failure, BaseException) and isinstance(root := refusals.root_of(failure), TokenUnavailable):
            raise root
        waited_ms = round((runtime.monotonic() - began) * 1000)
        seen = "; ".join(f"{address}: {reason}" for address, reason in sorted(reasons.items()))
        raise BrokerUnavailable(
            f"no broker could be reached within {waited_ms} ms: {seen or 'nothing was tried'}; "
            "start a broker there, or correct kafka.bootstrap.servers"
        )

    async def _bootstrap_from(self, server: Any, until: float) -> BaseException | None:
        """None when the brokers are known, else why they are not."""
        connection = self.get_connection(
            server.node_id,
            timeout_ms=max(1.0, (until - runtime.monotonic()) * 1000),
            pop_on_close=False,
            refresh_metadata_on_err=False,
            reset_backoff_on_connect=False,
        )
        try:
            await connection
            await self.cluster.refresh_metadata(server.node_id)
            if not self.cluster.brokers():
                raise kafka_errors.KafkaConnectionError("it knows no brokers")
        except kafka_errors.IncompatibleBrokerVersion:
            if self._asked.mechanism is None or connection.init_future.succeeded():
                raise
            # Its versions are known, and the requests of a login are not among them.
            return refusals.takes_no_login(f"{server.host}:{server.port}", self._asked)
        except Exception as error:  # noqa: BLE001 -- the library's failures share no base class
            return await self._explained(server, connection, error)
        finally:
            self._conns.pop(server.node_id, connection).close()
        self.reset_backoff(server.node_id)
        self.cluster.start_refresh_loop()
        return None

    # ---- what a listener speaks that ends a connection without a reason

    async def _explained(self, server: Any, connection: Any, error: BaseException) -> BaseException:
        """The failure itself, or a better one where another question shows what the listener speaks."""
        address, root = f"{server.host}:{server.port}", refusals.root_of(error)
        if isinstance(root, ExactlyOnceError) or of_gssapi(root):
            # Nothing that the listener has done.
            return error
        try:
            if isinstance(root, kafka_errors.UnsupportedSaslMechanismError):
                offered = await self._mechanisms(server)
                return refusals.not_offered(address, self._asked, offered) if offered else error
            late = isinstance(root, (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError))
            if late or refusals.refusal_of(error, address, self._asked) is not None:
                return error
            if isinstance(error, HandshakeFailed):
                if await self._speaks_kafka_without_tls(server):
                    return refusals.wants_no_tls(address, self._asked)
            elif connection.init_future.succeeded():
                if self._asked.mechanism is None:
                    offered = await self._mechanisms(server)
                    return refusals.wants_login(address, self._asked, offered) if offered else error
            elif connection.broker_version_data is not None:
                if connection.sasl_enabled:
                    if await self._answers_without_login(server):
                        return refusals.takes_no_login(address, self._asked)
                    return self._silent(address, error)
            elif connection.parser is not None and self._asked.tls is None and await self._speaks_tls(server):
                return refusals.wants_tls(address, self._asked)
        except Exception:  # noqa: BLE001 -- a question that is not answered explains nothing
            return error
        return error

    def _silent(self, address: str, error: BaseException) -> BaseException:
        self._silent_logins += 1
        if self._silent_logins < _SILENT_LOGINS:
            return error
        return LoginRefused(
            f"{address} ended the connection in the middle of the login {_SILENT_LOGINS} times, without a reason: "
            "correct user and password (kafka.sasl.*)",
            {"server": address, "mechanism": self._asked.mechanism},
        )

    async def _mechanisms(self, server: Any) -> tuple[str, ...]:
        """The mechanisms that the listener offers; empty where it takes no login."""
        connection = await self._probe(server, with_tls=self._asked.tls is not None)
        try:
            # A mechanism that nobody has: the answer lists those that there are, and no login is begun.
            answer = await connection._send_request(
                SaslHandshakeRequest(mechanism="?", max_version=1), timeout_at=runtime.monotonic() + _PROBE_S
            )
            return tuple(answer.mechanisms or ())
        finally:
            connection.close()

    async def _answers_without_login(self, server: Any) -> bool:
        """Whether the listener answers what a SASL listener answers only after a login."""
        connection = await self._probe(server, with_tls=self._asked.tls is not None)
        try:
            until = runtime.monotonic() + _PROBE_S
            with contextlib.suppress(kafka_errors.KafkaError):
                await connection._send_request(self.cluster.metadata_request(), timeout_at=until)
                return True
            return False
        finally:
            connection.close()

    async def _speaks_kafka_without_tls(self, server: Any) -> bool:
        connection = await self._probe(server, with_tls=False)
        try:
            return bool(connection.connected)
        finally:
            connection.close()

    async def _probe(self, server: Any, *, with_tls: bool) -> Any:
        """A connection to a server without a login: its versions were asked for, nothing else."""
        until = runtime.monotonic() + _PROBE_S
        if with_tls:
            transport = await self._build_transport(server, until)
        else:
            transport = PlainTransport(self._net, await self._connected(server, until), host=server.host)
        self._probes += 1
        changed = {"security_protocol": "PLAINTEXT", "sasl_mechanism": None}
        connection = KafkaConnection(self._net, node_id=f"probe-{self._probes}", **{**self.config, **changed})
        guard(connection)
        connection.connection_made(transport)
        await connection.initialize(timeout_at=until)
        return connection

    async def _speaks_tls(self, server: Any) -> bool:
        """Whether the server answers a TLS greeting as TLS does."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname="broker").do_handshake()
        until = runtime.monotonic() + _PROBE_S
        sock = await self._connected(server, until)
        try:
            sock.send(outgoing.read())
            await self._net.wait_read(sock, timeout_at=until)
            head: bytes = sock.recv(2)
        finally:
            sock.close()
        # A handshake or an alert, of whatever version.
        return head in (b"\x16\x03", b"\x15\x03")


def _taken(take: Any, answer: Any) -> None:
    """Have the library take the brokers from an answer to Metadata. KafkaError where they make no sense to it."""
    try:
        take(answer)
    except kafka_errors.KafkaError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever the library stumbles over
        raise kafka_errors.KafkaProtocolError(f"the answer to Metadata cannot be used: {error}") from None
