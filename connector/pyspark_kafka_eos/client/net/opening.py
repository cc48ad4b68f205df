"""Opening a connection: an address, TLS, the broker's versions, the login. Then it serves requests.

Owns: the order of these steps, which version of ApiVersions is asked, the renewal of a session (KIP-368).
Does not know: which broker is asked when, what is done about a failure.
Invariants:
- Nothing of a user's is sent before TLS trusts the broker, and no request before the login.
- A file that the options name is read anew for each connection: a rotated one is used by the next.
- Where the broker can tell (ApiVersions 5, KIP-1242) no other broker is taken for the one that is meant.
"""

from __future__ import annotations

import logging
import random
import ssl
from dataclasses import dataclass

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, OptionsError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code, name_of
from pyspark_kafka_eos.client.net import addresses
from pyspark_kafka_eos.client.net.connection import BrokerConnection
from pyspark_kafka_eos.client.net.credentials import tls
from pyspark_kafka_eos.client.net.exchange import Logins
from pyspark_kafka_eos.client.net.failures import (
    ConnectionFailed,
    HandshakeFailed,
    LacksApi,
    NoRight,
    OtherNode,
    of_system,
)
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.refusals import Asked
from pyspark_kafka_eos.client.net.sessions import planned_ms
from pyspark_kafka_eos.client.net.transport import PlainTransport
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.version import __version__

log = logging.getLogger(__name__)

_SOFTWARE = "pyspark-kafka-eos"
"""KIP-511: letters, digits, `-` and `.`."""

_NAMES_BROKER = 5
"""The first version of ApiVersions that may name the broker that is meant (KIP-1242); Kafka 4.4 has it."""

_ASKED_WITHOUT_NAME, _OLDEST_ASKED = 4, 3
"""Versions to begin with: Kafka 4's; and Kafka 3's, the oldest that this package writes to."""

SESSION_IS_RENEWED = "%s: the session is renewed"
"""Logged with a connection's name."""

_RENEWED_AFTER = (0.85, 0.95)
"""The part of a session after which it is renewed; drawn, so that connections do not all renew at once, as in Java."""


