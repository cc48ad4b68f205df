"""One question to a token endpoint (RFC 6749, 4.4; RFC 7523, 2.1).

Owns: the request, and the reading of the answer: a token, a refusal, or an endpoint that is away.
Does not know: SASL, how long a token is used.
Invariants:
- No message contains a secret, an assertion or a token, also where the endpoint repeats one.
- Redirects are not followed: the credentials are for the configured address alone.
- The answer is bounded in size, and in time from the first byte to the last (`time_limit`).
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_core.errors import (
    BrokerNotTrusted,
    ExactlyOnceError,
    Fact,
    LoginRefused,
    OptionsError,
    TokenUnavailable,
)
from pyspark_kafka_eos.client.net.credentials import files
from pyspark_kafka_eos.client.net.credentials.secrets import text_of, texts_of
from pyspark_kafka_eos.client.net.oauth import signing
from pyspark_kafka_eos.client.net.oauth.assertion import assertion
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.client.net.oauth.time_limit import TimeLimit

_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
_AUTHORITY = "kafka.https.ca.location"
_LARGEST = 1 << 20
"""Bytes of an answer. Half would still do for tokens with thousands of groups; double is memory for nobody's token."""

_SHOWN = 200
"""Characters of an endpoint's own words in a message."""

_LATER = (408, 425, 429)
"""The statuses below 500 after which the same request may succeed."""

_EXPIRED = (9, 10)
_OTHER_HOST = (62, 64)
_NAME_CODES = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


@dataclass(frozen=True)
class Answer:
    """A token as it was issued. `lasts_s`: expires_in of the answer, None where it has none."""

    token: str = field(repr=False)
    lasts_s: float | None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: the answer with the redirect is the answer."""


def ask(oauth: OAuth) -> Answer:
    """A token from the endpoint. Blocks for at most the two timeouts of the options.

    LoginRefused where the endpoint refuses the credentials; OptionsError where address, files or authority are wrong;
    BrokerNotTrusted for its certificate; TokenUnavailable for what may pass.
    """
    form, headers, secrets = _question(oauth)
    request = urllib.request.Request(oauth.url, urllib.parse.urlencode(form).encode(), headers)

    def hidden(text: object) -> str:
        """Words of the other side, without our secrets in them."""
        shown = "".join(each if each.isprintable() else " " for each in str(text))
        for each in filter(None, secrets):
            shown = shown.replace(each, "********")
        return shown[:_SHOWN]

    # Reading the machine's authorities takes some 20 ms of a core.
    tls = context(oauth) if request.type == "https" else None
    with TimeLimit(allowed_s(oauth)) as limit:
        opener = urllib.request.build_opener(_NoRedirect, *limit.handlers(tls))
        try:
            with opener.open(request, timeout=int(oauth.connect_ms) / 1000) as answer:
                body = _body(answer)
            if limit.over:
                raise TimeoutError
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(oauth, error, hidden) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if limit.over:
                raise TokenUnavailable(
                    f"{oauth.where} does not answer: its answer takes longer than {allowed_s(oauth):.0f} s",
                    {"endpoint": oauth.url},
                ) from None
            if isinstance(reason, ValueError) and not isinstance(reason, OSError):
                raise OptionsError(f"{_URL}: {oauth.url} is no address that can be asked: {hidden(reason)}") from None
            raise _unreachable(oauth, reason, hidden) from None
    return _read(oauth, body)


def allowed_s(oauth: OAuth) -> float:
    """How long a question and its answer may take: both timeouts of the options."""
    return (int(oauth.connect_ms) + int(oauth.read_ms)) / 1000


def check(oauth: OAuth) -> None:
    """OptionsError where this machine lacks what the question needs. An assertion is signed for trial."""
    if oauth.key_file is not None or oauth.key_data is not None:
        signing.check()
    _question(oauth)
    if oauth.url.startswith("https:"):
        context(oauth)


def context(oauth: OAuth) -> ssl.SSLContext:
    """TLS to the endpoint; OptionsError where the authorities cannot be read."""
    if oauth.cafile is None and oauth.cadata is None:
        return ssl.create_default_context()
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    given = (
        files.Given("kafka.https.ca.pem", str(oauth.cadata).encode()) if oauth.cafile is None
        else files.read(_AUTHORITY, oauth.cafile)
    )  # fmt: skip
    try:
        found.load_verify_locations(cadata=given.text.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise given.refused("has no certificate in PEM") from error
    return found


def _question(oauth: OAuth) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Form, headers, and what of both must not be shown."""
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    scope = {"scope": oauth.scope} if oauth.scope else {}
    if oauth.method == "jwt_bearer":
        text = assertion(oauth)
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        return {"grant_type": grant, "assertion": text, **scope}, headers, (text,)
    name, password = str(texts_of(oauth.client_id)), text_of(oauth.client_secret)
    pair = [urllib.parse.quote_plus(each) if oauth.urlencode else each for each in (name, password)]
    headers["Authorization"] = "Basic " + base64.b64encode(":".join(pair).encode()).decode()
    return {"grant_type": "client_credentials", **scope}, headers, (password, headers["Authorization"][6:])


