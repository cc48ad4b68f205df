"""A token endpoint as identity providers have them: client credentials and JWT bearer, tokens signed with RS256, its
keys as JWKS.

It checks what it is asked as such an endpoint does, and notes it. `pyspark_kafka_eos` is not used here: the two judge
each other.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import subprocess
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pyspark_kafka_eos.client.certificates import openssl

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
AUDIENCE = "kafka"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
WAIT_S = 30.0


@dataclass(frozen=True)
class Keys:
    """Files in PEM: the issuer's key, a client's for its assertions, and the public half of that."""

    issuer: Path
    private: Path
    public: Path


@dataclass
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass
class Plan:
    """How the endpoint behaves now. `status` and `body` replace the answer; `hold`: set to let it answer; `life_s` of a
    token.
    """

    status: int | None = None
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    life_s: float = 60.0
    claims: dict[str, Any] = field(default_factory=dict)


class TokenEndpoint:
    """`key`: the issuer's, of RSA. `clients`: id to secret. `assertions`: the public key (PEM) of the one whose
    assertions are accepted.
    """

    def __init__(
        self,
        folder: Path,
        key: Path,
        *,
        clients: dict[str, str] | None = None,
        assertions: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.clients, self.assertions = clients or {}, assertions
        self.plan, self.asked, self.issued = Plan(), list[Asked](), list[str]()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = key
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._answer(self, *owner._get(self.path))

            def do_POST(self) -> None:
                owner._answer(self, *owner._post(self))

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.issuer = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.url, self.jwks = f"{self.issuer}/token", f"{self.issuer}/jwks"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def judged_by(self, listener: str) -> dict[str, str]:
        """The settings with which Apache Kafka takes this endpoint's tokens on a listener, and no others."""
        name = f"listener.name.{listener}.oauthbearer"
        return {
            f"listener.name.{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{name}.sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
            # Before 4.0 it stood in a package of its own; the old name is gone since.
            f"{name}.sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
            f"{name}.sasl.oauthbearer.jwks.endpoint.url": self.jwks,
            f"{name}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{name}.sasl.oauthbearer.expected.issuer": self.issuer,
        }

    def __enter__(self) -> TokenEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        if self.plan.hold is not None:
            self.plan.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)

    def _serve(self) -> None:
        # A client that refuses our certificate ends the handshake within accept().
        with contextlib.suppress(ssl.SSLError):
            self._server.serve_forever(0.05)

    def token(self, subject: str, life_s: float | None = None, **claims: Any) -> str:
        """A signed token."""
        now = time.time()
        body = {
            "iss": self.issuer, "sub": subject, "aud": AUDIENCE, "iat": now,
            "exp": now + (self.plan.life_s if life_s is None else life_s), **self.plan.claims, **claims,
        }  # fmt: skip
        text = f"{part({'alg': 'RS256', 'kid': 'k1', 'typ': 'JWT'})}.{part(body)}"
        return f"{text}.{unpadded(sign(self._key, text.encode()))}"

    def _get(self, path: str) -> tuple[int, bytes]:
        self.asked.append(Asked(path, {}, {}))
        words = openssl("rsa", "-in", self._key, "-modulus", "-noout").strip().partition("=")[2]
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": "k1",
            "n": unpadded(bytes.fromhex(words)),
            "e": "AQAB",
        }
        return 200, json.dumps({"keys": [key]}).encode()

    def _post(self, request: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        raw = request.rfile.read(int(request.headers["Content-Length"])).decode()
        form = dict(urllib.parse.parse_qsl(raw, strict_parsing=True))
        self.asked.append(Asked(request.path, dict(request.headers.items()), form))
        if self.plan.hold is not None:
            assert self.plan.hold.wait(WAIT_S)
        if self.plan.status is not None or self.plan.body is not None:
            return self.plan.status or 200, self.plan.body or b""
        if form["grant_type"] == JWT_BEARER:
            try:
                subject = self._subject_of(form["assertion"])
            except ValueError:
                subject = None
        else:
            assert form["grant_type"] == "client_credentials"
            scheme, _, text = request.headers.get("Authorization", "").partition(" ")
            name, _, password = base64.b64decode(text).decode().partition(":")
            known = scheme == "Basic" and self.clients.get(name) == password
            subject = name if known else None
        if subject is None:
            said = {
                "error": "invalid_client",
                "error_description": f"not with {raw} and {request.headers['Authorization']}",
            }
            return 401, json.dumps(said).encode()
        # Kafka refuses a token with an empty scope.
        token = self.token(subject, **({"scope": form["scope"]} if "scope" in form else {}))
        self.issued.append(token)
        lasts = {"access_token": token, "token_type": "Bearer", "expires_in": self.plan.life_s}
        return 200, json.dumps(lasts).encode()

    def _subject_of(self, assertion: str) -> str | None:
        """The subject of an assertion that is signed with the known key and valid now."""
        if self.assertions is None:
            return None
        head, body, signature = assertion.split(".")
        claims = json.loads(decoded(body))
        proof, text = self.folder / "proof", self.folder / "text"
        proof.write_bytes(
            der(decoded(signature)) if json.loads(decoded(head))["alg"] == "ES256" else decoded(signature)
        )
        text.write_bytes(f"{head}.{body}".encode())
        words = ["openssl", "dgst", "-sha256", "-verify", self.assertions, "-signature", proof, text]
        if subprocess.run(words, capture_output=True, check=False).returncode != 0:
            return None
        good = claims["nbf"] <= time.time() < claims["exp"] and claims["aud"] == self.url
        return str(claims["sub"]) if good else None

    def _answer(self, request: http.server.BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            request.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **self.plan.headers}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body)


def part(value: dict[str, Any]) -> str:
    """One part of a token."""
    return unpadded(json.dumps(value).encode())


def unpadded(raw: bytes) -> str:
    """RFC 7515, appendix C."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """The bytes again."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sign(key: Path, text: bytes) -> bytes:
    """An RSA signature with SHA-256."""
    words = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    return subprocess.run(words, input=text, capture_output=True, check=True).stdout


def der(signature: bytes) -> bytes:
    """The two halves of a signature of P-256, as openssl reads them."""
    halves = b"".join(_integer(each) for each in (signature[:32], signature[32:]))
    return b"\x30" + bytes([len(halves)]) + halves


def _integer(half: bytes) -> bytes:
    shortest = half.lstrip(b"\0") or b"\0"
    content = b"\0" + shortest if shortest[0] & 0x80 else shortest
    return b"\x02" + bytes([len(content)]) + content
