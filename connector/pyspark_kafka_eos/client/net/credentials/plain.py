"""PLAIN as the client has it (RFC 4616).

Owns: its one message.
Does not know: where user and password come from.
"""

from __future__ import annotations


class Plain:
    """One exchange."""

    def __init__(self, user: str, password: str) -> None:
        # The identity to act as and the one that logs in are the same, as in the Java client.
        self._message = "\0".join((user, user, password)).encode()
        self._done = False

    def auth_bytes(self) -> bytes:
        """The only message."""
        return self._message

    def receive(self, data: bytes) -> None:
        """The broker's answer; ValueError where there is anything in it."""
        if data:
            raise ValueError("it answers PLAIN with a message, and the mechanism has none")
        self._done = True

    def is_done(self) -> bool:
        """Whether the broker has answered."""
        return self._done

    def __repr__(self) -> str:
        return "<Plain, not shown>"