def _body(answer: Any) -> bytes:
    parts, size = [], 0
    while part := answer.read1(_LARGEST):
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            raise http.client.HTTPException(f"its answer has more than {_LARGEST} bytes")
    return b"".join(parts)


def _refused(oauth: OAuth, error: urllib.error.HTTPError, hidden: Callable[[object], str]) -> ExactlyOnceError:
    """An answer that is not 200."""
    facts: dict[str, Fact] = {"endpoint": oauth.url, "status": error.code}
    try:
        said = json.loads(_body(error))
        words = [said[name] for name in ("error", "error_description") if isinstance(said.get(name), str)]
    except (ValueError, AttributeError, RecursionError, OSError, http.client.HTTPException):
        words = []
    reason = hidden(": ".join(words) or error.reason)
    if error.code >= 500 or error.code in _LATER:
        return TokenUnavailable(f"{oauth.where} gives no token now: {error.code} {reason}", facts)
    if error.code // 100 == 3 or error.code in (404, 405):
        return OptionsError(
            f"{oauth.where} answers {error.code} ({reason}), so it is no token endpoint: correct {_URL}",
            facts,
        )
    own = "the assertion" if oauth.method == "jwt_bearer" else "client id and secret"
    return LoginRefused(
        f"{oauth.where} refused {own}: {error.code} {reason}; correct kafka.sasl.oauthbearer.*, or have the "
        "client's rights changed",
        facts,
    )


def _unreachable(oauth: OAuth, reason: object, hidden: Callable[[object], str]) -> ExactlyOnceError:
    """No answer at all."""
    facts = {"endpoint": oauth.url}
    if isinstance(reason, ssl.SSLCertVerificationError):
        said = reason.verify_message
        if reason.verify_code in (*_EXPIRED, *_OTHER_HOST):
            return BrokerNotTrusted(
                f"the certificate of {oauth.where} is expired or for another host ({said}); no credentials were sent",
                facts,
            )
        return OptionsError(
            f"the certificate of {oauth.where} is signed by an authority that is not trusted ({said}): set "
            f"{_AUTHORITY} to its PEM file; no credentials were sent",
            facts,
        )
    if isinstance(reason, ssl.SSLError) and "WRONG_VERSION_NUMBER" in (reason.reason or ""):
        return OptionsError(f"{oauth.where} does not speak TLS: correct {_URL}; no credentials were sent", facts)
    if isinstance(reason, socket.gaierror) and reason.errno in _NAME_CODES:
        return OptionsError(f"no machine has the name in {_URL} ({oauth.url}): correct it", facts)
    said = hidden(reason) or type(reason).__name__
    return TokenUnavailable(f"{oauth.where} does not answer: {said}", facts)


def _read(oauth: OAuth, body: bytes) -> Answer:
    facts = {"endpoint": oauth.url}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    token = None
    if isinstance(found, dict):
        token = found.get("access_token") or found.get("id_token")
    if not isinstance(token, str):
        raise OptionsError(
            f"{oauth.where} answers without an access_token, so it is no token endpoint: correct {_URL}",
            facts,
        )
    lasts = found.get("expires_in") if isinstance(found, dict) else None
    try:
        seconds = None if lasts is None or isinstance(lasts, bool) else float(lasts)
    except (TypeError, ValueError, OverflowError):
        seconds = None
    return Answer(token, seconds if seconds is not None and 0 < seconds < 1e9 else None)
