"""Logins by token: where the token comes from, when it is fetched again, and whose each failure is.

The token endpoint and the listener here are stand-ins; `test_token_real.py` has Apache Kafka as the judge.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_core import runtime
from kafka_core.errors import (
    BrokerNotTrusted,
    BrokerUnavailable,
    ExactlyOnceError,
    LoginRefused,
    OptionsError,
    TokenUnavailable,
)
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.net.oauth import endpoint as endpoint_module
from pyspark_kafka_eos.client.net.oauth import tokens
from pyspark_kafka_eos.client.net.oauth.endpoint import Answer
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.model import ClientSettings, Secret
from tests.pyspark_kafka_eos.client.certificates import Authority, openssl
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import JWT_BEARER, Keys, TokenEndpoint, decoded
from tests.pyspark_kafka_eos.client.test_login import connects, refused, serving, settings
from tests.support.logs import everything_logged

Opened = Callable[..., Listener]
SECRET = "OIDC+SECRET/55"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER = ["OAUTHBEARER"]
WAIT_S = 30.0


def wanted(address: str, **names: str | Path) -> ClientSettings:
    """A client's settings for a login by token; `name__of__option`."""
    return settings(address, security__protocol="SASL_PLAINTEXT", sasl__mechanism="OAUTHBEARER", **names)


def oauth_of(url: str, **timeouts: str) -> OAuth:
    """The settings of client credentials for an endpoint."""
    return OAuth("client_credentials", url=url, client_id="alice", client_secret=Secret(SECRET), **timeouts)


def credentials(url: str, secret: str = SECRET, **more: str | Path) -> dict[str, str | Path]:
    """The Java client's names."""
    return {
        "sasl__oauthbearer__token__endpoint__url": url,
        "sasl__oauthbearer__client__credentials__client__id": "alice",
        "sasl__oauthbearer__client__credentials__client__secret": secret,
        **more,
    }


# ---- where a token comes from


@pytest.mark.parametrize("spelling", ["java", "librdkafka", "jaas"])
def test_client_credentials_in_three_spellings_log_in_with_the_endpoints_token(
    opened: Opened, endpoint: TokenEndpoint, spelling: str
) -> None:
    listener = opened(mechanisms=BEARER, judges=lambda token: token in endpoint.issued)
    url = endpoint.url
    names: dict[str, str | Path] = {
        "java": credentials(
            url,
            sasl__oauthbearer__scope="write read",
            sasl__login__callback__handler__class=MODULE.replace("LoginModule", "LoginCallbackHandler"),
        ),
        "librdkafka": {
            "sasl__oauthbearer__method": "oidc", "sasl__oauthbearer__client__id": "alice",
            "sasl__oauthbearer__client__secret": SECRET, "sasl__oauthbearer__scope": "write read",
            "sasl__oauthbearer__token__endpoint__url": url,
        },
        "jaas": {
            "sasl__jaas__config": f'{MODULE} required clientId="alice" clientSecret="{SECRET}" scope="write read";',
            "sasl__oauthbearer__token__endpoint__url": url,
        },
    }[spelling]  # type: ignore[assignment]  # fmt: skip

    connects(wanted(listener.address, **names))

    (asked,) = endpoint.asked
    assert asked.form == {"grant_type": "client_credentials", "scope": "write read"}
    assert set(listener.tokens) == set(endpoint.issued)


def test_with_urlencode_id_and_secret_are_encoded_as_rfc_6749_says(opened: Opened, endpoint: TokenEndpoint) -> None:
    endpoint.clients = {"alice": "OIDC%2BSECRET%2F55"}
    listener = opened(mechanisms=BEARER)

    connects(wanted(listener.address, **credentials(endpoint.url, sasl__oauthbearer__header__urlencode="true")))

    assert len(endpoint.issued) == 1


def test_extensions_of_options_and_of_jaas_reach_the_broker(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)
    jaas = (
        f'{MODULE} required clientId="alice" clientSecret="{SECRET}" extension_logicalCluster="lkc-1" '
        'extension_identityPoolId="pool-2";'
    )

    connects(
        wanted(
            listener.address,
            **credentials(endpoint.url, sasl__oauthbearer__extensions="logicalCluster=lkc-0"),
        )
    )
    connects(wanted(listener.address, sasl__jaas__config=jaas, sasl__oauthbearer__token__endpoint__url=endpoint.url))

    assert listener.extensions[0] == {"logicalCluster": "lkc-0"}
    assert listener.extensions[-1] == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


