"""The presets of AWS, Azure and Google: what their libraries are asked, and what the brokers get.

Modules of the same face stand in for the three libraries where a service would be asked or must fail. The libraries of
AWS and Google are used themselves where they make a token without their service.
"""

from __future__ import annotations

import base64
import datetime
import importlib.machinery
import importlib.util
import json
import sys
import time
import types
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from kafka_core.errors import LoginRefused, OptionsError, TokenUnavailable
from pyspark_kafka_eos.client.net.oauth import provider, tokens
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.model import Secret
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import Keys, TokenEndpoint, decoded

MSK = ("b-1.mine.abc.c2.kafka.eu-west-1.amazonaws.com:9098",)
HUBS = ("mine.servicebus.windows.net:9093",)
SECRET = "planted+SECRET"


class Away(Exception):
    """A library's error of a service that is away."""


class Refused(Exception):
    """A library's error of credentials that are refused."""

    retryable = False


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """Empty modules of the libraries' names, in the place of whatever is installed."""
    names = (
        "aws_msk_iam_sasl_signer", "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "botocore", "botocore.exceptions",
        "azure", "azure.core", "azure.core.exceptions", "azure.identity", "google", "google.auth", "google.auth.exceptions",
        "google.auth.transport", "google.auth.transport.requests",
    )  # fmt: skip
    found: dict[str, Any] = {}
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        found[name] = module
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(found[parent], last, module)
    found["botocore.exceptions"].HTTPClientError = Away
    found["azure.core.exceptions"].ServiceRequestError = Away
    found["azure.core.exceptions"].ServiceResponseError = Away
    found["azure.core.exceptions"].ClientAuthenticationError = Refused
    found["google.auth.exceptions"].TransportError = Away
    found["google.auth.exceptions"].RefreshError = Refused
    found["google.auth.transport.requests"].Request = object
    return found


def asked(name: str, servers: tuple[str, ...], config: str = "") -> tuple[str, float]:
    """The token of a preset, and the seconds that it lasts."""
    oauth = OAuth("provider", provider=name, config=Secret(config))
    tokens.check(oauth)
    found = provider.ask(oauth, servers)
    assert found.lasts_s is not None
    return found.token, found.lasts_s


# ---- AWS


