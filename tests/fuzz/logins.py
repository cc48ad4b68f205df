"""What the other side of a login says: SCRAM's messages to the client, the answers of token endpoints, tokens."""

from __future__ import annotations

import base64
import http.client
import io
import json
import random
import unittest.mock
import urllib.error
import urllib.request
from email.message import Message
from typing import Any

from embedded_kafka.clock import Clock
from embedded_kafka.security.bearer import BearerExchange
from embedded_kafka.security.mechanisms import ExchangeStep, LoginFailed, PlainExchange
from embedded_kafka.security.scram import ScramExchange
from embedded_kafka.security.tokens import Unsecured
from embedded_kafka.security.users import Users
from embedded_kafka.settings.config import SecurityConfig
from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.net.credentials.scram import Scram
from pyspark_kafka_eos.client.net.oauth import endpoint
from pyspark_kafka_eos.client.net.oauth.assertion import claims_of, encoded
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.model import Secret
from tests.fuzz.changes import changed_bytes, changed_json, changed_json_text
from tests.fuzz.target import SECRET, Stateless, judged

_USER, _PASSWORD = "alice", "wonderland"
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CHALLENGES = (
    b"r=%s,s=QUJD,i=4096", b"r=%s,s=QUJD,i=4096,i=1", b"r=%s,s=QUJD,i=99999999999999999999999", b"i=4096,r=%s,s=QUJD", b"r=%s,s=QUJD,i=4096,x=y",
    b"m=x,r=%s,s=QUJD,i=4096", b"r=%s,s=,i=4096", b"e=other-error", b"r=%s,r=%s,s=QUJD,i=4096",
)  # fmt: skip
_FINALS = (b"v=AAAA", b"e=invalid-proof", b"v=,x=y", b"v=AAAA,v=AAAA", b"")


class ScramOfAServer(Stateless):
    """The client never proves itself to a server that has not judged the password's key."""

    name = "SCRAM"
    reads = "the client, messages of a SCRAM server"

    def made(self, chance: random.Random) -> Any:
        """Whose messages, the mechanism, two messages."""
        mechanism = chance.choice(_MECHANISMS)
        first, second = chance.choice(_CHALLENGES), chance.choice(_FINALS)
        if chance.random() < 0.8:
            first = changed_bytes(chance, first)
        if chance.random() < 0.8:
            second = changed_bytes(chance, second)
        return mechanism, first, second

    def played(self, case: Any) -> str:
        """Refused by ValueError, which the shell makes a refusal of; never done, as no server knows the password."""
        mechanism, first, second = case
        exchange = Scram(mechanism, _USER, _PASSWORD, by_token=False)
        nonce = exchange.auth_bytes().split(b",r=")[1]
        try:
            exchange.receive(first.replace(b"%s", nonce + b"more"))
        except ValueError:
            return "refused at first"
        try:
            exchange.receive(second)
        except ValueError:
            return "refused at last"
        raise AssertionError("a server that does not know the password was believed")


_FIRST = {
    "PLAIN": (b"\0alice\0wonderland", b"alice\0alice\0wonderland", b"\0alice\0x"),
    "SCRAM-SHA-256": (b"n,,n=alice,r=abcdef", b"n,a=alice,n=alice,r=abcdef,tokenauth=true", b"y,,n=bob,r=x"),
    "OAUTHBEARER": (b"n,,\x01auth=Bearer %s\x01\x01", b"n,a=alice,\x01auth=Bearer %s\x01x=y\x01\x01", b"\x01"),
}
_CLAIMS = {"sub": "alice", "exp": 9_999_999_999, "iat": 1_700_000_000, "aud": ["kafka"], "scope": ["a"]}


