"""The SASL exchange of one connection (KIP-43, KIP-152, KIP-368), and where its credentials come from.

Owns: the requests of a login and their order, which mechanism answers, what is done beside the connections' loop.
Does not know: sockets, when a login is due, what a refusal means.
Invariants:
- Credentials are read anew for each login, and no connection keeps them.
- What a mechanism or a credential fails with is the cause of a `KafkaError`: any other class ends the library's refresh
  of the metadata.
- A token endpoint or a KDC is never asked on the loop's thread.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Protocol

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from pyspark_kafka_eos.client.net import login
from pyspark_kafka_eos.client.net.credentials.kerberos import Gssapi
from pyspark_kafka_eos.client.net.credentials.scram import Scram
from pyspark_kafka_eos.client.net.oauth import tokens
from pyspark_kafka_eos.client.net.oauth.bearer import Bearer
from pyspark_kafka_eos.client.net.oauth.tokens import Token, Tokens
from pyspark_kafka_eos.client.net.refusals import Asked
from pyspark_kafka_eos.model import ClientSettings


class Mechanism(Protocol):
    """The client's side of a mechanism."""

    def auth_bytes(self) -> bytes:
        """The next message to the broker."""

    def receive(self, data: bytes) -> object:
        """The broker's answer to it."""

    def is_done(self) -> bool:
        """Whether no message is left."""

    def is_authenticated(self) -> bool:
        """Whether the broker has proven itself, where the mechanism has that."""


class Logins:
    """The logins of one cluster's connections. Everything runs on the loop's thread."""

    def __init__(self, net: Any, wait_for: Any, asked: Asked, settings: ClientSettings) -> None:
        self._net, self._wait_for, self._asked = net, wait_for, asked
        self._security = settings.security
        self._allowed_ms = settings.request_timeout_ms
        self._tokens: Tokens | None = None
        if asked.oauth is not None:
            self._tokens = tokens.shared(asked.oauth, settings.bootstrap_servers)

    async def log_in(self, connection: Any, timeout_at: float | None = None) -> None:
        """One login with the credentials of this moment; KafkaError with the cause where it fails."""
        until = connection._timeout_at() if timeout_at is None else timeout_at
        token = None
        try:
            if self._tokens is not None:
                token = await self._token(self._tokens, timeout_at)
            found = login.credentials(self._security)
        except ExactlyOnceError as error:
            raise kafka_errors.KafkaConnectionError(str(error)) from error
        name = str(self._asked.mechanism)
        await _agree(connection, name, until)
        try:
            mechanism = await self._mechanism(connection, name, found, token, until)
            await _exchange(connection, name, mechanism, until)
        except kafka_errors.SaslAuthenticationFailedError:
            if self._tokens is not None and token is not None:
                self._tokens.drop(token)
            raise
        except kafka_errors.KafkaError:
            raise
        except Exception as error:
            raise kafka_errors.KafkaConnectionError(str(error)) from error

    async def _mechanism(
        self, connection: Any, name: str, found: dict[str, Any], token: str | None, until: float
    ) -> Mechanism:
        protocol = {"security_protocol": self._asked.protocol}
        if token is not None:
            provider = Bearer(token, self._asked.oauth)
            return SaslMechanismOAuth(sasl_oauth_token_provider=provider, **protocol)  # type: ignore[no-any-return]
        kerberos = self._asked.kerberos
        if kerberos is not None:
            # By the name of the settings: the KDC knows brokers by it, and not by an address.
            host = connection.transport.host or connection.transport.getPeer()[0]
            made: Mechanism = await self._beside(functools.partial(Gssapi, kerberos, host), until)
            return made
        if name == "PLAIN":
            return SaslMechanismPlain(**found, **protocol)  # type: ignore[no-any-return]
        return Scram(by_token=self._asked.by_token, **found, **protocol)

    async def _beside(self, work: Callable[[], Any], until: float) -> Any:
        """The result of work that waits for others, done on a thread of its own."""
        future = Future()

        def run() -> None:
            try:
                done = functools.partial(future.success, work())
            except BaseException as error:  # noqa: BLE001 -- the login would wait for ever
                done = functools.partial(future.failure, error)
            self._hand_over(done)

        runtime.thread(run, "kafka-eos-login").start()
        return await self._wait_for(future, max(1.0, (until - runtime.monotonic()) * 1000))

    async def _token(self, tokens: Tokens, timeout_at: float | None) -> str:
        """A token that was fetched beside this loop; the error of the fetch, or TokenUnavailable at `timeout_at`."""
        future = Future()

        def taken(found: Token | ExactlyOnceError) -> None:
            self._hand_over(functools.partial(future.success, found))

        tokens.get(taken)
        allowed_ms: float = self._allowed_ms
        if timeout_at is not None:
            allowed_ms = max(1.0, (timeout_at - runtime.monotonic()) * 1000)
        try:
            found = await self._wait_for(future, allowed_ms)
        except kafka_errors.KafkaTimeoutError:
            raise tokens.too_late(allowed_ms) from None
        if isinstance(found, ExactlyOnceError):
            raise found
        return str(found.text)

    def _hand_over(self, done: Callable[[], object]) -> None:
        # A loop that is closed meanwhile has nobody who waits.
        with contextlib.suppress(Exception):
            # The library takes functions for tasks, and no partials.
            self._net.call_soon_threadsafe(lambda: done())


async def _agree(connection: Any, name: str, until: float) -> None:
    """Have the broker take this mechanism; its own error where it does not."""
    answer = await connection._send_request(SaslHandshakeRequest(mechanism=name, max_version=1), timeout_at=until)
    refusal = kafka_errors.for_code(answer.error_code)
    if refusal is not kafka_errors.NoError:
        raise refusal()
    if name not in (answer.mechanisms or ()):
        raise kafka_errors.UnsupportedSaslMechanismError(f"{name} is not among {answer.mechanisms}")


async def _exchange(connection: Any, name: str, mechanism: Mechanism, until: float) -> None:
    """The mechanism's messages, and the session that follows."""
    answer: Any = None
    while not mechanism.is_done():
        if runtime.monotonic() >= until:
            raise kafka_errors.KafkaTimeoutError("the login was not finished in time")
        request = SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes())
        answer = await connection._send_request(request, timeout_at=until)
        refusal = kafka_errors.for_code(answer.error_code)
        if refusal is not kafka_errors.NoError:
            raise kafka_errors.SaslAuthenticationFailedError(f"{refusal.__name__}: {answer.error_message}")
        mechanism.receive(answer.auth_bytes)
    if not mechanism.is_authenticated():
        raise kafka_errors.SaslAuthenticationFailedError(f"{name}: the broker has not proven itself")
    # KIP-368. An answer of version 0 has no lifetime: the session does not end.
    connection._reauth.session_updated(getattr(answer, "session_lifetime_ms", 0))
