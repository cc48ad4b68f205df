"""Why a connection could not be made, or has ended: what happened, before anybody judges whose fault it is.

Owns: the classes of such failures. `refusals` makes errors of this package out of them.
Does not know: the options, who is to act.
Invariants: the text is one clause of plain English, without the server's name, without a credential.
"""

from __future__ import annotations

import errno
import os


class ConnectionFailed(Exception):
    """No connection. The text says why."""


class TimedOut(ConnectionFailed):
    """Something took longer than it may."""


class ConnectionClosed(ConnectionFailed):
    """The other side, or this one, has ended the connection."""


class NameFailed(ConnectionFailed):
    """The name service gave no address; `code` is getaddrinfo's."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.code = code


class HandshakeFailed(ConnectionFailed):
    """The TLS handshake failed; the cause is the reason."""


class NotKafka(ConnectionFailed):
    """The first bytes of the server are not Kafka's. `speaks`: "TLS" or "HTTP"."""

    def __init__(self, speaks: str) -> None:
        super().__init__(f"the server speaks {speaks}, not Kafka's protocol")
        self.speaks = speaks

    def __reduce__(self) -> tuple[type[NotKafka], tuple[str]]:
        return NotKafka, (self.speaks,)


class OtherNode(ConnectionFailed):
    """Another broker, or another cluster's, answers at the address (KIP-1242)."""


class LacksApi(ConnectionFailed):
    """The server does not have what the connection cannot do without."""


class LoginNotAccepted(ConnectionFailed):
    """The broker has refused the credentials; the text is its own."""


class MechanismNotOffered(ConnectionFailed):
    """The listener has other mechanisms than the one asked for."""


class NoLoginExpected(ConnectionFailed):
    """The listener takes no login now (ILLEGAL_SASL_STATE)."""


class NoRight(ConnectionFailed):
    """The broker refuses the connection for a right that is missing."""


REFUSED = (LoginNotAccepted, MechanismNotOffered, NoLoginExpected, NoRight)
"""A broker's answers to a login that another attempt does not change."""


def of_system(error: OSError) -> str:
    """The operating system's reason in words, with its name: `ECONNREFUSED (Connection refused)`."""
    if error.errno is None:
        return str(error) or type(error).__name__
    name = errno.errorcode.get(error.errno, str(error.errno))
    return f"{name} ({os.strerror(error.errno)})"
