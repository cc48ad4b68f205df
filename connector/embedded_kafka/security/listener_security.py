"""The security of the broker's listener: which logins it offers, and what a client has to show before it is served.

Owns: the mechanisms that are offered, each connection's session, how a refusal is answered.
Does not know: sockets; which order a login has (`embedded_kafka.security.login`).
Invariants: a request that the login does not allow is never handled.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

from embedded_kafka.clock import Clock
from embedded_kafka.refusals import Disconnect
from embedded_kafka.security.acls import ANONYMOUS
from embedded_kafka.security.bearer import BearerExchange
from embedded_kafka.security.login import (
    Continue,
    CredentialsAccepted,
    CredentialsRefused,
    Effect,
    Event,
    Login,
    LoginRefusal,
    LoginState,
    MechanismNamed,
    MessageCame,
    MoreNeeded,
    OtherAsked,
    RefuseLogin,
    StartMechanism,
    VersionsAsked,
)
from embedded_kafka.security.mechanisms import Exchange, LoginFailed, PlainExchange
from embedded_kafka.security.scram import ScramExchange
from embedded_kafka.security.tls import distinguished_name, server_context
from embedded_kafka.security.tokens import Checks, checks
from embedded_kafka.security.users import HASHES, SETTING, Users
from embedded_kafka.settings.config import SecurityConfig
from embedded_kafka.wire.server import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    api_name,
)
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
UNKNOWN_CLIENT_BYTES = 524_288
"""Kafka's sasl.server.max.receive.size: a request before the login. Tokens have some kilobytes."""
_LOGIN_APIS = frozenset([SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY])

Made = Callable[[], Exchange]


class ListenerSecurity:
    """The listener's protocol and mechanisms. OptionsError for settings or files that cannot work."""

    def __init__(self, config: SecurityConfig, clock: Clock) -> None:
        self._clock = clock
        self._max_session_ms = config.max_reauth_ms
        uses_tls = config.protocol in ("SSL", "SASL_SSL")
        self._uses_sasl = config.protocol.startswith("SASL")
        self.tls: ssl.SSLContext | None = server_context(config) if uses_tls else None
        self.mechanisms: Mapping[str, Made] = _mechanisms(config, clock) if self._uses_sasl else {}

    def session(self) -> LoginSession | None:
        """A new connection's session; None where the listener asks for no login."""
        if not self._uses_sasl:
            return None
        return LoginSession(self.mechanisms, self._clock, self._max_session_ms)


class LoginSession:
    """One connection's login and what follows from it."""

    def __init__(self, mechanisms: Mapping[str, Made], clock: Clock, max_session_ms: int) -> None:
        self._mechanisms = mechanisms
        self._clock = clock
        self._login = Login(max_session_ms)
        self._exchange: Exchange | None = None
        self.closing = ""
        """Why the connection has to be closed behind the next answer; empty while it has not."""

    @property
    def principal(self) -> str:
        """`User:name`, or that of a client without a login."""
        return self._login.principal or ANONYMOUS

    @property
    def unknown(self) -> bool:
        """Whether nobody has logged in yet."""
        return not self._login.principal

    def admit(self, api_key: int) -> Code | None:
        """Judge a request before anything of it is parsed. None: it may be handled. A code: it has to be refused
        with it, and the connection closed. Disconnect where Kafka closes the connection without an answer."""
        if api_key in _LOGIN_APIS:
            return None
        now_ms = self._clock.now_ms()
        if api_key == ApiVersionsRequest.API_KEY:
            effect = self._handle(VersionsAsked(now_ms))
        else:
            effect = self._handle(OtherAsked(api_name(api_key), now_ms))
        return self._refused(effect)[0] if isinstance(effect, RefuseLogin) else None

    def handshake(self, mechanism: str) -> Code:
        """The code of SaslHandshake's answer. Disconnect as `admit`."""
        offered = mechanism in self._mechanisms
        effect = self._handle(MechanismNamed(mechanism, offered, self._clock.now_ms()))
        if isinstance(effect, RefuseLogin):
            return self._refused(effect)[0]
        if isinstance(effect, StartMechanism):
            self._exchange = self._mechanisms[effect.mechanism]()
        return Code.NONE

    async def authenticate(self, message: bytes) -> tuple[Code, str | None, bytes, int]:
        """(code, reason, answer of the mechanism, the session's length in ms) of SaslAuthenticate's answer. Disconnect
        as `admit`."""
        effect = self._handle(MessageCame(self._clock.now_ms()))
        if isinstance(effect, RefuseLogin):
            return *self._refused(effect), b"", 0
        assert self._exchange is not None
        answer = b""
        event: Event
        try:
            # In a thread, because a token's keys may have to be fetched.
            step = await asyncio.to_thread(self._exchange.take, message)
        except LoginFailed as failed:
            event = CredentialsRefused(failed.reason)
        else:
            answer = step.answer
            now_ms = self._clock.now_ms()
            event = (
                MoreNeeded() if step.user is None else CredentialsAccepted(f"User:{step.user}", step.ends_ms, now_ms)
            )
        effect = self._handle(event)
        if isinstance(effect, RefuseLogin):
            return *self._refused(effect), b"", 0
        assert isinstance(effect, Continue)
        return Code.NONE, None, answer, effect.lifetime_ms

    def _handle(self, event: Event) -> Effect:
        self._login, (effect,) = self._login.handle(event)
        return effect

    def _refused(self, refuse: RefuseLogin) -> tuple[Code, str]:
        if refuse.kind is LoginRefusal.SILENT:
            raise Disconnect(refuse.reason)
        if self._login.state is LoginState.CLOSED:
            self.closing = refuse.reason
        return Code[refuse.kind.value], refuse.reason


def principal_of(transport: asyncio.BaseTransport) -> str:
    """The principal of a connection without SASL: the name in the client's certificate, if it showed one."""
    connection = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert() if connection is not None else None
    return f"User:{distinguished_name(certificate)}" if certificate else ANONYMOUS


def _mechanisms(config: SecurityConfig, clock: Clock) -> dict[str, Made]:
    names = [name.strip() for name in config.mechanisms.split(",") if name.strip()]
    if not names:
        raise OptionsError(
            f"security.protocol={config.protocol} needs sasl.enabled.mechanisms; nothing was started",
            {"setting": "sasl.enabled.mechanisms"},
        )
    users = Users({})
    if any(name == "PLAIN" or name in HASHES for name in names):
        if not config.users_file:
            raise OptionsError(
                f"sasl.enabled.mechanisms={config.mechanisms} needs {SETTING}, the JSON file of their names and "
                "passwords; nothing was started",
                {"setting": SETTING},
            )
        users = Users.read(Path(config.users_file))
    tokens = checks(config, clock)
    return {name: _made(name, users, tokens) for name in names}


def _made(name: str, users: Users, tokens: Checks) -> Made:
    if name == "PLAIN":
        return lambda: PlainExchange(users)
    if name in HASHES:
        return lambda: ScramExchange(name, users)
    if name == "OAUTHBEARER":
        return lambda: BearerExchange(tokens)
    raise OptionsError(
        f"sasl.enabled.mechanisms: the embedded broker has PLAIN, {', '.join(HASHES)} and OAUTHBEARER, not {name}; nothing was started",
        {"setting": "sasl.enabled.mechanisms"},
    )
