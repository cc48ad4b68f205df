"""One connection's login with SASL, as the broker keeps it: what the client may send next, and when its session ends.

Owns: the order of a login's requests, the session's end, the rules of re-authentication.
Does not know: sockets, the mechanisms' messages, users.
Invariants:
- No API is served before a login, except ApiVersions once and the login itself.
- A renewed login has the mechanism and the principal of the first one.
- After CLOSED nothing is served.

Sources: KIP-43, KIP-152, KIP-368; the states of Kafka's SaslServerAuthenticator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka_core.table import Move, Moves, step

RENEWED_AT_MOST_EVERY_MS = 1_000
"""Kafka's interval. A client that renews more often costs the broker a login per request; a shorter interval would
refuse nothing that clients do."""


class LoginState(Enum):
    """What the connection waits for."""

    CONNECTED = "a new connection: the client may ask for the APIs once, then it names a mechanism"
    VERSIONS_KNOWN = "the client has the list of APIs and has to name a mechanism"
    AUTHENTICATING = "the mechanism's messages go to and fro"
    LOGGED_IN = "every API is served until the session ends"
    RENEWING = "logged in, and the messages of a new login go to and fro (KIP-368)"
    CLOSED = "refused; the connection is closed behind the answer"


# ---- events


@dataclass(frozen=True)
class VersionsAsked:
    """ApiVersions. `now_ms`: the broker's time, here and below."""

    now_ms: int


@dataclass(frozen=True)
class MechanismNamed:
    """SaslHandshake. `offered`: whether this listener has the mechanism."""

    mechanism: str
    offered: bool
    now_ms: int


@dataclass(frozen=True)
class MessageCame:
    """SaslAuthenticate."""

    now_ms: int


@dataclass(frozen=True)
class OtherAsked:
    """Any other API, by its name."""

    api: str
    now_ms: int


@dataclass(frozen=True)
class MoreNeeded:
    """The mechanism has an answer and waits for the client's next message."""


@dataclass(frozen=True)
class CredentialsAccepted:
    """The mechanism knows the user. `ends_ms`: when the user's credentials end, None where they do not."""

    principal: str
    ends_ms: int | None
    now_ms: int


@dataclass(frozen=True)
class CredentialsRefused:
    """The mechanism refuses. `reason`: for the client; empty where the client must not learn it."""

    reason: str


Event = (
    VersionsAsked | MechanismNamed | MessageCame | OtherAsked | MoreNeeded | CredentialsAccepted | CredentialsRefused
)

# ---- effects


@dataclass(frozen=True)
class Serve:
    """Process the request like any other."""


@dataclass(frozen=True)
class StartMechanism:
    """Start the mechanism anew and confirm it."""

    mechanism: str


@dataclass(frozen=True)
class Evaluate:
    """Hand the message to the mechanism."""


@dataclass(frozen=True)
class Continue:
    """Send the mechanism's answer. `lifetime_ms`: how long the session lasts, 0 where it has no end or no user yet."""

    lifetime_ms: int = 0


class LoginRefusal(Enum):
    """How a refusal reaches the client."""

    SILENT = "the connection is closed without an answer"
    MECHANISM = "UNSUPPORTED_SASL_MECHANISM"
    STATE = "ILLEGAL_SASL_STATE"
    LOGIN = "SASL_AUTHENTICATION_FAILED"


@dataclass(frozen=True)
class RefuseLogin:
    """Refuse, and close the connection unless it stays usable."""

    kind: LoginRefusal
    reason: str


Effect = Serve | StartMechanism | Evaluate | Continue | RefuseLogin


