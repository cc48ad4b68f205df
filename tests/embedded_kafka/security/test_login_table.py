"""Every (state, event) pair of a connection's login: where it leads, and when a session ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embedded_kafka.security.login import (
    MOVES,
    Accepted,
    Begin,
    Continue,
    Evaluate,
    Event,
    Login,
    MechanismNamed,
    MessageCame,
    MoreNeeded,
    OtherAsked,
    Refusal,
    Refuse,
    Rejected,
    Serve,
    State,
    VersionsAsked,
)
from tests.support.tables import Case, CaseTests, Table

NOW = 1_000_000
ENDS = NOW + 5_000
NEW = Login()
KNOWS = Login(state=State.VERSIONS_KNOWN)
ASKED = Login(state=State.AUTHENTICATING, mechanism="PLAIN")
IN = Login(state=State.LOGGED_IN, mechanism="PLAIN", principal="User:a", ends_ms=ENDS)
AGAIN = replace(IN, state=State.RENEWING, renewed_ms=NOW)
OUT = Login(state=State.CLOSED)

NAMED = MechanismNamed("PLAIN", True, NOW)
ABSENT = MechanismNamed("GSSAPI", False, NOW)
OTHER = OtherAsked("Metadata", NOW)
ACCEPTED = Accepted("User:a", None, NOW)


def silent(reason: str) -> tuple[Refuse]:
    return (Refuse(Refusal.SILENT, reason),)


def illegal(name: str) -> tuple[Refuse]:
    return (Refuse(Refusal.STATE, f"Unexpected Kafka request of type {name} during SASL authentication."),)


def closed(login: Login) -> Login:
    return replace(login, state=State.CLOSED)


def hidden(what: str) -> tuple[Refuse]:
    text = f"Authentication failed during {what} due to invalid credentials with SASL mechanism PLAIN"
    return (Refuse(Refusal.LOGIN, text),)


def absent(login: Login) -> Case:
    reason = "the SASL mechanism GSSAPI is not enabled on this listener"
    return login, ABSENT, closed(login), (Refuse(Refusal.MECHANISM, reason),)


def begun(login: Login) -> Case:
    return login, NAMED, replace(login, state=State.AUTHENTICATING, mechanism="PLAIN"), (Begin("PLAIN"),)


def ended(event: Any) -> Case:
    late = replace(event, now_ms=ENDS + 1)
    return IN, late, closed(IN), silent("the session has ended and the client did not log in again")


EXPECTED: dict[tuple[State, type], list[Case]] = {
    (State.CONNECTED, VersionsAsked): [(NEW, VersionsAsked(NOW), KNOWS, (Serve(),))],
    (State.CONNECTED, MechanismNamed): [begun(NEW), absent(NEW)],
    (State.CONNECTED, MessageCame): [(NEW, MessageCame(NOW), OUT, silent("SaslAuthenticate before the login"))],
    (State.CONNECTED, OtherAsked): [(NEW, OTHER, OUT, silent("Metadata before the login"))],
    (State.VERSIONS_KNOWN, VersionsAsked): [(KNOWS, VersionsAsked(NOW), OUT, silent("ApiVersions before the login"))],
    (State.VERSIONS_KNOWN, MechanismNamed): [begun(KNOWS), absent(KNOWS)],
    (State.VERSIONS_KNOWN, MessageCame): [(KNOWS, MessageCame(NOW), OUT, silent("SaslAuthenticate before the login"))],
    (State.VERSIONS_KNOWN, OtherAsked): [(KNOWS, OTHER, OUT, silent("Metadata before the login"))],
    (State.AUTHENTICATING, VersionsAsked): [(ASKED, VersionsAsked(NOW), closed(ASKED), illegal("ApiVersions"))],
    (State.AUTHENTICATING, MechanismNamed): [(ASKED, NAMED, closed(ASKED), illegal("SaslHandshake"))],
    (State.AUTHENTICATING, MessageCame): [(ASKED, MessageCame(NOW), ASKED, (Evaluate(),))],
    (State.AUTHENTICATING, OtherAsked): [(ASKED, OTHER, closed(ASKED), illegal("Metadata"))],
    (State.AUTHENTICATING, MoreNeeded): [(ASKED, MoreNeeded(), ASKED, (Continue(),))],
    (State.AUTHENTICATING, Accepted): [(ASKED, ACCEPTED, replace(IN, ends_ms=None), (Continue(),))],
    (State.AUTHENTICATING, Rejected): [
        (ASKED, Rejected("wrong"), closed(ASKED), (Refuse(Refusal.LOGIN, "wrong"),)),
        (ASKED, Rejected(""), closed(ASKED), hidden("authentication")),
    ],
    (State.LOGGED_IN, VersionsAsked): [
        (IN, VersionsAsked(ENDS), IN, (Serve(),)),
        ended(VersionsAsked(0)),
    ],
    (State.LOGGED_IN, OtherAsked): [(IN, OtherAsked("Fetch", ENDS), IN, (Serve(),)), ended(OTHER)],
    (State.LOGGED_IN, MechanismNamed): [
        (IN, NAMED, AGAIN, (Begin("PLAIN"),)),
        (IN, replace(NAMED, now_ms=ENDS + 9), replace(AGAIN, renewed_ms=ENDS + 9), (Begin("PLAIN"),)),
        (
            replace(IN, renewed_ms=NOW - 999),
            NAMED,
            replace(IN, renewed_ms=NOW - 999),
            (Refuse(Refusal.STATE, "SaslHandshake less than a second after the last one"),),
        ),
        (replace(IN, renewed_ms=NOW - 1_000), NAMED, AGAIN, (Begin("PLAIN"),)),
        (
            IN,
            MechanismNamed("SCRAM-SHA-256", True, NOW),
            closed(IN),
            (Refuse(Refusal.MECHANISM, "a login with PLAIN cannot be renewed with SCRAM-SHA-256"),),
        ),
    ],
    (State.LOGGED_IN, MessageCame): [
        (
            IN,
            MessageCame(NOW),
            IN,
            (Refuse(Refusal.STATE, "SaslAuthenticate request received after successful authentication"),),
        )
    ],
    (State.RENEWING, VersionsAsked): [(AGAIN, VersionsAsked(NOW), closed(AGAIN), illegal("ApiVersions"))],
    (State.RENEWING, MechanismNamed): [(AGAIN, NAMED, closed(AGAIN), illegal("SaslHandshake"))],
    (State.RENEWING, MessageCame): [(AGAIN, MessageCame(NOW), AGAIN, (Evaluate(),))],
    (State.RENEWING, OtherAsked): [(AGAIN, OTHER, closed(AGAIN), illegal("Metadata"))],
    (State.RENEWING, MoreNeeded): [(AGAIN, MoreNeeded(), AGAIN, (Continue(),))],
    (State.RENEWING, Accepted): [
        (AGAIN, ACCEPTED, replace(AGAIN, state=State.LOGGED_IN, ends_ms=None), (Continue(),)),
        (
            AGAIN,
            Accepted("User:b", None, NOW),
            closed(AGAIN),
            (Refuse(Refusal.LOGIN, "Cannot change principals during re-authentication from User:a: User:b"),),
        ),
    ],
    (State.RENEWING, Rejected): [(AGAIN, Rejected(""), closed(AGAIN), hidden("re-authentication"))],
}

EVENTS: dict[type, Event] = {
    type(event): event
    for event in (
        VersionsAsked(NOW), NAMED, MessageCame(NOW), OTHER, MoreNeeded(), ACCEPTED, Rejected("wrong"),
    )
}  # fmt: skip


class TestLogin(CaseTests):
    table = Table(
        name="login",
        moves=MOVES,
        states=State,
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
    login, effects = replace(ASKED, max_session_ms=longest).handle(Accepted("User:a", credentials_end, NOW))

    assert effects == (Continue(lifetime),)
    limited = longest or credentials_end is not None
    assert login.ends_ms == (NOW + lifetime if limited else None)