@pytest.mark.parametrize(
    ("config", "servers", "call"),
    [
        ("", MSK, ("generate_auth_token", "eu-west-1")),
        ("", ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098",), ("generate_auth_token", "us-east-2")),
        ("region=eu-north-1 profile='my own'", ("localhost:1",),
         ("generate_auth_token_from_profile", "eu-north-1", "my own")),
        ("role_arn=arn:aws:iam::1:role/r", MSK,
         ("generate_auth_token_from_role_arn", "eu-west-1", "arn:aws:iam::1:role/r", "usual")),
        ("role_arn=arn role_session_name=s", MSK, ("generate_auth_token_from_role_arn", "eu-west-1", "arn", "s")),
    ],
)  # fmt: skip
def test_the_signer_of_aws_is_asked_for_the_clusters_region(
    modules: dict[str, Any], config: str, servers: tuple[str, ...], call: tuple[str, ...]
) -> None:
    calls = []
    signer = modules["aws_msk_iam_sasl_signer.MSKAuthTokenProvider"]
    signer.DEFAULT_STS_SESSION_NAME = "usual"

    def answer(*words: str) -> tuple[str, int]:
        calls.append(words)
        return "signed", int((time.time() + 900) * 1000)

    for name in (
        "generate_auth_token",
        "generate_auth_token_from_profile",
        "generate_auth_token_from_role_arn",
    ):
        setattr(signer, name, lambda *words, name=name: answer(name, *words))

    token, lasts_s = asked("aws-msk-iam", servers, config)

    assert calls == [call]
    assert token == "signed" and 890 < lasts_s <= 900


def test_a_cluster_without_a_region_in_its_name_and_a_machine_without_credentials_are_named(
    modules: dict[str, Any],
) -> None:
    def none(_region: str) -> None:
        raise AttributeError("'NoneType' object has no attribute 'access_key'")

    modules["aws_msk_iam_sasl_signer.MSKAuthTokenProvider"].generate_auth_token = none

    with pytest.raises(OptionsError, match="do not show the region"):
        asked("aws-msk-iam", ("localhost:9098",))
    with pytest.raises(LoginRefused, match="no AWS credentials were found"):
        asked("aws-msk-iam", MSK)


# ---- Azure


def test_entra_is_asked_as_the_configuration_says(modules: dict[str, Any]) -> None:
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    scopes = []

    def credential(name: str) -> Any:
        class Credential:
            def __init__(self, *words: Any, **more: Any) -> None:
                made.append((name, words, more))

            def get_token(self, scope: str) -> Any:
                scopes.append(scope)
                return types.SimpleNamespace(token="entra", expires_on=int(time.time()) + 3600)

            def close(self) -> None:
                made.append(("closed", (), {}))

        return Credential

    for name in ("ClientSecretCredential", "DefaultAzureCredential", "ManagedIdentityCredential"):
        setattr(modules["azure.identity"], name, credential(name))

    for config in (
        "", "managed_identity=true client_id=c", f"tenant_id=t client_id=c client_secret={SECRET} authority=login.example",
        "scope=api://x/.default",
    ):  # fmt: skip
        token, lasts_s = asked("azure", HUBS, config)
        assert token == "entra" and lasts_s > 3590

    assert [each for each in made if each[0] != "closed"] == [
        ("DefaultAzureCredential", (), {}),
        ("ManagedIdentityCredential", (), {"client_id": "c"}),
        (
            "ClientSecretCredential",
            ("t", "c", SECRET),
            {"authority": "login.example", "disable_instance_discovery": True},
        ),
        ("DefaultAzureCredential", (), {}),
    ]
    assert len(made) == 8, "a credential was left open"
    assert scopes == ["https://mine.servicebus.windows.net/.default"] * 3 + ["api://x/.default"]


def test_a_wrapped_failure_to_reach_entra_is_waited_for(modules: dict[str, Any]) -> None:
    def fail(*_: Any) -> None:
        raise Refused("Authentication failed: no route") from OSError("no route")

    credential = type("Credential", (), {"__init__": lambda *_: None, "get_token": fail, "close": lambda _: None})
    modules["azure.identity"].DefaultAzureCredential = credential
    modules["azure.identity"].ClientSecretCredential = modules["azure.identity"].ManagedIdentityCredential = credential

    with pytest.raises(TokenUnavailable, match="no route"):
        asked("azure", HUBS)


# ---- Google


class GoogleCredentials:
    """As google-auth's: the time has no zone."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.token, self.service_account_email, self._failure = None, "svc@mine.example", failure

    def refresh(self, _request: object) -> None:
        """Ask for a token."""
        if self._failure is not None:
            raise self._failure
        self.token = "ya29.+/raw"  # type: ignore[assignment]
        now = datetime.datetime.now(datetime.timezone.utc)
        self.expiry = (now + datetime.timedelta(hours=1)).replace(tzinfo=None)


def judge_google(token: str, raw: str | None, email: str) -> None:
    """The form that Google's own login handler gives its token."""
    head, body, rest = map(decoded, token.split("."))
    claims = json.loads(body)
    assert json.loads(head) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert (claims["iss"], claims["scope"], claims["sub"]) == ("Google", "kafka", email)
    assert 3590 < claims["exp"] - claims["iat"] <= 3601
    assert raw is None or rest.decode() == raw


def test_googles_token_has_the_shape_of_a_jwt_around_the_access_token(modules: dict[str, Any]) -> None:
    files = []
    modules["google.auth"].default = lambda **_: (GoogleCredentials(), "project")
    modules["google.auth"].load_credentials_from_file = lambda file, **_: (
        files.append(file),
        GoogleCredentials(),
    )[::-1]

    for config, email in (("", "svc@mine.example"), ("credentials_file=/c.json principal=me@x", "me@x")):
        token, lasts_s = asked("google", ("bootstrap.mine:9092",), config)

        judge_google(token, "ya29.+/raw", email)
        assert 3590 < lasts_s <= 3600
    assert files == ["/c.json"]


# ---- all


@pytest.mark.parametrize("name", ["aws-msk-iam", "azure", "google"])
@pytest.mark.parametrize(("failure", "expected"), [(Away("no route"), TokenUnavailable), (Refused(f"not with {SECRET}"), LoginRefused)])  # fmt: skip
def test_a_service_that_is_away_is_waited_for_and_a_refusal_is_for_the_author(
    modules: dict[str, Any], name: str, failure: Exception, expected: type[Exception]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    modules["aws_msk_iam_sasl_signer.MSKAuthTokenProvider"].generate_auth_token_from_profile = fail
    credential = type("Credential", (), {"__init__": lambda *_: None, "get_token": fail, "close": lambda _: None})
    for each in ("ClientSecretCredential", "DefaultAzureCredential", "ManagedIdentityCredential"):
        setattr(modules["azure.identity"], each, credential)
    modules["google.auth"].load_credentials_from_file = lambda *_, **__: (GoogleCredentials(failure), None)
    configs = {
        "aws-msk-iam": f"profile={SECRET}", "azure": f"tenant_id=t client_id=c client_secret={SECRET}",
        "google": f"credentials_file={SECRET}",
    }  # fmt: skip

    with pytest.raises(expected) as caught:
        asked(name, MSK, configs[name])

    assert type(caught.value) is expected and SECRET not in str(caught.value)


@pytest.mark.parametrize(("name", "extra"), [("aws-msk-iam", "msk"), ("azure", "azure"), ("google", "gcp")])
def test_a_missing_library_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(OptionsError) as caught:
        asked(name, MSK)

    assert f"pip install 'pyspark-kafka-eos[{extra}]'" in caught.value.message


def test_a_name_that_a_preset_does_not_read_is_refused() -> None:
    with pytest.raises(OptionsError, match="has zone, but only region"):
        asked("aws-msk-iam", MSK, "zone=a")


# ---- the libraries themselves


def test_the_real_signer_signs_a_request_to_msk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    token, lasts_s = asked("aws-msk-iam", MSK)

    address = urllib.parse.urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    said = dict(urllib.parse.parse_qsl(address.query))
    assert address.hostname == "kafka.eu-west-1.amazonaws.com"
    assert said["Action"] == "kafka-cluster:Connect"
    assert said["X-Amz-Credential"].startswith("AKIDEXAMPLE/") and said["X-Amz-Credential"].endswith(
        "/eu-west-1/kafka-cluster/aws4_request"
    )
    assert len(said["X-Amz-Signature"]) == 64 and said["X-Amz-Expires"] == "900"
    assert 880 < lasts_s <= 900


def test_the_real_library_of_google_signs_an_assertion_for_a_service_account(
    endpoint: TokenEndpoint, keys: Keys, tmp_path: Path
) -> None:
    endpoint.plan.body = json.dumps({"access_token": "ya29.raw", "expires_in": 3600, "token_type": "Bearer"}).encode()
    file = tmp_path / "account.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account", "client_email": "svc@mine.example", "token_uri": endpoint.url, "private_key_id": "k",
                "private_key": keys.private.read_text(), "project_id": "p", "client_id": "1",
            }
        )
    )  # fmt: skip

    token, _ = asked("google", ("bootstrap.mine:9092",), f"credentials_file={file}")

    (question,) = endpoint.asked
    assert json.loads(decoded(question.form["assertion"].split(".")[1]))["iss"] == "svc@mine.example"
    judge_google(token, "ya29.raw", "svc@mine.example")
