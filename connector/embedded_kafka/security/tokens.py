"""What makes a token good: unsecured ones by their claims alone, signed ones by a JSON Web Key Set (RFC 7515, RFC
7517).

Owns: the checks of Kafka's two validators, the keys that were fetched. Signatures and keys are PyJWT's, which is an
extra of this package.
Does not know: SASL.
Invariants:
- Where keys are configured, a token without a signature is never good.
- The algorithm is RS256, whatever the token says.
- No reason contains a part of a token.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import logging
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from embedded_kafka.clock import Clock
from embedded_kafka.settings.config import SecurityConfig
from kafka_core import runtime
from kafka_core.errors import OptionsError

log = logging.getLogger(__name__)

_SKEW_MS = 30_000
"""Kafka's sasl.oauthbearer.clock.skew.seconds, for signed tokens. Unsecured ones have none."""
_FETCH_WITHIN_S = 10.0
_KEYS_AT_MOST_BYTES = 1 << 20
_AGAIN_AFTER_MS = 10_000
"""How soon keys are fetched again for a key id that is unknown. Without a pause any client could make the broker
fetch.
"""
_LEAST_BITS, _MOST_BITS = 2048, 16384
"""Shorter keys are not secure (RFC 7518, 3.3); longer ones take seconds."""


class BadToken(Exception):
    """The token is not accepted."""


@dataclass(frozen=True)
class VerifiedToken:
    """A good token's user and its end, in the milliseconds of Unix."""

    user: str
    ends_ms: int


class Checks(Protocol):
    """A validator."""

    def judge(self, token: str) -> VerifiedToken:
        """The good token; BadToken."""


class Unsecured:
    """Kafka's OAuthBearerUnsecuredValidatorCallbackHandler: `alg` none, no signature, `exp` and the user's claim."""

    def __init__(self, config: SecurityConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    def judge(self, token: str) -> VerifiedToken:
        """The good token; BadToken."""
        head, claims, signature = _parts(token)
        if head.get("alg") != "none" or signature:
            raise BadToken("an unsecured token has the algorithm none and no signature")
        return _judged(claims, self._config, self._clock.now_ms(), 0)


class Signed:
    """Kafka's OAuthBearerValidatorCallbackHandler (KIP-768), for RS256. OptionsError without PyJWT."""

    def __init__(self, config: SecurityConfig, clock: Clock, fetch: Callable[[str], bytes] | None = None) -> None:
        self._config = config
        self._clock = clock
        self._fetch = fetch or _fetched
        self._lock = runtime.lock()
        self._keys: dict[str, Any] = {}
        self._fetched_ms: int | None = None
        if not all(importlib.util.find_spec(name) for name in ("jwt", "cryptography")):
            raise OptionsError(
                "sasl.oauthbearer.jwks.endpoint.url: checking signed tokens needs the Python packages PyJWT and cryptography "
                "(pip install 'pyspark-kafka-eos[oauth]'); nothing was started",
                {"setting": "sasl.oauthbearer.jwks.endpoint.url"},
            )

    def judge(self, token: str) -> VerifiedToken:
        """The good token; BadToken. May fetch the keys."""
        import jwt

        head, claims, _ = _parts(token)
        if head.get("alg") != "RS256":
            raise BadToken("the algorithm is not RS256")
        key = self._key(str(head.get("kid", "")))
        try:
            jwt.PyJWS().decode(token, key, algorithms=["RS256"])
        except jwt.PyJWTError:
            raise BadToken("the signature is wrong") from None
        return _judged(claims, self._config, self._clock.now_ms(), _SKEW_MS)

    def _key(self, key_id: str) -> Any:
        with self._lock:
            now_ms = self._clock.now_ms()
            if key_id not in self._keys and (self._fetched_ms is None or now_ms - self._fetched_ms >= _AGAIN_AFTER_MS):
                self._fetched_ms = now_ms
                try:
                    self._keys = _read_keys(self._fetch(self._config.jwks_url))
                except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                    log.warning("cannot use the keys of %s: %r", self._config.jwks_url, error)
            key = self._keys.get(key_id)
        if key is None:
            raise BadToken("no key has the token's key id")
        return key


def checks(config: SecurityConfig, clock: Clock) -> Checks:
    """The validator of these settings."""
    return Signed(config, clock) if config.jwks_url else Unsecured(config, clock)


def _parts(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any], bytes]:
    parts = token.split(".")
    if len(parts) != 3:
        raise BadToken("a token has three parts")
    try:
        head, claims = (json.loads(_decoded(part)) for part in parts[:2])
        signature = _decoded(parts[2])
    except (ValueError, RecursionError):
        raise BadToken("a token's parts are JSON in Base64") from None
    if not isinstance(head, dict) or not isinstance(claims, dict):
        raise BadToken("a token's parts are JSON objects")
    return head, claims, signature


def _judged(claims: Mapping[str, Any], config: SecurityConfig, now_ms: int, skew_ms: int) -> VerifiedToken:
    user = claims.get(config.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise BadToken(f"the claim {config.user_claim} is missing")
    ends_ms = _time(claims, "exp")
    if ends_ms is None or ends_ms + skew_ms <= now_ms:
        raise BadToken("the token has ended, or has no end")
    for name in ("nbf", "iat"):
        begins_ms = _time(claims, name)
        if begins_ms is not None and (begins_ms - skew_ms > now_ms or begins_ms >= ends_ms):
            raise BadToken(f"{name} lies ahead")
    audience = claims.get("aud")
    expected = [each.strip() for each in config.audience.split(",") if each.strip()]
    if expected and not {*(audience if isinstance(audience, list) else [audience])} & {*expected}:
        raise BadToken("the audience is another")
    if config.issuer and claims.get("iss") != config.issuer:
        raise BadToken("the issuer is another")
    return VerifiedToken(user, ends_ms)


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise BadToken(f"{name} is not a time")
    return int(value * 1000)


def _read_keys(text: bytes) -> dict[str, Any]:
    """Key id -> the RSA key."""
    import jwt

    keys = {}
    for each in json.loads(text)["keys"]:
        if each.get("kty") != "RSA" or each.get("use", "sig") != "sig" or each.get("alg", "RS256") != "RS256":
            continue
        try:
            key = jwt.PyJWK(each, "RS256").key
        except jwt.PyJWTError as error:
            raise ValueError(repr(error)) from error
        if _LEAST_BITS <= key.key_size <= _MOST_BITS:
            keys[str(each.get("kid", ""))] = key
    return keys


def _fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_FETCH_WITHIN_S) as answer:
        text: bytes = answer.read(_KEYS_AT_MOST_BYTES)
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