class MessagesOfAClient(Stateless):
    """Every mechanism of the embedded broker."""

    name = "logins"
    reads = "the embedded broker, messages of a login by each mechanism"

    def __init__(self) -> None:
        users = Users({_USER: _PASSWORD})
        tokens = Unsecured(SecurityConfig(), Clock())
        self._made = {
            "PLAIN": lambda: PlainExchange(users),
            "SCRAM-SHA-256": lambda: ScramExchange("SCRAM-SHA-256", users),
            "OAUTHBEARER": lambda: BearerExchange(tokens),
        }

    def made(self, chance: random.Random) -> Any:
        """The mechanism, and its messages."""
        mechanism = chance.choice(tuple(_FIRST))
        message = chance.choice(_FIRST[mechanism]).replace(b"%s", _token(chance).encode())
        if chance.random() < 0.7:
            message = changed_bytes(chance, message)
        final = changed_bytes(chance, b"c=biws,r=%s,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
        return mechanism, message, final

    def played(self, case: Any) -> str:
        """A step, or a refusal. SCRAM's second message has no proof of the password, so it is always refused."""
        mechanism, message, final = case
        exchange: Any = self._made[mechanism]()
        try:
            step: ExchangeStep = exchange.take(message)
            if mechanism.startswith("SCRAM"):
                nonce = step.answer.partition(b",")[0].removeprefix(b"r=")
                exchange.take(final.replace(b"%s", nonce))
                raise AssertionError("a client that does not know the password was let in")
        except LoginFailed:
            return "refused"
        return "more" if step.user is None else "logged in"


def _token(chance: random.Random) -> str:
    claims = changed_json(chance, _CLAIMS) if chance.random() < 0.7 else _CLAIMS
    try:
        parts = [encoded({"alg": "none"}), encoded(claims), ""]
    except (TypeError, ValueError, AttributeError):
        parts = ["e30", base64.urlsafe_b64encode(json.dumps(claims).encode()).decode(), ""]
    token = ".".join(parts)
    return token if chance.random() < 0.7 else changed_bytes(chance, token.encode()).decode("latin-1")


_ANSWERS = (
    b'{"access_token":"abc.def.ghi","expires_in":3600,"token_type":"Bearer"}', b'{"id_token":"abc","expires_in":"60"}', b'{"access_token":null}',
    b'{"error":"invalid_client","error_description":"no such client"}', b"<html>", b"[]", b'{"access_token":"a b","expires_in":1e999}',
)  # fmt: skip


class _Opener:
    """In place of Python's own HTTP client, when the answer is read."""

    def __init__(self, status: int, reason: str, body: bytes) -> None:
        self._status, self._reason, self._body = status, reason, body

    def open(self, request: Any, timeout: float) -> Any:
        """As OpenerDirector does."""
        read = http.client.HTTPResponse(
            _Socket(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(self._body), self._body))
        )  # type: ignore[arg-type]
        read.begin()
        if self._status // 100 != 2:
            raise urllib.error.HTTPError(request.full_url, self._status, self._reason, Message(), read)
        return read


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        """What has come."""
        return io.BytesIO(self._data)


class TokenAnswers(Stateless):
    """The HTTP client is Python's own; what it has read is judged here."""

    name = "token answers"
    reads = "answers of token endpoints, claims of tokens"

    def made(self, chance: random.Random) -> Any:
        """Status, reason and body."""
        body = chance.choice(_ANSWERS)
        if body[:1] == b"{" and chance.random() < 0.7:
            body = changed_json_text(chance, body)
        elif chance.random() < 0.7:
            body = changed_bytes(chance, body)
        if chance.random() < 0.2:
            body = body.replace(b"invalid_client", SECRET.encode())
        status = chance.choice((200, 200, 200, 204, 301, 400, 401, 403, 404, 408, 429, 500, 503, 599))
        return status, chance.choice(("OK", "", "no\x1b]0;x\x07", SECRET)), body, _token(chance)

    def played(self, case: Any) -> str:
        """A token, or an error of this package without the client's secret."""
        status, reason, body, token = case
        claims_of(token)
        oauth = OAuth("client_credentials", "http://127.0.0.1:1/token", "me", Secret(SECRET))
        try:
            opener = _Opener(status, reason, body)
            with unittest.mock.patch.object(urllib.request, "build_opener", return_value=opener):
                answer = endpoint.ask(oauth)
        except ExactlyOnceError as error:
            return judged(error)
        assert isinstance(answer.token, str)
        return "token"
