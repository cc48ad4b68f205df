"""A listener of a Kafka broker as far as a login needs it: versions, SASL, one answer to Metadata; with TLS where it
has a context.

It refuses as Kafka does: the answer to a wrong password and the end of the stream leave together.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, DESCRIBE_TRANSACTIONS = 3, 17, 18, 36, 65
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = (
    33,
    34,
    35,
    58,
)
VERSIONS = [(0, 0, 5), (1, 4, 8), (METADATA, 1, 1), (API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 0), (DESCRIBE_TRANSACTIONS, 0, 0)]  # fmt: skip
WAIT_S = 30.0
_ITERATIONS = "4096"
_LARGEST = 1 << 20
_NEVER = 0


class Listener:
    """`users`: name to password; `mechanisms`: those offered, none for a listener without SASL.

    `silent`: a wrong password ends the connection without an answer. `judges`: whether a token is accepted.
    `iterations`: what the first message of SCRAM says. `lacks`: APIs that end the connection, `hides` them from the
    list of versions too: a broker or a proxy without SASL. `advertises`: the port that Metadata names, in place of its
    own. `silent_from`: the connections from this one on, as they were made, are answered; older ones get no answer.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: Sequence[str] = (),
        users: dict[str, str] | None = None,
        silent: bool = False,
        judges: Callable[[str], bool] = bool,
        lacks: Sequence[int] = (),
        hides: bool = False,
        port: int = 0,
        iterations: str = _ITERATIONS,
        advertises: int | None = None,
    ) -> None:
        self.advertises = advertises
        self.silent_from = _NEVER
        self.lacks, self.hides, self.iterations = frozenset(lacks), hides, iterations
        self.by_token: list[bool] = []
        self._tls, self._mechanisms, self._users, self._silent = tls, tuple(mechanisms), users or {}, silent
        self._judges = judges
        self.tokens: list[str] = []
        self.extensions: list[dict[str, str]] = []
        self.connections = self.logins = 0
        self.named: list[str] = []
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(WAIT_S)
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(WAIT_S)

    def _accept(self) -> None:
        while True:
            try:
                link = self._socket.accept()[0]
            except OSError:
                return
            self.connections += 1
            link.settimeout(WAIT_S)
            self._open.append(link)
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        try:
            if self._tls is not None:
                link = self._tls.wrap_socket(link, server_side=True)
                self._open.append(link)
            _Conversation(self, link).run()
        except (OSError, ValueError, struct.error):
            pass
        finally:
            link.close()

    # ---- the rules, for the conversations

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Those offered."""
        return self._mechanisms

    def password_of(self, name: str) -> str | None:
        """A login begins: the password of this user."""
        self.logins += 1
        self.named.append(name)
        return self._users.get(name)

    def accepts(self, token: str, extensions: dict[str, str]) -> bool:
        """A login begins: whether this token is accepted."""
        self.logins += 1
        self.tokens.append(token)
        self.extensions.append(extensions)
        return self._judges(token)

    @property
    def silent(self) -> bool:
        """Whether a refusal has no answer."""
        return self._silent


class _Conversation:
    """One connection."""

    def __init__(self, listener: Listener, link: socket.socket) -> None:
        self._listener, self._link = listener, link
        self._mechanism: str | None = None
        self._done = not listener.mechanisms
        self._scram: _Scram | None = None
        self._refused = False
        self._number = listener.connections

    def run(self) -> None:
        """Answer until the other side has gone or is refused."""
        with self._link.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                size = struct.unpack(">i", head)[0]
                if not 0 < size < _LARGEST:
                    return
                frame = stream.read(size)
                api, version, correlation = struct.unpack_from(">hhi", frame)
                (name_length,) = struct.unpack_from(">h", frame, 8)
                if self._number < self._listener.silent_from:
                    continue
                answer, goes_on = self._answer(api, version, frame[10 + max(name_length, 0) :])
                if answer:
                    self._link.sendall(struct.pack(">ii", len(answer) + 4, correlation) + answer)
                if not goes_on:
                    return

    def _answer(self, api: int, version: int, body: bytes) -> tuple[bytes, bool]:
        if api in self._listener.lacks:
            return b"", False
        if api == API_VERSIONS:
            hidden = self._listener.lacks if self._listener.hides else ()
            versions = [each for each in VERSIONS if each[0] not in hidden]
            # Version 0 whatever was asked, as an older broker answers a newer client.
            listed = b"".join(struct.pack(">hhh", *each) for each in versions)
            return struct.pack(">hi", 0 if version == 0 else UNSUPPORTED_VERSION, len(versions)) + listed, True
        if api == SASL_HANDSHAKE:
            return self._handshake(_read_text(body))
        if api == SASL_AUTHENTICATE and self._mechanism is not None:
            (length,) = struct.unpack_from(">i", body)
            return self._authenticate(body[4 : 4 + length])
        if not self._done:
            # Kafka ends a connection that asks for anything before it has logged in.
            return b"", False
        assert api == METADATA
        port = self._listener.port if self._listener.advertises is None else self._listener.advertises
        broker = struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">ih", port, -1)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 1, 0), True

    def _handshake(self, mechanism: str) -> tuple[bytes, bool]:
        offered = self._listener.mechanisms
        listed = struct.pack(">i", len(offered)) + b"".join(map(_text, offered))
        if not offered:
            return struct.pack(">h", ILLEGAL_SASL_STATE) + listed, True
        if mechanism not in offered:
            return struct.pack(">h", UNSUPPORTED_SASL_MECHANISM) + listed, False
        self._mechanism = mechanism
        return struct.pack(">h", 0) + listed, True

    def _authenticate(self, token: bytes) -> tuple[bytes, bool]:
        if self._mechanism == "OAUTHBEARER":
            answer = self._bearer(token)
        else:
            answer = self._plain(token) if self._mechanism == "PLAIN" else self._scrammed(token)
        if answer is None:
            text = (
                '{"status":"invalid_token"}' if self._refused else "Authentication failed: Invalid username or password"
            )
            refusal = struct.pack(">h", SASL_AUTHENTICATION_FAILED) + _text(text) + struct.pack(">i", 0)
            return (b"" if self._listener.silent else refusal), False
        return struct.pack(">hhi", 0, -1, len(answer)) + answer, True

    def _bearer(self, message: bytes) -> bytes | None:
        """RFC 7628: a refusal is told as JSON, and the client's answer to it gets the failure."""
        if self._refused:
            assert message == b"\x01", message
            return None
        head, *pairs, end, last = message.decode().split("\x01")
        assert (head, end, last) == ("n,,", "", ""), message
        found = dict(each.split("=", 1) for each in pairs)
        token = found.pop("auth").removeprefix("Bearer ")
        self._done = self._listener.accepts(token, found)
        self._refused = not self._done
        return b"" if self._done else b'{"status":"invalid_token"}'

    def _plain(self, token: bytes) -> bytes | None:
        _, name, password = token.decode().split("\0")
        self._done = self._listener.password_of(name) == password
        return b"" if self._done else None

    def _scrammed(self, token: bytes) -> bytes | None:
        if self._scram is None:
            self._scram = _Scram(str(self._mechanism), self._listener, token.decode())
            return self._scram.challenge()
        answer = self._scram.verdict(token.decode())
        self._done = answer is not None
        return answer