@dataclass(frozen=True)
class Login:
    """One connection's login. `max_session_ms`: connections.max.reauth.ms, 0 for no limit but the credentials' own."""

    max_session_ms: int = 0
    state: LoginState = LoginState.CONNECTED
    mechanism: str = ""
    principal: str = ""
    ends_ms: int | None = None
    renewed_ms: int | None = None

    def handle(self, event: Event) -> tuple[Login, tuple[Effect, ...]]:
        """The next value and what the connection has to do; IllegalMove for an event that cannot come."""
        return step(MOVES, self, event, "login")

    def broken_invariant(self) -> str:
        """What is wrong with it; empty for a valid value."""
        if self.state in (LoginState.LOGGED_IN, LoginState.RENEWING) and not self.principal:
            return "logged in without a principal"
        if self.principal and not self.mechanism:
            return "a principal without a mechanism"
        return ""


_Done = tuple[Login, tuple[Effect, ...]]


def _versions(login: Login, _event: VersionsAsked) -> _Done:
    """The APIs are listed, once."""
    return replace(login, state=LoginState.VERSIONS_KNOWN), (Serve(),)


def _named(login: Login, event: MechanismNamed) -> _Done:
    """The mechanism begins, or is refused with the list of those that exist."""
    if not event.offered:
        return _closed(
            login, LoginRefusal.MECHANISM, f"the SASL mechanism {event.mechanism} is not enabled on this listener"
        )
    return replace(login, state=LoginState.AUTHENTICATING, mechanism=event.mechanism), (
        StartMechanism(event.mechanism),
    )


def _early(login: Login, event: VersionsAsked | MessageCame | OtherAsked) -> _Done:
    """Kafka closes the connection without an answer."""
    return _closed(login, LoginRefusal.SILENT, f"{_name(event)} before the login")


def _message(login: Login, _event: MessageCame) -> _Done:
    """The mechanism judges it."""
    return login, (Evaluate(),)


def _between(login: Login, event: VersionsAsked | MechanismNamed | OtherAsked) -> _Done:
    """A login's messages may not be interrupted."""
    return _closed(
        login, LoginRefusal.STATE, f"Unexpected Kafka request of type {_name(event)} during SASL authentication."
    )


def _more(login: Login, _event: MoreNeeded) -> _Done:
    """The mechanism's answer is sent."""
    return login, (Continue(),)


def _accepted(login: Login, event: CredentialsAccepted) -> _Done:
    """The session begins; it ends with the credentials or after connections.max.reauth.ms, whichever is earlier."""
    if login.state is LoginState.RENEWING and event.principal != login.principal:
        return _closed(
            login,
            LoginRefusal.LOGIN,
            f"Cannot change principals during re-authentication from {login.principal}: {event.principal}",
        )
    ends = [] if event.ends_ms is None else [event.ends_ms]
    if login.max_session_ms > 0:
        ends.append(event.now_ms + login.max_session_ms)
    ends_ms = max(min(ends), event.now_ms) if ends else None
    lifetime_ms = 0 if ends_ms is None else ends_ms - event.now_ms
    after = replace(login, state=LoginState.LOGGED_IN, principal=event.principal, ends_ms=ends_ms)
    return after, (Continue(lifetime_ms),)


def _rejected(login: Login, event: CredentialsRefused) -> _Done:
    """The client gets the reason, or a text that does not tell whether the user exists."""
    what = "re-authentication" if login.state is LoginState.RENEWING else "authentication"
    hidden = f"Authentication failed during {what} due to invalid credentials with SASL mechanism {login.mechanism}"
    return _closed(login, LoginRefusal.LOGIN, event.reason or hidden)


def _served(login: Login, event: VersionsAsked | OtherAsked) -> _Done:
    """Served, unless the session has ended: then the connection is closed without an answer."""
    if login.ends_ms is not None and event.now_ms > login.ends_ms:
        return _closed(login, LoginRefusal.SILENT, "the session has ended and the client did not log in again")
    return login, (Serve(),)