@dataclass(frozen=True)
class Place:
    """Where a broker is to be reached; `node`: the id that it must have, None for a bootstrap server."""

    host: str
    port: int
    node: int | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Opener:
    """Opens connections to one cluster. Everything runs on the loop's thread."""

    def __init__(self, loop: Loop, asked: Asked, settings: ClientSettings) -> None:
        self._loop, self._asked = loop, asked
        self._request_s = settings.request_timeout_ms / 1000
        self._unacknowledged_ms = settings.request_timeout_ms
        self._logins = Logins(loop, asked, settings)
        self.cluster_id: str | None = None
        """Of the cluster that is meant; None before it is known."""
        self.newest_api_versions = _ASKED_WITHOUT_NAME
        """The highest version of ApiVersions that the cluster is known to offer."""
        self.features: dict[str, int] = {}
        """The cluster's finalised features, by the newest that a broker has told: some hear of an upgrade later."""
        self._features_epoch = -1

    def learn(self, connection: BrokerConnection) -> None:
        """Keep what a bootstrap server has told."""
        _, highest = connection.versions.get(m.ApiVersionsRequest.API_KEY, (0, 0))
        self.newest_api_versions = max(_OLDEST_ASKED, highest)

    async def open(self, connection: BrokerConnection, place: Place, until: float) -> None:
        """All steps. ConnectionFailed, OSError, ssl.SSLError, or an error of this package in the cause."""
        await self.connect(connection, place, with_tls=self._asked.tls is not None)
        await self.learn_versions(connection, place, until)
        if self._asked.mechanism is not None:
            await self._log_in(connection, place, until)
        connection.opened()

    async def connect(self, connection: BrokerConnection, place: Place, *, with_tls: bool) -> None:
        """TCP and, where it is asked for, TLS."""
        context = None
        if with_tls and self._asked.tls is not None:
            try:
                context = tls.open_context(self._asked.tls)
            except (ExactlyOnceError, OSError) as error:
                raise ConnectionFailed(str(error)) from error
        sock = await addresses.connected(self._loop, place.host, place.port, self._unacknowledged_ms)
        if context is None:
            try:
                PlainTransport(self._loop.asyncio, sock, connection)
            except OSError as error:
                sock.close()
                raise ConnectionFailed(f"the connection was lost: {of_system(error)}") from error
            return
        connection.step = "the TLS handshake"
        try:
            transport, _ = await self._loop.asyncio.create_connection(
                lambda: connection, sock=sock, ssl=context, server_hostname=place.host
            )
        except (OSError, ValueError) as error:
            sock.close()
            raise HandshakeFailed(f"TLS handshake failed: {_said(error)}") from error
        self._judge_cipher(transport, place)

    def _judge_cipher(self, transport: object, place: Place) -> None:
        used = transport.get_extra_info("cipher")  # type: ignore[attr-defined]
        refused = tls.cipher_refused(self._asked.tls, used[0] if used else "") if self._asked.tls else None
        if refused is not None:
            failure = OptionsError(
                f"{place}: {refused}; list it, or use other versions of TLS; nothing was sent", {"server": str(place)}
            )
            raise HandshakeFailed(f"TLS handshake failed: {failure.message}") from failure

    async def learn_versions(self, connection: BrokerConnection, place: Place, until: float) -> None:
        """Ask for the broker's versions and the cluster's features, and whether it is the broker that is meant."""
        named = place.node is not None and self.cluster_id is not None
        connection.step = "the answer to ApiVersions"
        version = min(_NAMES_BROKER if named else _ASKED_WITHOUT_NAME, self.newest_api_versions)
        while True:
            more = {"cluster_id": self.cluster_id, "node_id": place.node} if version >= _NAMES_BROKER else {}
            request = m.ApiVersionsRequest(
                version=version, client_software_name=_SOFTWARE, client_software_version=__version__, **more
            )
            answer = await connection.ask_now(request, until)
            if answer.error_code == Code.NONE:
                break
            if answer.error_code == Code.UNSUPPORTED_VERSION and version > 0:
                # KIP-511: in version 0, with the versions of this API where the broker is no older than 2.4.
                offered = [each.max_version for each in answer.api_keys if each.api_key == request.API_KEY]
                version = min(version - 1, *offered) if offered else 0
                continue
            if answer.error_code == Code.REBOOTSTRAP_REQUIRED:
                raise OtherNode(
                    f"it is not broker {place.node} of cluster {self.cluster_id}; something else listens there"
                )
            raise NoRight(f"ApiVersions was answered with {name_of(answer.error_code)}")
        connection.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if answer.finalized_features_epoch >= self._features_epoch:
            self._features_epoch = answer.finalized_features_epoch
            self.features = {each.name: each.max_version_level for each in answer.finalized_features or ()}

    async def _log_in(self, connection: BrokerConnection, place: Place, until: float) -> None:
        for each in (m.SaslHandshakeRequest, m.SaslAuthenticateRequest):
            if each.API_KEY not in connection.versions:
                raise LacksApi(f"it has no {m.api_name(each.API_KEY)}, so it takes no login")
        connection.step = "the login"
        session_ms = await self._logins.log_in(connection, place.host, until)
        if session_ms > 0:
            after_s = planned_ms(session_ms) * random.uniform(*_RENEWED_AFTER) / 1000
            connection.renewal = self._loop.later(after_s, lambda: self._loop.task(self._renew(connection, place)))

    async def _renew(self, connection: BrokerConnection, place: Place) -> None:
        """Log in again on a connection that serves requests (KIP-368); it ends where that fails."""
        connection.pause()
        try:
            # Kafka takes no other request between the two of a login.
            await connection.drained()
            log.debug(SESSION_IS_RENEWED, connection.name)
            await self._log_in(connection, place, runtime.monotonic() + self._request_s)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the broker ends the session
            log.debug("%s: the session was not renewed: %s", connection.name, error)
            connection.close(error)
        else:
            connection.go_on()


def _said(error: Exception) -> str:
    return of_system(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else str(error)
