"""OAUTHBEARER as the client has it (RFC 7628, KIP-255).

Owns: the messages that carry a token.
Does not know: where the token is from.
"""

from __future__ import annotations

from pyspark_kafka_eos.client.net.oauth.settings import OAuth


class Bearer:
    """One exchange with a token that is there already."""

    def __init__(self, token: str, oauth: OAuth | None) -> None:
        pairs = {} if oauth is None else oauth.pairs()
        fields = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in pairs.items())]
        self._next = ("n,,\x01" + "\x01".join(fields) + "\x01\x01").encode()
        self._done = False

    def auth_bytes(self) -> bytes:
        """The next message."""
        return self._next

    def receive(self, data: bytes) -> None:
        """The broker's answer: nothing where it takes the token. Else its reason as JSON: the client's last message
        then gets the refusal (RFC 7628, 3.2.3).
        """
        if data:
            self._next = b"\x01"
        else:
            self._done = True

    def is_done(self) -> bool:
        """Whether the broker has taken the token."""
        return self._done

    def __repr__(self) -> str:
        return "<Bearer, not shown>"
