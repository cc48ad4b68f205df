"""Assertions for JWT bearer (RFC 7523, KIP-1139), and tokens without a signature for tests (RFC 7515, A.5).

Owns: their claims; reading the key and the template.
Does not know: endpoints.
Invariants: files are read anew for each assertion; no message contains a part of a key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from kafka_core import runtime
from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials import files
from pyspark_kafka_eos.client.net.credentials.secrets import text_of
from pyspark_kafka_eos.client.net.oauth import signing
from pyspark_kafka_eos.client.net.oauth.settings import OAuth

_FILE = "kafka.sasl.oauthbearer.assertion.file"
_KEY_FILE = "kafka.sasl.oauthbearer.assertion.private.key.file"
_KEY_TEXT = "kafka.sasl.oauthbearer.assertion.private.key.pem"
_TEMPLATE = "kafka.sasl.oauthbearer.assertion.template.file"


def assertion(oauth: OAuth) -> str:
    """A signed assertion, from its file or made now; OptionsError where a file or a key cannot be used."""
    if oauth.assertion_file is not None:
        given = files.read(_FILE, oauth.assertion_file)
        text = given.text.decode("ascii", "replace").strip()
        if not text:
            raise given.refused("is empty")
        return text
    return signing.signed(oauth.algorithm, *_key(oauth), _unsigned(oauth))


def unsecured(oauth: OAuth) -> str:
    """A token without a signature, which only a broker for tests accepts."""
    now = runtime.time()
    claims: dict[str, Any] = {"sub": oauth.subject, "iat": now, "exp": now + _life(oauth)}
    if oauth.scope:
        claims["scope"] = oauth.scope.split()
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def encoded(value: Mapping[str, Any]) -> str:
    """One part of a token."""
    return unpadded(json.dumps(value).encode())


def unpadded(raw: bytes) -> str:
    """RFC 7515, appendix C."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def claims_of(token: str) -> dict[str, Any]:
    """The claims of a JWT, unproven; empty for a token that is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _unsigned(oauth: OAuth) -> bytes:
    """Header and claims, ready for the signature."""
    now = int(runtime.time())
    template = _template(oauth)
    claims: dict[str, Any] = {
        "iat": now, "exp": now + _life(oauth), "nbf": now - int(oauth.not_before_s), **template.get("payload", {}),
    }  # fmt: skip
    given = {"aud": oauth.audience, "iss": oauth.issuer, "sub": oauth.subject}
    claims.update({name: value for name, value in given.items() if value is not None})
    if oauth.jti:
        claims["jti"] = str(runtime.uuid4())
    header = {"typ": "JWT", **template.get("header", {}), "alg": oauth.algorithm}
    return f"{encoded(header)}.{encoded(claims)}".encode()


def _life(oauth: OAuth) -> int:
    return int(oauth.expires_s)


def _template(oauth: OAuth) -> dict[str, dict[str, Any]]:
    if oauth.template_file is None:
        return {}
    given = files.read(_TEMPLATE, oauth.template_file)
    try:
        found = json.loads(given.text)
    except (ValueError, RecursionError):
        found = None
    parts = ("header", "payload")
    if not isinstance(found, dict) or not all(isinstance(found.get(each, {}), dict) for each in parts):
        raise given.refused("must be a JSON object with header and payload, each an object")
    return found


def _key(oauth: OAuth) -> tuple[files.Given, str | None]:
    if oauth.key_data is not None:
        given = files.Given(_KEY_TEXT, text_of(oauth.key_data).encode())
    elif oauth.key_file is not None:
        given = files.read(_KEY_FILE, oauth.key_file)
    else:
        raise OptionsError(f"{_KEY_FILE} is missing")
    return given, None if oauth.key_password is None else text_of(oauth.key_password)