@pytest.mark.parametrize("curve", [False, True])
def test_an_assertion_is_signed_with_the_key_and_has_the_claims_of_the_options(
    opened: Opened, endpoint: TokenEndpoint, tmp_path: Path, keys: Keys, curve: bool
) -> None:
    private, public = keys.private, keys.public
    if curve:
        private, public = tmp_path / "ec.key", tmp_path / "ec.pub"
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private)
        openssl("pkey", "-in", private, "-pubout", "-out", public)
    endpoint.assertions = public
    listener = opened(mechanisms=BEARER, judges=lambda token: token in endpoint.issued)
    template = tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "k-7"}, "payload": {"tenant": "t-8", "sub": "not me"}}))

    connects(
        wanted(
            listener.address,
            sasl__oauthbearer__jwt__retriever__class=f"{MODULE.rpartition('.')[0]}.JwtBearerJwtRetriever",
            sasl__oauthbearer__token__endpoint__url=endpoint.url,
            sasl__oauthbearer__assertion__private__key__file=private,
            sasl__oauthbearer__assertion__algorithm="ES256" if curve else "RS256",
            sasl__oauthbearer__assertion__template__file=template,
            sasl__oauthbearer__assertion__claim__sub="svc",
            sasl__oauthbearer__assertion__claim__iss="me",
            sasl__oauthbearer__assertion__claim__aud=endpoint.url,
            sasl__oauthbearer__assertion__claim__jti__include="true",
            sasl__oauthbearer__scope="kafka",
        )
    )

    (asked,) = endpoint.asked
    assert (asked.form["grant_type"], asked.form["scope"]) == (JWT_BEARER, "kafka")
    head, body = (json.loads(decoded(each)) for each in asked.form["assertion"].split(".")[:2])
    assert head == {"typ": "JWT", "kid": "k-7", "alg": "ES256" if curve else "RS256"}
    assert (body["sub"], body["iss"], body["aud"], body["tenant"]) == ("svc", "me", endpoint.url, "t-8")
    assert body["exp"] - body["iat"] == 300 and body["iat"] - body["nbf"] == 60
    assert len(body["jti"]) == 36
    assert len(endpoint.issued) == 1, "the endpoint has checked the signature"


def test_an_assertion_file_is_sent_as_it_is_and_read_anew_for_each_token(
    opened: Opened, endpoint: TokenEndpoint, tmp_path: Path, keys: Keys
) -> None:
    file = tmp_path / "assertion.jwt"
    endpoint.assertions = keys.public
    names = {
        "sasl__oauthbearer__grant__type": JWT_BEARER,
        "sasl__oauthbearer__assertion__file": file,
        "sasl__oauthbearer__token__endpoint__url": endpoint.url,
    }
    for number in (1, 2):
        # Another listener is another login, so the first refusal is not repeated from memory.
        listener = opened(mechanisms=BEARER)
        file.write_text(f"assertion.{number}.x\n")

        error = refused(wanted(listener.address, **names))

        assert type(error) is LoginRefused and "refused the assertion: 401" in error.message
        assert listener.tokens == []
    assert [each.form["assertion"] for each in endpoint.asked] == ["assertion.1.x", "assertion.2.x"]


