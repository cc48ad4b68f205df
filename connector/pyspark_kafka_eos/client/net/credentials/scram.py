"""SCRAM as the client has it (RFC 5802, RFC 7677), with delegation tokens (KIP-48) and bounds.

Owns: the messages and their keys, the extension `tokenauth`, how much work a server may ask for.
Does not know: requests, where user and password come from.
Invariants:
- What is judged is what is used: each message is read once, and no attribute of it stands twice.
- No key is derived before the iterations are judged, so neither a stall nor a cheap guess is a server's to choose.
- The broker has proven that it knows the password's key before the exchange is done.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from kafka_core import runtime

LEAST_ITERATIONS = 4_096
"""RFC 7677's least, and Kafka's. With half, a server that records the proof guesses passwords twice as fast."""

MOST_ITERATIONS = 100_000
"""Six times the most that Apache Kafka lets a user have (16,384). 100,000 take 0.1 s of a core at each login; half
could refuse a careful operator, double is work that only a hostile server asks for.
"""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_BINDING = b"biws"
"""base64 of "n,,": the client binds no channel (RFC 5802, 7)."""


class Scram:
    """One exchange. `user`: with the escapes of RFC 5802, 5.1. `by_token`: user and password are the id and the HMAC of
    a delegation token.
    """

    def __init__(self, mechanism: str, user: str, password: str, *, by_token: bool) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = runtime.uuid4().hex.encode()
        extension = b",tokenauth=true" if by_token else b""
        self._bare = b"n=" + user.encode() + b",r=" + self._nonce + extension
        self._next = b"n,," + self._bare
        self._signature: bytes | None = None
        self._done = False

    def auth_bytes(self) -> bytes:
        """The next message."""
        return self._next

    def receive(self, data: bytes) -> None:
        """The broker's answer to it; ValueError where it is none. Keys are derived here: up to 0.1 s of work."""
        if self._signature is None:
            self._challenged(data)
            return
        (signature,) = _values(data, "v")
        if not hmac.compare_digest(base64.b64decode(signature, validate=True), self._signature):
            raise ValueError("its signature is not that of the password")
        self._done = True

    def _challenged(self, message: bytes) -> None:
        nonce, salt, count = server_first(message)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("it did not extend the client's nonce")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, count)
        client_key = self._sign(salted, b"Client Key")
        without = b"c=" + _NO_BINDING + b",r=" + nonce
        said = b",".join((self._bare, message, without))
        stored = hashlib.new(self._hash, client_key).digest()
        proof = bytes(one ^ other for one, other in zip(client_key, self._sign(stored, said), strict=True))
        self._signature = self._sign(self._sign(salted, b"Server Key"), said)
        self._next = without + b",p=" + base64.b64encode(proof)

    def _sign(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)

    def is_done(self) -> bool:
        """Whether the broker has proven itself."""
        return self._done

    def __repr__(self) -> str:
        return "<Scram, not shown>"


def server_first(message: bytes) -> tuple[bytes, bytes, int]:
    """Nonce, salt and iterations of a server's first message; ValueError with the reason where it is none, or the
    iterations are out of bounds.
    """
    nonce, salt, iterations = _values(message, "r", "s", "i")
    # Kafka's numbers have five digits; int() of a million of them would take seconds itself.
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 20:
        raise ValueError("its first message of SCRAM has no number of iterations")
    count = int(iterations)
    if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
        raise ValueError(
            f"it asks for {count} iterations of SCRAM, and this client takes {LEAST_ITERATIONS} to {MOST_ITERATIONS} "
            "(Apache Kafka's users have 4096 to 16384)"
        )
    return nonce.encode(), base64.b64decode(salt, validate=True), count


def _values(message: bytes, *names: str) -> list[str]:
    """The values of the attributes that a message begins with; extensions behind them are passed over (RFC 5802, 7).

    ValueError where they are others, or one stands twice: whoever judges the first and uses the last is led astray.
    """
    given = [each.partition("=") for each in message.decode(errors="replace").split(",")]
    found = [name for name, _, _ in given]
    if found[: len(names)] != list(names):
        raise ValueError(f"its message of SCRAM does not begin with the attributes {', '.join(names)}")
    if len(set(found)) < len(found):
        raise ValueError("its message of SCRAM has an attribute twice")
    return [value for _, _, value in given[: len(names)]]