def _renewed(login: Login, event: MechanismNamed) -> _Done:
    """A new login begins, also after the session's end: the handshake is what keeps the connection."""
    if login.renewed_ms is not None and event.now_ms - login.renewed_ms < RENEWED_AT_MOST_EVERY_MS:
        return login, (RefuseLogin(LoginRefusal.STATE, "SaslHandshake less than a second after the last one"),)
    if event.mechanism != login.mechanism or not event.offered:
        return _closed(
            login,
            LoginRefusal.MECHANISM,
            f"a login with {login.mechanism} cannot be renewed with {event.mechanism}",
        )
    after = replace(login, state=LoginState.RENEWING, renewed_ms=event.now_ms)
    return after, (StartMechanism(event.mechanism),)


def _late(login: Login, _event: MessageCame) -> _Done:
    """A message without a handshake before it is refused; the connection stays usable."""
    return login, (
        RefuseLogin(LoginRefusal.STATE, "SaslAuthenticate request received after successful authentication"),
    )


def _closed(login: Login, kind: LoginRefusal, reason: str) -> _Done:
    return replace(login, state=LoginState.CLOSED), (RefuseLogin(kind, reason),)


def _name(event: VersionsAsked | MechanismNamed | MessageCame | OtherAsked) -> str:
    if isinstance(event, OtherAsked):
        return event.api
    return {VersionsAsked: "ApiVersions", MechanismNamed: "SaslHandshake", MessageCame: "SaslAuthenticate"}[type(event)]


_S = LoginState
MOVES: Moves[LoginState] = {
    (_S.CONNECTED, VersionsAsked): Move(_versions, _S.VERSIONS_KNOWN),
    (_S.CONNECTED, MechanismNamed): Move(_named, _S.AUTHENTICATING, _S.CLOSED),
    (_S.CONNECTED, MessageCame): Move(_early, _S.CLOSED),
    (_S.CONNECTED, OtherAsked): Move(_early, _S.CLOSED),
    (_S.VERSIONS_KNOWN, VersionsAsked): Move(_early, _S.CLOSED),
    (_S.VERSIONS_KNOWN, MechanismNamed): Move(_named, _S.AUTHENTICATING, _S.CLOSED),
    (_S.VERSIONS_KNOWN, MessageCame): Move(_early, _S.CLOSED),
    (_S.VERSIONS_KNOWN, OtherAsked): Move(_early, _S.CLOSED),
    (_S.AUTHENTICATING, VersionsAsked): Move(_between, _S.CLOSED),
    (_S.AUTHENTICATING, MechanismNamed): Move(_between, _S.CLOSED),
    (_S.AUTHENTICATING, MessageCame): Move(_message, _S.AUTHENTICATING),
    (_S.AUTHENTICATING, OtherAsked): Move(_between, _S.CLOSED),
    (_S.AUTHENTICATING, MoreNeeded): Move(_more, _S.AUTHENTICATING),
    (_S.AUTHENTICATING, CredentialsAccepted): Move(_accepted, _S.LOGGED_IN),
    (_S.AUTHENTICATING, CredentialsRefused): Move(_rejected, _S.CLOSED),
    (_S.LOGGED_IN, VersionsAsked): Move(_served, _S.LOGGED_IN, _S.CLOSED),
    (_S.LOGGED_IN, MechanismNamed): Move(_renewed, _S.LOGGED_IN, _S.RENEWING, _S.CLOSED),
    (_S.LOGGED_IN, MessageCame): Move(_late, _S.LOGGED_IN),
    (_S.LOGGED_IN, OtherAsked): Move(_served, _S.LOGGED_IN, _S.CLOSED),
    (_S.RENEWING, VersionsAsked): Move(_between, _S.CLOSED),
    (_S.RENEWING, MechanismNamed): Move(_between, _S.CLOSED),
    (_S.RENEWING, MessageCame): Move(_message, _S.RENEWING),
    (_S.RENEWING, OtherAsked): Move(_between, _S.CLOSED),
    (_S.RENEWING, MoreNeeded): Move(_more, _S.RENEWING),
    (_S.RENEWING, CredentialsAccepted): Move(_accepted, _S.LOGGED_IN, _S.CLOSED),
    (_S.RENEWING, CredentialsRefused): Move(_rejected, _S.CLOSED),
}