def test_a_token_from_a_file_is_read_anew_at_each_login(
    opened: Opened, endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    listener, file = opened(mechanisms=BEARER), tmp_path / "token"
    names = {"sasl__oauthbearer__token__endpoint__url": f"file://{file}"}
    first, second = endpoint.token("alice"), endpoint.token("bob")

    for token in (first, second):
        file.write_text(f"{token}\n")
        connects(wanted(listener.address, **names))
    file.write_text(endpoint.token("alice", -1))
    late = refused(wanted(listener.address, **names))

    assert list(dict.fromkeys(listener.tokens)) == [first, second]
    assert isinstance(late, LoginRefused) and "has ended" in late.message and str(file) in late.message


def test_an_unsecured_token_has_javas_claims(opened: Opened) -> None:
    listener = opened(mechanisms=BEARER)
    jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="100";'

    connects(wanted(listener.address, sasl__jaas__config=jaas))

    head, body, signature = listener.tokens[0].split(".")
    claims = json.loads(decoded(body))
    assert (json.loads(decoded(head)), signature, claims["sub"]) == ({"alg": "none"}, "", "alice")
    assert 99 <= claims["exp"] - claims["iat"] <= 101


# ---- providers of the user


CALLS: list[dict[str, str]] = []
GIVES: list[object] = []


def provided(**given: str) -> object:
    """A provider."""
    CALLS.append(given)
    found = GIVES[0]
    if isinstance(found, Exception):
        raise found
    return found


@pytest.fixture
def gives() -> list[object]:
    CALLS.clear()
    GIVES.clear()
    return GIVES


def by_provider(address: str, config: str = "tenant=t-1 secret='two words'") -> ClientSettings:
    return wanted(
        address,
        sasl__oauthbearer__token__provider=f"{__name__}:provided",
        sasl__oauthbearer__config=config,
    )


def test_a_provider_gets_its_configuration_and_its_token_is_kept_for_its_life(
    opened: Opened, gives: list[object]
) -> None:
    listener = opened(mechanisms=BEARER)
    gives.append(("opaque-token", runtime.time() + 100))

    for _ in range(2):
        connects(pickle.loads(pickle.dumps(by_provider(listener.address))))

    assert CALLS == [{"tenant": "t-1", "secret": "two words"}]
    assert set(listener.tokens) == {"opaque-token"}


def test_a_token_whose_end_is_not_known_is_asked_for_at_each_login(opened: Opened, gives: list[object]) -> None:
    listener = opened(mechanisms=BEARER)
    gives.append("opaque-token")

    for _ in range(2):
        connects(by_provider(listener.address))

    assert len(CALLS) == listener.logins >= 2


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (RuntimeError("no rights with two words"), LoginRefused),
        (OptionsError("no tenant"), OptionsError),
        (7, None),
        (("t", "soon"), None),
        ("a token\x01auth=x", None),
    ],
)
def test_what_a_provider_raises_or_gives_wrongly_is_for_the_author_of_the_job(
    opened: Opened, gives: list[object], failure: object, expected: type[ExactlyOnceError] | None
) -> None:
    listener = opened(mechanisms=BEARER)
    gives.append(failure)

    error = refused(by_provider(listener.address, f"secret='two words' case={id(failure)}"))

    assert type(error) is (expected or OptionsError) and error.who_acts == "the author of the job"
    assert "two words" not in str(error)
    assert listener.logins == 0


@pytest.mark.slow
def test_a_provider_whose_service_is_away_is_asked_again(opened: Opened, gives: list[object]) -> None:
    listener = opened(mechanisms=BEARER)
    gives.append(ConnectionRefusedError("nobody"))
    threading.Timer(1.0, lambda: gives.__setitem__(0, ("token", runtime.time() + 100))).start()

    connects(by_provider(listener.address, "case=away"))

    assert len(CALLS) > 1 and set(listener.tokens) == {"token"}


@pytest.mark.parametrize("name", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_provider_that_cannot_be_imported_is_named_before_anything_is_opened(opened: Opened, name: str) -> None:
    listener = opened(mechanisms=BEARER)

    error = refused(wanted(listener.address, sasl__oauthbearer__token__provider=name))

    assert isinstance(error, OptionsError) and name.split(":")[0] in error.message
    assert listener.connections == 0


def test_a_provider_works_in_a_process_that_got_the_pickled_settings(opened: Opened, tmp_path: Path) -> None:
    listener = opened(mechanisms=BEARER)
    (tmp_path / "mytokens.py").write_text("def give(**given):\n    return 'from-' + given['who'], 4e9\n")
    file = tmp_path / "settings"
    sys.path.insert(0, str(tmp_path))
    try:
        made = wanted(
            listener.address,
            sasl__oauthbearer__token__provider="mytokens:give",
            sasl__oauthbearer__config="who=executor",
        )
    finally:
        sys.path.remove(str(tmp_path))
    file.write_bytes(pickle.dumps(made))
    code = (
        "import pickle, sys; from pyspark_kafka_eos.client.net.network import Network\n"
        f"network = Network(pickle.load(open({str(file)!r}, 'rb'))); network.bootstrap(10000); network.close()"
    )

    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60, env={
        "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}", "PATH": "/usr/bin:/bin",
    })  # fmt: skip

    assert set(listener.tokens) == {"from-executor"}


# ---- when a token is fetched


def tokens_of(made: ClientSettings) -> tokens.Tokens:
    found = OAuth.from_settings(dict(made.security))
    assert found is not None
    return tokens.shared(found, made.bootstrap_servers)


