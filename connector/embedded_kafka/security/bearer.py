"""OAUTHBEARER as the server has it (RFC 7628, KIP-255): the client's token, and the answer to a bad one.

Owns: the client's messages.
Does not know: what makes a token good (`tokens`).
"""

from __future__ import annotations

import json
import re

from embedded_kafka.security.mechanisms import ExchangeStep, LoginFailed, text_of
from embedded_kafka.security.tokens import BadToken, Checks

_FIRST = re.compile(r"n,(?:a=(?P<other>[^,\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_GIVES_UP = b"\x01"
_BEARER = re.compile(r"Bearer +(?P<token>[-_.+/=A-Za-z0-9]+)", re.IGNORECASE)


class BearerExchange:
    """One exchange. A bad token is answered with its status in JSON; the client then gives up with one byte, and only
    that is refused.
    """

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._status = ""

    def take(self, message: bytes) -> ExchangeStep:
        """The client's token, or the byte that ends a refused exchange."""
        if self._status and message == _GIVES_UP:
            raise LoginFailed(self._status)
        self._status = ""
        found = _FIRST.fullmatch(text_of(message))
        if found is None:
            raise LoginFailed
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].rstrip("\x01").split("\x01"))
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise LoginFailed
        try:
            token = self._checks.judge(bearer["token"])
        except BadToken:
            # Kafka's answer has the status alone; the reason stays with the broker.
            self._status = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return ExchangeStep(self._status.encode())
        if found["other"] is not None and found["other"] != token.user:
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({found['other']}) that is different "
                f"from the token's principal name ({token.user})"
            )
        return ExchangeStep(b"", token.user, token.ends_ms)
