"""What every SASL mechanism of the broker has, and PLAIN (RFC 4616).

Owns: the face of an exchange.
Does not know: requests, sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from embedded_kafka.security.users import Users

OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailed(Exception):
    """The mechanism refuses the client. `reason`: for the client; empty where it would tell which users exist."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class ExchangeStep:
    """What the mechanism makes of one message. `user`: None while the exchange goes on; `ends_ms`: when the user's
    credentials end, in the milliseconds of Unix, None where they do not."""

    answer: bytes
    user: str | None = None
    ends_ms: int | None = None


class Exchange(Protocol):
    """One login's messages."""

    def take(self, message: bytes) -> ExchangeStep:
        """The client's next message; LoginFailed where it is refused."""


class PlainExchange:
    """User and password in one message."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def take(self, message: bytes) -> ExchangeStep:
        """The client's only message."""
        parts = text_of(message).split("\0")
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        if not self._users.knows(user, password):
            raise LoginFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise LoginFailed(OTHER_ID)
        return ExchangeStep(b"", user)


def text_of(message: bytes) -> str:
    """The message's text; LoginFailed where it is not UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed from None
