"""Every (state, event) pair of a connection's login: where it leads, and when a session ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embedded_kafka.security.login import (
    MOVES,
    Continue,
    CredentialsAccepted,
    CredentialsRefused,
    Evaluate,
    Event,
    Login,
    LoginRefusal,
    LoginState,
    MechanismNamed,
    MessageCame,
    MoreNeeded,
    OtherAsked,
    RefuseLogin,
    Serve,
    StartMechanism,
    VersionsAsked,
)
from tests.support.tables import Case, CaseTests, Table

NOW = 1_000_000
ENDS = NOW + 5_000
NEW = Login()
KNOWS = Login(state=LoginState.VERSIONS_KNOWN)
ASKED = Login(state=LoginState.AUTHENTICATING, mechanism="PLAIN")
IN = Login(state=LoginState.LOGGED_IN, mechanism="PLAIN", principal="User:a", ends_ms=ENDS)
AGAIN = replace(IN, state=LoginState.RENEWING, renewed_ms=NOW)
OUT = Login(state=LoginState.CLOSED)

NAMED = MechanismNamed("PLAIN", True, NOW)
ABSENT = MechanismNamed("GSSAPI", False, NOW)
OTHER = OtherAsked("Metadata", NOW)
ACCEPTED = CredentialsAccepted("User:a", None, NOW)


def silent(reason: str) -> tuple[RefuseLogin]:
    return (RefuseLogin(LoginRefusal.SILENT, reason),)


def illegal(name: str) -> tuple[RefuseLogin]:
    return (RefuseLogin(LoginRefusal.STATE, f"Unexpected Kafka request of type {name} during SASL authentication."),)


def closed(login: Login) -> Login:
    return replace(login, state=LoginState.CLOSED)


def hidden(what: str) -> tuple[RefuseLogin]:
    text = f"Authentication failed during {what} due to invalid credentials with SASL mechanism PLAIN"
    return (RefuseLogin(LoginRefusal.LOGIN, text),)


def absent(login: Login) -> Case:
    reason = "the SASL mechanism GSSAPI is not enabled on this listener"
    return login, ABSENT, closed(login), (RefuseLogin(LoginRefusal.MECHANISM, reason),)


def begun(login: Login) -> Case:
    return login, NAMED, replace(login, state=LoginState.AUTHENTICATING, mechanism="PLAIN"), (StartMechanism("PLAIN"),)


def ended(event: Any) -> Case:
    late = replace(event, now_ms=ENDS + 1)
    return IN, late, closed(IN), silent("the session has ended and the client did not log in again")


EXPECTED: dict[tuple[LoginState, type], list[Case]] = {
    (LoginState.CONNECTED, VersionsAsked): [(NEW, VersionsAsked(NOW), KNOWS, (Serve(),))],
    (LoginState.CONNECTED, MechanismNamed): [begun(NEW), absent(NEW)],
    (LoginState.CONNECTED, MessageCame): [(NEW, MessageCame(NOW), OUT, silent("SaslAuthenticate before the login"))],
    (LoginState.CONNECTED, OtherAsked): [(NEW, OTHER, OUT, silent("Metadata before the login"))],
    (LoginState.VERSIONS_KNOWN, VersionsAsked): [
        (KNOWS, VersionsAsked(NOW), OUT, silent("ApiVersions before the login"))
    ],
    (LoginState.VERSIONS_KNOWN, MechanismNamed): [begun(KNOWS), absent(KNOWS)],
    (LoginState.VERSIONS_KNOWN, MessageCame): [
        (KNOWS, MessageCame(NOW), OUT, silent("SaslAuthenticate before the login"))
    ],
    (LoginState.VERSIONS_KNOWN, OtherAsked): [(KNOWS, OTHER, OUT, silent("Metadata before the login"))],
    (LoginState.AUTHENTICATING, VersionsAsked): [(ASKED, VersionsAsked(NOW), closed(ASKED), illegal("ApiVersions"))],
    (LoginState.AUTHENTICATING, MechanismNamed): [(ASKED, NAMED, closed(ASKED), illegal("SaslHandshake"))],
    (LoginState.AUTHENTICATING, MessageCame): [(ASKED, MessageCame(NOW), ASKED, (Evaluate(),))],
    (LoginState.AUTHENTICATING, OtherAsked): [(ASKED, OTHER, closed(ASKED), illegal("Metadata"))],
    (LoginState.AUTHENTICATING, MoreNeeded): [(ASKED, MoreNeeded(), ASKED, (Continue(),))],
    (LoginState.AUTHENTICATING, CredentialsAccepted): [(ASKED, ACCEPTED, replace(IN, ends_ms=None), (Continue(),))],
    (LoginState.AUTHENTICATING, CredentialsRefused): [
        (ASKED, CredentialsRefused("wrong"), closed(ASKED), (RefuseLogin(LoginRefusal.LOGIN, "wrong"),)),
        (ASKED, CredentialsRefused(""), closed(ASKED), hidden("authentication")),
    ],
    (LoginState.LOGGED_IN, VersionsAsked): [
        (IN, VersionsAsked(ENDS), IN, (Serve(),)),
        ended(VersionsAsked(0)),
    ],
    (LoginState.LOGGED_IN, OtherAsked): [(IN, OtherAsked("Fetch", ENDS), IN, (Serve(),)), ended(OTHER)],
    (LoginState.LOGGED_IN, MechanismNamed): [
        (IN, NAMED, AGAIN, (StartMechanism("PLAIN"),)),
        (IN, replace(NAMED, now_ms=ENDS + 9), replace(AGAIN, renewed_ms=ENDS + 9), (StartMechanism("PLAIN"),)),
        (
            replace(IN, renewed_ms=NOW - 999),
            NAMED,
            replace(IN, renewed_ms=NOW - 999),
            (RefuseLogin(LoginRefusal.STATE, "SaslHandshake less than a second after the last one"),),
        ),
        (replace(IN, renewed_ms=NOW - 1_000), NAMED, AGAIN, (StartMechanism("PLAIN"),)),
        (
            IN,
            MechanismNamed("SCRAM-SHA-256", True, NOW),
            closed(IN),
            (RefuseLogin(LoginRefusal.MECHANISM, "a login with PLAIN cannot be renewed with SCRAM-SHA-256"),),
        ),
    ],
    (LoginState.LOGGED_IN, MessageCame): [
        (
            IN,
            MessageCame(NOW),
            IN,
            (RefuseLogin(LoginRefusal.STATE, "SaslAuthenticate request received after successful authentication"),),
        )
    ],
    (LoginState.RENEWING, VersionsAsked): [(AGAIN, VersionsAsked(NOW), closed(AGAIN), illegal("ApiVersions"))],
    (LoginState.RENEWING, MechanismNamed): [(AGAIN, NAMED, closed(AGAIN), illegal("SaslHandshake"))],
    (LoginState.RENEWING, MessageCame): [(AGAIN, MessageCame(NOW), AGAIN, (Evaluate(),))],
    (LoginState.RENEWING, OtherAsked): [(AGAIN, OTHER, closed(AGAIN), illegal("Metadata"))],
    (LoginState.RENEWING, MoreNeeded): [(AGAIN, MoreNeeded(), AGAIN, (Continue(),))],
    (LoginState.RENEWING, CredentialsAccepted): [
        (AGAIN, ACCEPTED, replace(AGAIN, state=LoginState.LOGGED_IN, ends_ms=None), (Continue(),)),
        (
            AGAIN,
            CredentialsAccepted("User:b", None, NOW),
            closed(AGAIN),
            (RefuseLogin(LoginRefusal.LOGIN, "Cannot change principals during re-authentication from User:a: User:b"),),
        ),
    ],
    (LoginState.RENEWING, CredentialsRefused): [
        (AGAIN, CredentialsRefused(""), closed(AGAIN), hidden("re-authentication"))
    ],
}

EVENTS: dict[type, Event] = {
    type(event): event
    for event in (
        VersionsAsked(NOW), NAMED, MessageCame(NOW), OTHER, MoreNeeded(), ACCEPTED, CredentialsRefused("wrong"),
    )
}  # fmt: skip


class TestLogin(CaseTests):
    table = Table(
        name="login",
        moves=MOVES,
        states=LoginState,
        event_type=Event,
        events=EVENTS,
        values={each.state: each for each in (NEW, KNOWS, ASKED, IN, AGAIN, OUT)},
        expected=EXPECTED,
    )


@pytest.mark.parametrize(
    ("longest", "credentials_end", "lifetime"),
    [
        (0, None, 0),
        (60_000, None, 60_000),
        (0, NOW + 10_000, 10_000),
        (60_000, NOW + 10_000, 10_000),
        (60_000, NOW + 90_000, 60_000),
        (60_000, NOW - 1, 0),
    ],
)
def test_a_session_ends_with_the_credentials_or_with_the_setting_whichever_is_earlier(
    longest: int, credentials_end: int | None, lifetime: int
) -> None:
    login, effects = replace(ASKED, max_session_ms=longest).handle(CredentialsAccepted("User:a", credentials_end, NOW))

    assert effects == (Continue(lifetime),)
    limited = longest or credentials_end is not None
    assert login.ends_ms == (NOW + lifetime if limited else None)