def taken(source: tokens.Tokens) -> tokens.Token | ExactlyOnceError:
    """What one login gets."""
    got: list[tokens.Token | ExactlyOnceError] = []
    came = threading.Event()

    def take(found: tokens.Token | ExactlyOnceError) -> None:
        got.append(found)
        came.set()

    source.get(take)
    assert came.wait(WAIT_S)
    return got[0]


def test_all_logins_of_a_process_share_one_fetch(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)
    made = wanted(listener.address, **credentials(endpoint.url))
    endpoint.plan.hold = threading.Event()
    source, got = tokens_of(made), list[object]()
    for _ in range(50):
        source.get(got.append)
    assert got == []
    endpoint.plan.hold.set()
    assert isinstance(taken(source), tokens.Token)

    for _ in range(3):
        connects(made)

    assert len(got) == 50 and len(endpoint.asked) == 1


def test_a_token_is_renewed_at_four_fifths_of_its_life_and_not_before(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tokens_of(wanted("127.0.0.1:1", **credentials(endpoint.url)))
    began, passed = runtime.monotonic(), [0.0]
    monkeypatch.setattr(runtime, "monotonic", lambda: began + passed[0])
    seen = []
    for passed[0] in (0.0, 45.0, 49.0, 94.0, 97.5):
        found = taken(source)
        assert isinstance(found, tokens.Token)
        seen.append(found.text)

    # The claim exp is of the wall clock, which goes on: it may shorten a life of expires_in, 60 s, by a slow fetch.
    assert [endpoint.issued.index(each) for each in seen] == [0, 0, 1, 1, 2]


def test_while_the_endpoint_is_away_the_old_token_is_used_until_its_end(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tokens_of(wanted("127.0.0.1:1", **credentials(endpoint.url)))
    began, passed = runtime.monotonic(), [0.0]
    monkeypatch.setattr(runtime, "monotonic", lambda: began + passed[0])
    first = taken(source)
    endpoint.plan.status = 503

    passed[0] = 50.0
    second = taken(source)
    passed[0] = 61.0
    third = taken(source)
    endpoint.plan.status = 401
    passed[0] = 80.0
    fourth = taken(source)

    assert second == first
    assert isinstance(third, TokenUnavailable) and isinstance(fourth, LoginRefused)


def test_an_endpoint_that_is_away_is_asked_less_and_less_often(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tokens_of(wanted("127.0.0.1:1", **credentials(endpoint.url)))
    began, passed = runtime.monotonic(), [0.0]
    monkeypatch.setattr(runtime, "monotonic", lambda: began + passed[0])
    endpoint.plan.status = 503
    for tick in range(600):
        passed[0] = tick / 10
        assert isinstance(taken(source), TokenUnavailable)

    # After 0, 0.1, 0.2, ... 6.4 s, and every 10 s: the sums are 0 to 12.7, then 22.7 ... 52.7.
    assert 11 <= source.fetches <= 13


def test_a_token_that_a_broker_refuses_is_fetched_anew_at_the_next_attempt(
    opened: Opened, endpoint: TokenEndpoint
) -> None:
    listener = opened(mechanisms=BEARER, judges=lambda token: token != endpoint.issued[0])
    made = wanted(listener.address, **credentials(endpoint.url))

    error = refused(made)
    connects(made)

    assert type(error) is LoginRefused and "refused the token of the token endpoint" in error.message
    assert "invalid_token" in error.message and endpoint.issued[0] not in str(error)
    assert len(endpoint.issued) == 2


def test_the_loop_goes_on_while_a_token_is_fetched(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)
    endpoint.plan.hold = threading.Event()
    network = Network(wanted(listener.address, **credentials(endpoint.url)))
    done = threading.Event()
    caller = threading.Thread(target=lambda: (network.bootstrap(20_000), done.set()))
    caller.start()
    try:
        until = time.monotonic() + WAIT_S
        while not endpoint.asked and time.monotonic() < until:
            time.sleep(0.01)
        ticked = threading.Event()
        network.on_loop(ticked.set)

        assert ticked.wait(1.0), "the loop stands still"
        assert not done.is_set() and listener.tokens == []
    finally:
        endpoint.plan.hold.set()
        caller.join(WAIT_S)
        network.close()
    assert done.is_set()


# ---- whose a failure is


def test_refused_credentials_are_for_the_author_and_sent_once(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)

    error = refused(wanted(listener.address, **credentials(endpoint.url, "wrong+SECRET")))

    assert type(error) is LoginRefused and error.who_acts == "the author of the job"
    assert "refused client id and secret: 401 invalid_client" in error.message
    assert error.facts["endpoint"] == endpoint.url and error.facts["status"] == 401
    # The endpoint repeats what it got.
    assert "wrong" not in str(error) and "d3Jvbmcr" not in str(error)
    assert len(endpoint.asked) == 1 and listener.tokens == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_an_endpoint_in_trouble_is_asked_again_until_the_time_is_over(
    opened: Opened, endpoint: TokenEndpoint, status: int
) -> None:
    listener = opened(mechanisms=BEARER)
    endpoint.plan.status = status
    network = Network(wanted(listener.address, **credentials(endpoint.url)))
    try:
        with pytest.raises(TokenUnavailable, match=f"gives no token now: {status}") as caught:
            network.bootstrap(2_000)
    finally:
        network.close()

    assert isinstance(caught.value, BrokerUnavailable) and caught.value.who_acts.startswith("nobody")
    assert len(endpoint.asked) > 1 and listener.tokens == []


@pytest.mark.slow
def test_an_endpoint_where_nobody_listens_is_waited_for(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)
    made = wanted(listener.address, **credentials("http://127.0.0.1:1/token"))
    network = Network(made)
    try:
        with pytest.raises(TokenUnavailable, match=r"does not answer.*refused"):
            network.bootstrap(1_500)
    finally:
        network.close()


@pytest.mark.slow
def test_an_endpoint_that_never_answers_ends_with_the_time_and_its_name(
    opened: Opened, endpoint: TokenEndpoint
) -> None:
    listener = opened(mechanisms=BEARER)
    endpoint.plan.hold = threading.Event()
    network = Network(wanted(listener.address, **credentials(endpoint.url)))
    began = time.monotonic()
    try:
        with pytest.raises(TokenUnavailable, match="gives no token within"):
            network.bootstrap(1_500)
    finally:
        network.close()
        endpoint.plan.hold.set()

    assert time.monotonic() - began < 4.0


@pytest.mark.slow
def test_an_endpoint_that_never_answers_is_named_by_a_process_that_stood_still(
    opened: Opened, endpoint: TokenEndpoint
) -> None:
    """A CI with four tests on two cores: the client's own question was given up first, and knew no reason."""
    listener = opened(mechanisms=BEARER)
    endpoint.plan.hold = threading.Event()
    network = Network(wanted(listener.address, **credentials(endpoint.url)))
    goes_on_at = time.monotonic() + 3.0

    def stand_still() -> None:
        while not endpoint.asked and time.monotonic() < goes_on_at:
            time.sleep(0.01)
        network.on_loop(lambda: threading.Event().wait(goes_on_at - time.monotonic()))

    stalling = threading.Thread(target=stand_still)
    stalling.start()
    try:
        with pytest.raises(TokenUnavailable, match="gives no token within"):
            network.bootstrap(1_500)
    finally:
        stalling.join(WAIT_S)
        network.close()
        endpoint.plan.hold.set()


HEAD = b"HTTP/1.1 200 OK\r\n"
DRIBBLES = {
    "its head": (HEAD, b"X: y\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "its body": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "its body, without a length": (HEAD + b"Connection: close\r\n\r\n", b" "),
    "a refusal's body": (b"HTTP/1.1 401 No\r\nContent-Length: 100000\r\n\r\n", b" "),
    "one byte": (b"", b"H"),
}


@contextlib.contextmanager
def dribbling(first: bytes, then: bytes) -> Iterator[tuple[str, list[float]]]:
    """An endpoint that answers without end, a piece every 50 ms; its url, and how long each conversation lasted."""
    lasted: list[float] = []
    over = threading.Event()

    def serve(client: socket.socket) -> None:
        began = time.monotonic()
        with client, contextlib.suppress(OSError):
            client.recv(65_536)
            client.sendall(first)
            while not over.wait(0.05):
                client.sendall(then)
        lasted.append(time.monotonic() - began)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threads.append(threading.Thread(target=serve, args=[client]))
                    threads[-1].start()

        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/token", lasted
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            for each in threads:
                each.join(WAIT_S)


@pytest.mark.parametrize(("first", "then"), DRIBBLES.values(), ids=DRIBBLES)
def test_an_endpoint_that_dribbles_holds_no_fetch_beyond_its_timeouts(first: bytes, then: bytes) -> None:
    """Each piece comes within the timeout of a read, and the answer never ends."""
    with dribbling(first, then) as (url, lasted):
        began = time.monotonic()
        with pytest.raises((TokenUnavailable, LoginRefused)):
            endpoint_module.ask(oauth_of(url, connect_ms="300", read_ms="400"))
        assert time.monotonic() - began < 5.0
    assert max(lasted) < 5.0, "the socket stays open"


def test_tls_that_dribbles_holds_no_fetch_beyond_its_timeouts() -> None:
    # A handshake record of 16 KB, of which a byte comes every 50 ms.
    with dribbling(b"\x16\x03\x03\x40\x00", b"\x02") as (url, _):
        began = time.monotonic()
        with pytest.raises(TokenUnavailable, match="does not answer"):
            endpoint_module.ask(oauth_of(url.replace("http:", "https:"), connect_ms="300", read_ms="400"))
        assert time.monotonic() - began < 5.0


def test_a_fetch_that_does_not_end_is_given_up_and_the_next_login_begins_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider may hang for ever; a login of later, when its service is well, has its token."""
    monkeypatch.setattr(tokens, "_LATE_S", 0.0)
    hangs, asked = threading.Event(), [0]

    def ask(*_: object) -> Answer:
        asked[0] += 1
        if asked[0] == 1:
            hangs.wait(WAIT_S)
        return Answer(f"token-{asked[0]}", 60.0)

    monkeypatch.setattr(endpoint_module, "ask", ask)
    mine = tokens.Tokens(oauth_of("http://127.0.0.1:1/token", connect_ms="100", read_ms="100"), ())
    given: list[object] = []
    try:
        mine.get(given.append)
        mine.get(given.append)
        time.sleep(0.4)
        assert (asked, given) == ([1], [])
        mine.get(given.append)
        until = time.monotonic() + WAIT_S
        while len(given) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert [each.text for each in given if isinstance(each, tokens.Token)] == ["token-2"] * 3
    finally:
        hangs.set()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>login</html>", "answers without an access_token"),
        (b"[1]", "answers without an access_token"),
        (b'{"access_token": 7}', "answers without an access_token"),
        (b"[" * 100_000, "answers without an access_token"),
        (b'{"access_token": "a\\u0001auth=b"}', "no bearer token"),
        (b"x" * (1 << 20) + b"x", "more than"),
    ],
)
def test_an_answer_that_is_no_token_reaches_no_broker(
    opened: Opened, endpoint: TokenEndpoint, body: bytes, said: str
) -> None:
    listener = opened(mechanisms=BEARER)
    endpoint.plan.body = body
    network = Network(wanted(listener.address, **credentials(endpoint.url)))
    try:
        with pytest.raises(ExactlyOnceError, match=said):
            network.bootstrap(1_500)
    finally:
        network.close()

    assert listener.tokens == []


@pytest.mark.parametrize("status", [301, 302, 307, 404, 405])
def test_a_redirect_or_another_page_is_a_wrong_address_and_is_not_followed(
    opened: Opened, endpoint: TokenEndpoint, tmp_path: Path, keys: Keys, status: int
) -> None:
    listener = opened(mechanisms=BEARER)
    with TokenEndpoint(tmp_path / "other", keys.issuer, clients=endpoint.clients) as other:
        endpoint.plan.status, endpoint.plan.headers = status, {"Location": other.url}

        error = refused(wanted(listener.address, **credentials(endpoint.url)))

        assert isinstance(error, OptionsError) and f"answers {status}" in error.message
        assert other.asked == []


def test_the_endpoints_certificate_is_judged_before_credentials_are_sent(
    opened: Opened, tmp_path: Path, keys: Keys
) -> None:
    listener, authority = opened(mechanisms=BEARER), Authority(tmp_path / "own")
    cases = [
        (authority.issue("good"), authority.file, None, None),
        (
            authority.issue("good2"),
            Authority(tmp_path / "other").file,
            OptionsError,
            "authority that is not trusted",
        ),
        (
            authority.issue("expired", expired=True),
            authority.file,
            BrokerNotTrusted,
            "expired or for another host",
        ),
        (
            authority.issue("elsewhere", host="DNS:idp.example"),
            authority.file,
            BrokerNotTrusted,
            "another host",
        ),
    ]
    for number, (pair, trusted, expected, said) in enumerate(cases):
        with TokenEndpoint(
            tmp_path / str(number), keys.issuer, clients={"alice": SECRET}, tls=serving(pair)
        ) as guarded:
            made = wanted(listener.address, **credentials(guarded.url, https__ca__location=trusted))
            if expected is None:
                connects(made)
                assert len(guarded.issued) == 1
                continue

            error = refused(made)

            assert type(error) is expected and str(said) in error.message, error
            assert guarded.asked == []


def test_tls_to_an_endpoint_without_it_is_named(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=BEARER)
    url = endpoint.url.replace("http:", "https:")

    error = refused(wanted(listener.address, **credentials(url)))

    assert isinstance(error, OptionsError) and "does not speak TLS" in error.message


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"sasl__oauthbearer__assertion__file": "/nowhere/a.jwt"}, "/nowhere/a.jwt cannot be read"),
        (
            {"sasl__oauthbearer__assertion__private__key__file": "/nowhere/k.pem"},
            "/nowhere/k.pem cannot be read",
        ),
        ({"sasl__oauthbearer__assertion__private__key__pem": "no key"}, "cannot be opened as a private key"),
    ],
)
def test_a_file_or_key_that_cannot_be_used_is_named_before_anything_is_opened(
    opened: Opened, endpoint: TokenEndpoint, names: dict[str, str], said: str
) -> None:
    listener = opened(mechanisms=BEARER)
    made = wanted(listener.address, sasl__oauthbearer__token__endpoint__url=endpoint.url, **names)

    error = refused(made)

    assert isinstance(error, OptionsError) and said in error.message
    assert listener.connections == 0 and endpoint.asked == []


def test_an_encrypted_key_needs_its_passphrase_and_the_right_one(
    opened: Opened, endpoint: TokenEndpoint, tmp_path: Path, keys: Keys
) -> None:
    listener, locked = opened(mechanisms=BEARER), tmp_path / "locked.pem"
    openssl("pkcs8", "-topk8", "-in", keys.private, "-out", locked, "-passout", "pass:opens it")
    endpoint.assertions = keys.public
    names = {
        "sasl__oauthbearer__token__endpoint__url": endpoint.url, "sasl__oauthbearer__assertion__private__key__file": locked,
        "sasl__oauthbearer__assertion__claim__sub": "svc", "sasl__oauthbearer__assertion__claim__aud": endpoint.url,
    }  # fmt: skip
    word = "sasl__oauthbearer__assertion__private__key__passphrase"

    none = refused(wanted(listener.address, **names))
    wrong = refused(wanted(listener.address, **names, **{word: "opens nothing"}))
    connects(wanted(listener.address, **names, **{word: "opens it"}))

    assert "is encrypted: set" in none.message
    assert "cannot be opened with its passphrase" in wrong.message and "opens nothing" not in str(wrong)


def test_a_listener_without_oauthbearer_is_named_with_what_it_offers(opened: Opened, endpoint: TokenEndpoint) -> None:
    listener = opened(mechanisms=["PLAIN"], users={})

    error = refused(wanted(listener.address, **credentials(endpoint.url)))

    assert isinstance(error, OptionsError) and "it offers PLAIN" in error.message


@pytest.mark.parametrize("accepted", [True, False])
def test_neither_secret_nor_token_is_in_a_log_a_message_or_the_clients_state(
    opened: Opened, endpoint: TokenEndpoint, accepted: bool
) -> None:
    listener = opened(mechanisms=BEARER, judges=lambda _: accepted)
    with everything_logged() as said:
        made = wanted(listener.address, **credentials(endpoint.url))
        network = Network(made)
        try:
            try:
                network.bootstrap(10_000)
            except LoginRefused as error:
                said.write("".join(traceback.format_exception(error)) + repr(error.facts))
            state = f"{network!r} {vars(network)!r} {vars(network._pool)!r} {vars(network._first)!r} {made!r}"
            state += f"{tokens_of(made)!r} {taken(tokens_of(made))!r}"
        finally:
            network.close()

    assert listener.tokens and "SaslAuthenticate" in said.getvalue(), "the exchange was not logged"
    for secret in (SECRET, *endpoint.issued):
        assert secret not in said.getvalue() and secret not in state


def test_no_context_of_tls_trusts_everything() -> None:
    from pyspark_kafka_eos.client.net.oauth.endpoint import context

    found = context(OAuth("client_credentials"))

    assert found.verify_mode is ssl.CERT_REQUIRED and found.check_hostname