class _Scram:
    """The server's side of RFC 5802."""

    def __init__(self, mechanism: str, listener: Listener, first: str) -> None:
        self._hash = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}[mechanism]
        self._bare = first.removeprefix("n,,")
        # A comma or an equals sign within the name would be one field more, or another one.
        fields = self._bare.split(",")
        assert [each[:2] for each in fields[:2]] == ["n=", "r="], fields
        assert fields[2:] in ([], ["tokenauth=true"]), fields
        listener.by_token.append(len(fields) == 3)
        self._iterations = listener.iterations
        escaped = fields[0][2:]
        assert "=" not in escaped.replace("=2C", "").replace("=3D", ""), escaped
        name = escaped.replace("=2C", ",").replace("=3D", "=")
        self._password = listener.password_of(name)
        self._nonce = fields[1][2:] + secrets.token_hex(8)
        self._salt = secrets.token_bytes(16)

    def challenge(self) -> bytes | None:
        """The server's first message; None for an unknown user."""
        if self._password is None:
            return None
        salt = base64.b64encode(self._salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._iterations}"
        return self._challenge.encode()

    def verdict(self, last: str) -> bytes | None:
        """The server's signature; None for a wrong password."""
        without, _, proof = last.rpartition(",p=")
        said = f"{self._bare},{self._challenge},{without}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash().name, str(self._password).encode(), self._salt, int(self._iterations))
        client_key = self._sign(salted, b"Client Key")
        signature = self._sign(self._hash(client_key).digest(), said)
        if base64.b64decode(proof) != bytes(a ^ b for a, b in zip(client_key, signature, strict=True)):
            return None
        return b"v=" + base64.b64encode(self._sign(self._sign(salted, b"Server Key"), said))

    def _sign(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _read_text(body: bytes) -> str:
    (length,) = struct.unpack_from(">h", body)
    return body[2 : 2 + length].decode()
