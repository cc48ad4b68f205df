"""The SASL exchange of one connection (KIP-43, KIP-152, KIP-368), and where its credentials come from.

Owns: the requests of a login and their order, which mechanism answers, what is done beside the connections' loop.
Does not know: sockets, when a login is due, what a refusal means.
Invariants:
- Credentials are read anew for each login, and no connection keeps them.
- What a mechanism or a credential fails with is the cause of a `ConnectionFailed`.
- A token endpoint or a KDC is never asked on the loop's thread, and no key is derived there.
- No message of a login is logged, only its size.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any, Protocol

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol.error_codes import Code, name_of
from kafka_core.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from pyspark_kafka_eos.client.net import login
from pyspark_kafka_eos.client.net.connection import BrokerConnection
from pyspark_kafka_eos.client.net.credentials.kerberos import Gssapi
from pyspark_kafka_eos.client.net.credentials.plain import Plain
from pyspark_kafka_eos.client.net.credentials.scram import Scram
from pyspark_kafka_eos.client.net.failures import (
    ConnectionFailed,
    LoginNotAccepted,
    MechanismNotOffered,
    NoLoginExpected,
    TimedOut,
)
from pyspark_kafka_eos.client.net.loop import Loop
from pyspark_kafka_eos.client.net.oauth import tokens
from pyspark_kafka_eos.client.net.oauth.bearer import Bearer
from pyspark_kafka_eos.client.net.oauth.tokens import Token, Tokens
from pyspark_kafka_eos.client.net.refusals import Asked
from pyspark_kafka_eos.model import ClientSettings

log = logging.getLogger(__name__)

_HANDSHAKES = {
    Code.UNSUPPORTED_SASL_MECHANISM: MechanismNotOffered,
    Code.ILLEGAL_SASL_STATE: NoLoginExpected,
}


class Mechanism(Protocol):
    """The client's side of a mechanism."""

    def auth_bytes(self) -> bytes:
        """The next message to the broker."""

    def receive(self, data: bytes) -> object:
        """The broker's answer to it. ValueError where it is none."""

    def is_done(self) -> bool:
        """Whether no message is left, and the broker has proven itself where the mechanism has that."""


class Logins:
    """The logins of one cluster's connections. Everything runs on the loop's thread."""

    def __init__(self, loop: Loop, asked: Asked, settings: ClientSettings) -> None:
        self._loop, self._asked = loop, asked
        self._security = settings.security
        self._tokens: Tokens | None = None
        if asked.oauth is not None:
            self._tokens = tokens.shared(asked.oauth, settings.bootstrap_servers)

    async def log_in(self, connection: BrokerConnection, host: str, until: float) -> int:
        """One login with the credentials of this moment; how long the session lasts (ms), 0 for ever. `host`: the
        broker's name in the settings or the metadata. ConnectionFailed with the cause where it fails.
        """
        token = None
        try:
            if self._tokens is not None:
                token = await self._token(self._tokens, until)
            found = login.credentials(self._security)
        except ExactlyOnceError as error:
            raise ConnectionFailed(str(error)) from error
        name = str(self._asked.mechanism)
        await _agree(connection, name, until)
        try:
            mechanism = await self._mechanism(host, name, found, token, until)
            return await self._exchange(connection, mechanism, until)
        except LoginNotAccepted:
            if self._tokens is not None and token is not None:
                self._tokens.drop(token)
            raise
        except ConnectionFailed:
            raise
        except Exception as error:
            raise ConnectionFailed(str(error)) from error

    async def _mechanism(
        self, host: str, name: str, found: dict[str, str], token: str | None, until: float
    ) -> Mechanism:
        if token is not None:
            return Bearer(token, self._asked.oauth)
        if (kerberos := self._asked.kerberos) is not None:
            # By the name of the settings: the KDC knows brokers by it, and not by an address.
            made: Mechanism = await self._in_time(functools.partial(Gssapi, kerberos, host), until)
            return made
        user, password = found["sasl_plain_username"], found["sasl_plain_password"]
        if name == "PLAIN":
            return Plain(user, password)
        return Scram(name, user, password, by_token=self._asked.by_token)

    async def _exchange(self, connection: BrokerConnection, mechanism: Mechanism, until: float) -> int:
        """The mechanism's messages; the lifetime (ms) of the session that follows."""
        _, highest = connection.versions[SaslAuthenticateRequest.API_KEY]
        version = min(highest, 1)
        session_ms = 0
        while not mechanism.is_done():
            message = mechanism.auth_bytes()
            log.debug("%s: SaslAuthenticate with %d bytes, not shown", connection.name, len(message))
            answer = await connection.ask_now(SaslAuthenticateRequest(version=version, auth_bytes=message), until)
            if answer.error_code != Code.NONE:
                raise LoginNotAccepted(f"{name_of(answer.error_code)}: {answer.error_message}")
            # Deriving SCRAM's keys takes as long as the server likes, within its bounds.
            await self._in_time(functools.partial(mechanism.receive, answer.auth_bytes), until)
            # KIP-368. An answer of version 0 has no lifetime: the session does not end.
            session_ms = getattr(answer, "session_lifetime_ms", 0) or 0
        return int(session_ms)

    async def _in_time(self, work: Any, until: float) -> Any:
        try:
            return await asyncio.wait_for(self._loop.beside(work), max(0.001, until - runtime.monotonic()))
        except (asyncio.TimeoutError, TimeoutError):
            raise TimedOut("the login was not finished in time") from None

    async def _token(self, tokens: Tokens, until: float) -> str:
        """A token that was fetched beside this loop; the error of the fetch, or TokenUnavailable at `until`."""
        future: asyncio.Future[Token | ExactlyOnceError] = self._loop.asyncio.create_future()

        def taken(found: Token | ExactlyOnceError) -> None:
            self._loop.run_if_open(lambda: None if future.done() else future.set_result(found))

        tokens.get(taken)
        allowed_s = max(0.001, until - runtime.monotonic())
        try:
            found = await asyncio.wait_for(future, allowed_s)
        except (asyncio.TimeoutError, TimeoutError):
            raise tokens.too_late(allowed_s * 1000) from None
        if isinstance(found, ExactlyOnceError):
            raise found
        return str(found.text)


async def _agree(connection: BrokerConnection, name: str, until: float) -> None:
    """Have the broker take this mechanism; its refusal where it does not."""
    # Version 0 has the mechanism's bytes without a frame (KIP-152): no broker since Kafka 1.0 needs it.
    answer = await connection.ask_now(SaslHandshakeRequest(version=1, mechanism=name), until)
    offered = tuple(answer.mechanisms or ())
    if answer.error_code != Code.NONE:
        refusal = _HANDSHAKES.get(answer.error_code, LoginNotAccepted)
        raise refusal(f"{name_of(answer.error_code)}: it offers {', '.join(offered) or 'no mechanism'}")
    if name not in offered:
        raise MechanismNotOffered(f"{name} is not among {', '.join(offered) or 'no mechanism'}")
