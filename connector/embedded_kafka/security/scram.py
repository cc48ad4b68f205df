"""SCRAM-SHA-256 and SCRAM-SHA-512 as the server has them (RFC 5802, RFC 7677; KIP-84).

Owns: the two messages of the client and their answers.
Does not know: requests, sessions, where users come from.
Invariants:
- A proof is accepted only for this exchange's nonce and for the first message as it came.
- Proofs are compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

from embedded_kafka.security.mechanisms import OTHER_ID, ExchangeStep, LoginFailed, text_of
from embedded_kafka.security.users import HASHES, ScramKeys, Users
from kafka_core import runtime

_NAME = r"(?:[^,=\0]|=2C|=3D)"
_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<other>{_NAME}+))?,)(?P<bare>n=(?P<user>{_NAME}+),r=(?P<nonce>[!-+\--~]+)(?P<more>(?:,.*)?))"
)
_FINAL = re.compile(
    r"(?P<without>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]=[^,]+)*?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramExchange:
    """One exchange."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._users = users
        self._user = ""
        self._keys: ScramKeys | None = None
        self._gs2 = b""
        self._nonce = ""
        self._signed = ""

    def take(self, message: bytes) -> ExchangeStep:
        """The client's first or final message."""
        return self._first(text_of(message)) if self._keys is None else self._final(text_of(message), self._keys)

    def _first(self, message: str) -> ExchangeStep:
        found = _FIRST.fullmatch(message)
        # tokenauth asks for a delegation token (KIP-48), which this broker does not have.
        if found is None or "tokenauth=true" in found["more"]:
            raise LoginFailed
        user = _plain(found["user"])
        if found["other"] is not None and _plain(found["other"]) != user:
            raise LoginFailed(OTHER_ID)
        keys = self._users.scram(self._mechanism, user)
        if keys is None:
            raise LoginFailed
        self._user, self._keys, self._gs2 = user, keys, found["gs2"].encode()
        self._nonce = found["nonce"] + runtime.uuid4().hex
        answer = f"r={self._nonce},s={base64.b64encode(keys.salt).decode()},i={keys.iterations}"
        self._signed = f"{found['bare']},{answer}"
        return ExchangeStep(answer.encode())

    def _final(self, message: str, keys: ScramKeys) -> ExchangeStep:
        found = _FINAL.fullmatch(message)
        if found is None or found["nonce"] != self._nonce or _decoded(found["binding"]) != self._gs2:
            raise LoginFailed
        signed = f"{self._signed},{found['without']}".encode()
        signature = hmac.digest(keys.stored_key, signed, self._hash)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise LoginFailed
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), keys.stored_key):
            raise LoginFailed
        ours = base64.b64encode(hmac.digest(keys.server_key, signed, self._hash))
        return ExchangeStep(b"v=" + ours, self._user)


def _plain(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed from None
