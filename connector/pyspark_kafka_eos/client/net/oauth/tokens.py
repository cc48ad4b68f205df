"""The tokens of one process: fetched beside the network loop, shared by its connections, renewed before they end.

Owns: when a token is asked for, who waits for it, how long a failure is remembered.
Does not know: connections.
Invariants:
- One fetch at a time for each login, whatever the number of connections that wait for it. One that takes longer than
  it may is given up, and the next login begins another.
- A token is handed out only before its end, as far as its life is known; a login after `refresh_factor` of it waits for
  a new one, and gets the old one where the endpoint is away.
- The callback runs on the thread of the fetch, or at once on the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_core import runtime
from kafka_core.errors import (
    ExactlyOnceError,
    InternalError,
    LoginRefused,
    OptionsError,
    RetriableError,
    TokenUnavailable,
)
from pyspark_kafka_eos.client.net.credentials import files
from pyspark_kafka_eos.client.net.credentials.secrets import framed_outside
from pyspark_kafka_eos.client.net.oauth import endpoint, provider
from pyspark_kafka_eos.client.net.oauth.assertion import claims_of, unsecured
from pyspark_kafka_eos.client.net.oauth.endpoint import Answer
from pyspark_kafka_eos.client.net.oauth.settings import OAuth

_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
_REFUSED_FOR_S = 10.0
"""How long a refusal is repeated from memory: as long as that of a broker (`manager`), for the same reason."""

_LATE_S = 1.0
"""How much longer than its timeouts a fetch may take until it is given up. Half is little for a busy machine; double
only delays the next one."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
"""The pause after an endpoint's failure doubles from the first to the longest, as Java's does
(sasl.login.retry.backoff).
"""

_SESSION_S = 3.0
"""The shortest session that a token may begin, where it lasts long enough: a renewal takes up to 2 s, and no broker
allows one within the first second. With less, Apache Kafka ended connections under load with tokens of 6 s; double
halves the use of such tokens.
"""

_HALF = 0.5

