"""OAUTHBEARER's names: which go together, what is refused, and that no secret is shown."""

from __future__ import annotations

import pickle

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.model import Secret, SecretReference
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.login.oauth import OAUTH_NAMES

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam."
URL = "https://idp.example/token"


def parsed(**names: str) -> OAuth:
    """The login of a query's options."""
    given = {f"kafka.{name.replace('__', '.')}": value for name, value in names.items()}
    least = {
        "kafka.bootstrap.servers": "b:9092", "pipeline": "p", "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
    }  # fmt: skip
    security = dict(SinkOptions.parse({**least, **given}).client.security)
    assert security["sasl_mechanism"] == "OAUTHBEARER"
    found = OAuth.from_settings(security)
    assert found is not None
    return found


def refusal(**names: str) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        parsed(**names)
    assert "hunter2" not in str(caught.value)
    return caught.value.problems()


def test_a_login_without_a_way_to_a_token_names_what_is_missing() -> None:
    (line,) = refusal()

    assert "token.endpoint.url and kafka.sasl.oauthbearer.client.credentials.client.id and" in line


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"sasl__oauthbearer__client__id": "a", "sasl__oauthbearer__client__credentials__client__id": "b"}, "are both given"),
        ({"sasl__oauthbearer__client__id": "a", "sasl__jaas__config": f'{MODULE} required clientId="b";'}, "are both given"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__token__endpoint__url": URL},
         "kafka.sasl.oauthbearer.token.endpoint.url has no effect with a token provider"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__config": "hunter2"}, "must be name=value pairs"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__config": "a='hunter2"}, "must be name=value pairs"),
        ({"sasl__oauthbearer__token__provider": "os.system"}, "or module:function"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__extensions": "auth=x"}, "none of them auth"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__extensions": "a=b\x01c=d"}, "name=value pairs"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__login__refresh__window__factor": "0.2"}, "must be 0.5 to 1"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__username": "me"}, "sasl.username has no meaning"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__login__callback__handler__class": "com.example.Mine"},
         "a Java class cannot be loaded here"),
        ({"sasl__oauthbearer__token__provider": "m:f", "sasl__oauthbearer__jwks__endpoint__url": URL},
         "the broker judges the token"),
        ({"sasl__oauthbearer__method": "default"}, "must be oidc"),
        ({"sasl__oauthbearer__grant__type": "password"}, "must be one of client_credentials"),
        ({"sasl__jaas__config": 'x required password="hunter2";'}, "no login module"),
        ({"sasl__jaas__config": f'{MODULE} required clientSecret="hunter2'}, "cannot be read"),
        ({"sasl__jaas__config": f'{MODULE} required other="hunter2";'}, "other of kafka.sasl.jaas.config has no meaning"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_its_name(names: dict[str, str], said: str) -> None:
    assert any(said in line for line in refusal(**names)), refusal(**names)


@pytest.mark.parametrize("url", ["ftp://x/y", "idp.example/token", "https://me:hunter2@idp.example/token"])
def test_an_address_that_cannot_be_an_endpoints_is_refused(url: str) -> None:
    lines = refusal(
        sasl__oauthbearer__token__endpoint__url=url,
        sasl__oauthbearer__client__id="a",
        sasl__oauthbearer__client__secret="hunter2",
    )

    assert len(lines) == 1 and "kafka.sasl.oauthbearer.token.endpoint.url" in lines[0]


def test_names_of_tokens_are_refused_with_another_mechanism_and_without_sasl() -> None:
    lines = refusal(sasl__mechanism="PLAIN", sasl__username="a", sasl__password="b", sasl__oauthbearer__scope="s")
    assert lines == ["kafka.sasl.oauthbearer.scope would have no effect: kafka.sasl.mechanism is PLAIN; leave it out"]

    (line,) = refusal(security__protocol="SSL", https__ca__location="/ca.pem", sasl__mechanism="PLAIN")
    assert "kafka.https.ca.location" in line and "would have no effect" in line


def test_aws_msk_iam_as_its_documents_have_it_is_the_preset() -> None:
    found = parsed(
        sasl__mechanism="AWS_MSK_IAM",
        sasl__jaas__config=f'{IAM}IAMLoginModule required awsProfileName="my profile" awsRoleArn="arn:aws:iam::1:role/r";',
        sasl__client__callback__handler__class=f"{IAM}IAMClientCallbackHandler",
    )

    assert (found.method, found.provider) == ("provider", "aws-msk-iam")
    assert found.config.reveal() == "'profile=my profile' role_arn=arn:aws:iam::1:role/r"


@pytest.mark.parametrize(
    ("handler", "preset"),
    [
        ("com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler", "google"),
        (f"{IAM}IAMOAuthBearerLoginCallbackHandler", "aws-msk-iam"),
    ],
)
def test_the_login_handlers_of_two_platforms_are_their_presets(handler: str, preset: str) -> None:
    found = parsed(sasl__login__callback__handler__class=handler, sasl__jaas__config=f"{MODULE} required;")

    assert found.provider == preset


def test_secrets_are_shown_nowhere_and_references_carry_none() -> None:
    secret = {
        "sasl__oauthbearer__token__endpoint__url": URL,
        "sasl__oauthbearer__client__id": "${env:CLIENT_ID}",
        "sasl__oauthbearer__client__secret": "hunter2",
    }
    plain = parsed(**secret)
    reference = parsed(**{**secret, "sasl__oauthbearer__client__secret": "${file:/run/secrets/oidc:secret}"})

    assert "hunter2" not in repr(plain) and plain.client_secret == Secret("hunter2")
    assert plain.client_id == SecretReference("env", "CLIENT_ID")
    assert reference.client_secret == SecretReference("file", "/run/secrets/oidc", "secret")
    assert pickle.loads(pickle.dumps(reference)) == reference
    assert hash(plain) != hash(reference)


def test_every_name_is_documented() -> None:
    assert all(OAUTH_NAMES.values())