_TEXT = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, 2.1. Any other character would end the token inside the SASL message, and begin something else."""


@dataclass(frozen=True)
class Token:
    """One token. Times are monotonic seconds, None where its life is not known."""

    text: str = field(repr=False)
    renew_at: float | None
    ends_at: float | None


Taken = Callable[["Token | ExactlyOnceError"], None]


class Tokens:
    """The tokens of one login. Usable from any thread."""

    def __init__(self, oauth: OAuth, servers: tuple[str, ...]) -> None:
        self._oauth, self._servers = oauth, servers
        self._lock = runtime.lock()
        self._token: Token | None = None
        self._failure: ExactlyOnceError | None = None
        self._failures = 0
        self._quiet_until = 0.0
        self._waiting: list[Taken] = []
        self._begun = 0
        self._given_up_at = 0.0
        """When the fetch that is under way is given up; 0 where there is none."""
        self.fetches = 0

    def get(self, taken: Taken) -> None:
        """Hand a token, or the error of the fetch, to `taken`: at once where there is a good one, else when it is
        fetched.
        """
        with self._lock:
            found = self._known()
            if found is None:
                self._waiting.append(taken)
                now = runtime.monotonic()
                if now < self._given_up_at:
                    return
                self._given_up_at = now + endpoint.allowed_s(self._oauth) + _LATE_S
                self._begun += 1
            number = self._begun
        if found is not None:
            taken(found)
        else:
            runtime.thread(self._fetch, "kafka-eos-token", [number]).start()

    def too_late(self, allowed_ms: float) -> ExactlyOnceError:
        """The error for a login that has waited so long: the endpoint's last failure, where that is all that there
        was.
        """
        with self._lock:
            if self._failure is not None:
                return self._failure
        return TokenUnavailable(f"{self._oauth.where} gives no token within {round(allowed_ms)} ms")

    def drop(self, token: str) -> None:
        """A broker has refused this one: the next login fetches another."""
        with self._lock:
            if self._token is not None and self._token.text == token:
                self._token = None

    def _known(self) -> Token | ExactlyOnceError | None:
        """What is handed out without a fetch."""
        now, token = runtime.monotonic(), self._token
        if token is not None and token.renew_at is not None and now < token.renew_at:
            return token
        if self._failure is not None and now < self._quiet_until:
            return self._best(self._failure)
        return None

    def _best(self, failure: ExactlyOnceError) -> Token | ExactlyOnceError:
        """The old token where the endpoint is away; a refusal counts, also where the old token is good."""
        token = self._token
        if token is None or token.ends_at is None or not isinstance(failure, RetriableError):
            return failure
        return token if runtime.monotonic() < token.ends_at else failure

    def _fetch(self, number: int) -> None:
        found: Token | ExactlyOnceError
        try:
            found = self._fetched()
        except ExactlyOnceError as error:
            found = error
        except BaseException as error:  # noqa: BLE001 -- the waiting logins would wait for ever
            found = InternalError(f"no token: {type(error).__name__} in the fetch")
        with self._lock:
            self.fetches += 1
            if number == self._begun:
                self._given_up_at = 0.0
            elif not isinstance(found, Token):
                # It was given up; the newer one tells what is the matter.
                return
            if isinstance(found, Token):
                self._token, self._failure, self._failures = found, None, 0
            else:
                self._failure, self._failures = found, self._failures + 1
                pause = _REFUSED_FOR_S
                if isinstance(found, RetriableError):
                    pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures - 1, 16))
                self._quiet_until = runtime.monotonic() + pause
                found = self._best(found)
            waiting, self._waiting = self._waiting, []
        for taken in waiting:
            taken(found)

    @framed_outside
    def _fetched(self) -> Token:
        began, oauth = runtime.monotonic(), self._oauth
        if oauth.method == "provider":
            answer = provider.ask(oauth, self._servers)
        elif oauth.method == "file":
            answer = _from_file(oauth)
        elif oauth.method == "unsecured":
            answer = Answer(unsecured(oauth), float(oauth.expires_s))
        else:
            answer = endpoint.ask(oauth)
            answer = Answer(answer.token, _shorter(answer))
        if not _TEXT.fullmatch(answer.token):
            raise OptionsError(f"{oauth.where} gives a text that is no bearer token (RFC 6750)")
        if answer.lasts_s is None or oauth.method == "file":
            # A file is read for each login: what replaces it counts at once.
            return Token(answer.token, None, None)
        if answer.lasts_s <= 0:
            raise LoginRefused(f"{oauth.where} gives a token that has ended; nothing was sent")
        return Token(answer.token, began + _good_for_s(answer.lasts_s, oauth), began + answer.lasts_s)


def _good_for_s(lasts_s: float, oauth: OAuth) -> float:
    """How long a token is used for new sessions: a session ends with its token, and has to be renewed before."""
    return min(lasts_s * float(oauth.refresh_factor), max(lasts_s * _HALF, lasts_s - _SESSION_S))


def _from_file(oauth: OAuth) -> Answer:
    given = files.read(_URL, path_of(oauth))
    token = given.text.decode("ascii", "replace").strip()
    ends = claims_of(token).get("exp")
    if isinstance(ends, (int, float)) and ends <= runtime.time():
        raise LoginRefused(
            f"the token in {given.where} has ended: have the file renewed; nothing was sent",
            {"file": given.path},
        )
    return Answer(token, None)


def path_of(oauth: OAuth) -> str:
    """The path of a file: URL."""
    return oauth.url.removeprefix("file:").removeprefix("//")


def _shorter(answer: Answer) -> float | None:
    """expires_in, or the claim exp where that is sooner. A clock that is ahead of the issuer's makes the claim
    useless.
    """
    ends = claims_of(answer.token).get("exp")
    left = ends - runtime.time() if isinstance(ends, (int, float)) else None
    if left is None or left <= 0:
        return answer.lasts_s
    return left if answer.lasts_s is None else min(left, answer.lasts_s)


_of_process: runtime.PerProcess[dict[tuple[OAuth, tuple[str, ...]], Tokens]] = runtime.PerProcess(dict)


def shared(oauth: OAuth, servers: tuple[str, ...]) -> Tokens:
    """The tokens that this process has for a login; one entry for each login ever used."""
    return _of_process().setdefault((oauth, servers), Tokens(oauth, servers))


def check(oauth: OAuth) -> None:
    """OptionsError where this machine lacks what the login needs: a file, a package, a module."""
    if oauth.method == "provider":
        provider.load(oauth)
        provider.configuration(oauth)
    elif oauth.method == "file":
        files.read(_URL, path_of(oauth))
    elif oauth.method in ("client_credentials", "jwt_bearer"):
        endpoint.check(oauth)
