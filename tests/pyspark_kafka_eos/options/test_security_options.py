"""TLS and SASL: the translation to the network library's names, and that no secret is ever printed."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import pprint
import ssl
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials.tls import Tls
from pyspark_kafka_eos.model import ClientSettings, Secret
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.login.tls import _SUITES

LEAST = {"kafka.bootstrap.servers": "broker:9092", "pipeline": "p"}
SECRET = "hunter2;'\"x"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def security(**names: str) -> dict[str, str | bool | None]:
    """Parse security names (`__` for a dot) and return the translated settings, secrets revealed."""
    given = {f"kafka.{name.replace('__', '.')}": value for name, value in names.items()}
    found = SinkOptions.parse({**LEAST, **given}).client.security
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in found}


def refusal(**names: str) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        security(**names)
    return caught.value.problems()


def test_without_security_names_there_are_no_security_settings() -> None:
    assert security() == {}


def test_a_scram_user_in_javas_spelling_and_in_librdkafkas_are_the_same() -> None:
    java = security(
        security__protocol="SASL_SSL",
        sasl__mechanism="SCRAM-SHA-512",
        sasl__jaas__config=f'{SCRAM_MODULE} required username="me" password="pw";',
    )
    librdkafka = security(
        security__protocol="sasl_ssl",
        sasl__mechanisms="SCRAM-SHA-512",
        sasl__username="me",
        sasl__password="pw",
    )

    assert java == librdkafka
    assert java == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "pw",
        "ssl_check_hostname": True,
    }


@pytest.mark.parametrize(
    ("jaas", "password"),
    [
        (f'{PLAIN_MODULE} required username="me" password="p w";', "p w"),
        (f"{PLAIN_MODULE}  required\n  username='me'\n  password='p\"w' ;\n", 'p"w'),
        (f"{PLAIN_MODULE} required username=me password=pw;", "pw"),
        (f'{PLAIN_MODULE} Required password="a\\"b\\\\c\\101" username="me";', 'a"b\\cA'),
        (f'{PLAIN_MODULE} optional username="me" password="a\\tb";', "a\tb"),
        (f'kafkashaded.{PLAIN_MODULE} required username="me" password="";', ""),
    ],
)
def test_a_jaas_line_is_read_as_java_reads_it(jaas: str, password: str) -> None:
    settings = security(security__protocol="SASL_PLAINTEXT", sasl__mechanism="PLAIN", sasl__jaas__config=jaas)

    assert settings["sasl_plain_username"] == "me"
    assert settings["sasl_plain_password"] == password


EVERY_CHARACTER = "".join(map(chr, range(0x20, 0x7F))) + "äß€漢😀"


def test_a_password_may_have_every_character() -> None:
    escaped = EVERY_CHARACTER.replace("\\", "\\\\").replace('"', '\\"')
    in_jaas = f'{PLAIN_MODULE} required username="me" password="{escaped}";'
    sasl = {"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}

    assert security(**sasl, sasl__jaas__config=in_jaas)["sasl_plain_password"] == EVERY_CHARACTER
    plain = security(**sasl, sasl__username="me", sasl__password=EVERY_CHARACTER)
    assert plain["sasl_plain_password"] == EVERY_CHARACTER


@pytest.mark.parametrize(
    ("mechanism", "jaas", "user", "password"),
    [
        pytest.param(
            "PLAIN",
            f"{PLAIN_MODULE}   required username='ABCDEF123456'   password='abc/d+e==';",
            "ABCDEF123456",
            "abc/d+e==",
            id="Confluent Cloud",
        ),
        pytest.param(
            "PLAIN",
            f'{PLAIN_MODULE} required username="$ConnectionString" password="Endpoint=sb://ns.servicebus.windows.net/;'
            'SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=abc+/def=";',
            "$ConnectionString",
            "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=abc+/def=",
            id="Event Hubs",
        ),
        pytest.param(
            "SCRAM-SHA-512",
            f'{SCRAM_MODULE} required\n  username="alice"\n  password="alice-secret";',
            "alice",
            "alice-secret",
            id="MSK with SCRAM",
        ),
        pytest.param(
            "SCRAM-SHA-256",
            f'{SCRAM_MODULE} required username="avnadmin" password="AVNS_abc-DEF_123";',
            "avnadmin",
            "AVNS_abc-DEF_123",
            id="Aiven",
        ),
    ],
)
def test_a_jaas_line_of_a_platforms_documents_is_taken(mechanism: str, jaas: str, user: str, password: str) -> None:
    found = security(security__protocol="SASL_SSL", sasl__mechanism=mechanism, sasl__jaas__config=jaas)

    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == (user, password)


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "DIGEST-MD5", "CRAM-MD5", "SCRAM-SHA-1", "NTLM"])
def test_a_mechanism_that_the_jvm_knows_is_named_with_those_that_are_supported(mechanism: str) -> None:
    (line,) = refusal(security__protocol="SASL_SSL", sasl__mechanism=mechanism)

    assert line == (
        f"kafka.sasl.mechanism is {mechanism}, which is not supported; it must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "GSSAPI, OAUTHBEARER, AWS_MSK_IAM"
    )


def test_what_is_no_name_of_a_mechanism_is_not_shown() -> None:
    (line,) = refusal(security__protocol="SASL_SSL", sasl__mechanism="Endpoint=sb://hunter2;")

    assert line.startswith("kafka.sasl.mechanism is no name of a mechanism; it must be one of PLAIN,")
    assert "hunter2" not in line.lower()


@pytest.mark.parametrize(
    "jaas",
    [
        SECRET,
        "",
        f'{PLAIN_MODULE} required username="me" password="{SECRET}";',
        f'{PLAIN_MODULE} required username="me" password="hunter2"',
        f'{PLAIN_MODULE} username="me" password="hunter2";',
        f'{PLAIN_MODULE} required username="me";',
        f'{PLAIN_MODULE} required password="hunter2";',
        f'{PLAIN_MODULE} required username="me" password="hunter2" hunter2="x";',
        f'{SCRAM_MODULE} required username="me" password="hunter2";',
        "hunter2.hunter2 required username=me password=hunter2;",
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
    ],
)
def test_a_jaas_line_that_does_not_fit_is_refused_and_never_repeated(jaas: str) -> None:
    lines = refusal(security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__jaas__config=jaas)

    assert len(lines) == 1
    assert "PlainLoginModule required username=" in lines[0] or "username and password" in lines[0]
    assert "hunter2" not in lines[0]


def test_secrets_are_in_no_repr_and_still_reach_the_client() -> None:
    options = SinkOptions.parse(
        {
            **LEAST,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": " hunter2 ",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": "/client.pem",
            "kafka.ssl.key.password": "hunter2",
        }
    )
    arrived = pickle.loads(pickle.dumps(options))

    for shown in (
        repr(options),
        str(options),
        f"{options}",
        repr(arrived),
        repr(arrived.client),
        str(asdict(options)),
    ):
        assert "hunter2" not in shown
    assert dict(arrived.client.security)["sasl_plain_password"] == Secret(" hunter2 ")
    assert dict(arrived.client.security)["ssl_password"] == Secret("hunter2")
    assert arrived == options
    assert hash(arrived.client) == hash(options.client)


@pytest.mark.parametrize(
    "show",
    [
        str,
        repr,
        lambda secret: f"{secret}",
        lambda secret: f"{secret!s:>20}",
        lambda secret: format(secret, ">20"),
        lambda secret: "%s" % secret,  # noqa: UP031 -- one more way to show it
        lambda secret: json.dumps({"password": secret}, default=str),
        lambda secret: json.dumps({"password": secret}, default=repr),
        lambda secret: str([secret]),
        lambda secret: str(ClientSettings(("host:1",), security=(("sasl_plain_password", secret),))),
        lambda secret: repr(dataclasses.asdict(ClientSettings(("host:1",), security=(("ssl_password", secret),)))),
        lambda secret: pprint.pformat({"password": secret}),
    ],
)
def test_a_secret_is_shown_in_no_way(show: Callable[[Secret], str]) -> None:
    shown = show(Secret("hunter2"))

    assert "hunter2" not in shown
    assert "********" in shown


@pytest.mark.parametrize(
    "use",
    [
        json.dumps,
        lambda secret: "".join([secret]),
        lambda secret: "user:" + secret,
        lambda secret: bytes(secret, "utf-8"),
        lambda secret: Path(secret),
    ],
)
def test_what_takes_text_does_not_take_a_secret_unseen(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError) as refusal:
        use(Secret("hunter2"))

    assert "hunter2" not in str(refusal.value)


def test_a_secret_is_itself_after_pickle_and_equal_to_no_text() -> None:
    secret = Secret("hunter2")

    assert pickle.loads(pickle.dumps(secret)) == copy.deepcopy(secret) == secret
    assert hash(Secret("hunter2")) == hash(secret)
    assert secret != "hunter2"
    assert secret != Secret("other")
    assert secret.reveal() == "hunter2"


def test_a_refusal_with_secrets_among_the_options_shows_none_of_them() -> None:
    with pytest.raises(OptionsError) as caught:
        SinkOptions.parse(
            {
                "kafka.sasl.pasword": "hunter2",
                "password": "hunter2",
                "kafka.sasl.password": "hunter2",
                "kafka.ssl.key.password": "hunter2",
                "kafka.ssl.truststore.password": "hunter2",
                "kafka.sasl.oauthbearer.client.credentials.client.secret": "hunter2",
                "kafka.sasl.jaas.config": "hunter2",
                "kafka.security.protocol": "hunter2",
            }
        )
    whole = "".join(traceback.format_exception(caught.value)) + repr(caught.value)

    assert "kafka.sasl.pasword is not a known option: did you mean kafka.sasl.password?" in whole
    assert "hunter2" not in whole


def test_every_translated_name_is_one_that_the_network_library_reads() -> None:
    settings = security(
        security__protocol="SASL_SSL",
        sasl__mechanism="PLAIN",
        sasl__username="me",
        sasl__password="pw",
        ssl__ca__location="/ca.pem",
        ssl__certificate__location="/cert.pem",
        ssl__key__location="/key.pem",
        ssl__key__password="pw",
        ssl__crl__location="/crl.pem",
        ssl__endpoint__identification__algorithm="",
    )
    kerberos = security(
        security__protocol="SASL_PLAINTEXT", sasl__mechanism="GSSAPI", sasl__kerberos__service__name="k"
    )

    ours = {field.name for field in dataclasses.fields(Tls)}
    assert {name for name in settings if name.startswith("ssl_")} <= ours
    assert settings["ssl_check_hostname"] is False
    assert (settings["ssl_cafile"], settings["ssl_certfile"]) == ("/ca.pem", "/cert.pem")
    assert (settings["ssl_keyfile"], settings["ssl_crlfile"]) == ("/key.pem", "/crl.pem")
    assert kerberos["sasl_kerberos_service_name"] == "k"


def test_a_pem_key_store_holds_key_and_certificate_in_one_file() -> None:
    settings = security(
        security__protocol="SSL",
        ssl__truststore__type="PEM",
        ssl__truststore__location="/ca.pem",
        ssl__keystore__type="pem",
        ssl__keystore__location="/client.pem",
    )

    assert settings["ssl_cafile"] == "/ca.pem"
    assert settings["ssl_certfile"] == settings["ssl_keyfile"] == "/client.pem"


@pytest.mark.parametrize("kind", [{}, {"ssl__truststore__type": "jks", "ssl__keystore__type": "JKS"}])
def test_stores_without_a_type_are_javas(kind: dict[str, str]) -> None:
    settings = security(
        security__protocol="SSL", ssl__truststore__location="/trust.jks", ssl__truststore__password="pw",
        ssl__keystore__location="/keys.jks", ssl__keystore__password="pw2", ssl__key__password="pw3", **kind,
    )  # fmt: skip

    assert (settings["ssl_truststore"], settings["ssl_truststore_password"]) == ("/trust.jks", "pw")
    assert (settings["ssl_keystore"], settings["ssl_keystore_password"]) == ("/keys.jks", "pw2")
    assert settings["ssl_password"] == "pw3"


def test_a_store_of_another_kind_is_refused() -> None:
    (line,) = refusal(security__protocol="SSL", ssl__truststore__location="/t", ssl__truststore__type="BCFKS")

    assert "must be PEM, PKCS12 or JKS" in line


def test_security_names_that_would_have_no_effect_are_refused() -> None:
    assert refusal(sasl__username="me", ssl__ca__location="/ca.pem") == [
        "kafka.ssl.ca.location would have no effect: kafka.security.protocol is PLAINTEXT; set it to SSL or SASL_SSL",
        "kafka.sasl.username would have no effect: kafka.security.protocol is PLAINTEXT; "
        "set it to SASL_SSL or SASL_PLAINTEXT",
    ]


def test_sasl_without_a_mechanism_or_without_a_user_is_refused() -> None:
    assert refusal(security__protocol="SASL_SSL")[0].startswith(
        "kafka.sasl.mechanism is missing; it must be one of PLAIN,"
    )
    assert "PLAIN needs a user" in refusal(security__protocol="SASL_SSL", sasl__mechanism="PLAIN")[0]


def test_two_spellings_of_one_thing_are_refused() -> None:
    user = refusal(security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__jaas__config="x", sasl__username="me")
    authority = refusal(
        security__protocol="SSL",
        ssl__ca__location="/a",
        ssl__truststore__location="/b",
        ssl__truststore__type="PEM",
    )

    assert "are both given" in user[0]
    assert "are both given" in authority[0]


def test_a_pkcs12_store_is_taken_with_its_password() -> None:
    settings = security(
        security__protocol="SSL",
        ssl__truststore__type="PKCS12",
        ssl__truststore__location="/trust.p12",
        ssl__truststore__password="pw",
        ssl__keystore__type="pkcs12",
        ssl__keystore__location="/keys.p12",
        ssl__keystore__password="pw2",
        ssl__key__password="pw2",
    )

    assert (settings["ssl_truststore"], settings["ssl_truststore_password"]) == ("/trust.p12", "pw")
    assert (settings["ssl_keystore"], settings["ssl_keystore_password"]) == ("/keys.p12", "pw2")
    assert "ssl_password" not in settings


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"ssl__truststore__type": "PKCS12"}, "without kafka.ssl.truststore.location"),
        ({"ssl__truststore__password": "hunter2"}, "a PEM truststore has no password"),
        ({"ssl__keystore__password": "hunter2"}, "kafka.ssl.key.password opens its key"),
        (
            {
                "ssl__keystore__type": "PKCS12",
                "ssl__keystore__location": "/k",
                "ssl__keystore__password": "hunter2",
                "ssl__key__password": "hunter2 too",
            },
            "has one password",
        ),
        ({"ssl__keystore__key": "hunter2"}, "without a certificate"),
        ({"ssl__keystore__certificate__chain": "c"}, "without a key"),
        ({"ssl__key__location": "/k"}, "name both files"),
        ({"ssl__key__password": "hunter2"}, "without a key"),
        ({"ssl__ca__pem": "c", "ssl__ca__location": "/ca"}, "are both given"),
        ({"ssl__key__pem": "hunter2", "ssl__keystore__key": "hunter2"}, "are both given"),
        ({"ssl__protocol": "TLSv1.2", "ssl__enabled__protocols": "TLSv1.3"}, "leaves no version"),
        ({"ssl__cipher__suites": "TLS_NO_SUCH"}, "'TLS_NO_SUCH' is not known"),
        (
            {"ssl__cipher__suites": "TLS_AES_128_GCM_SHA256", "ssl__protocol": "TLSv1.2"},
            "lists none of TLSv1.2",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(names: dict[str, str], said: str) -> None:
    lines = refusal(security__protocol="SSL", **names)

    assert said in lines[0]
    assert "hunter2" not in " ".join(lines)


def test_texts_in_place_of_files_are_taken_under_both_names_and_the_key_is_a_secret() -> None:
    java = {
        "ssl__truststore__type": "PEM", "ssl__truststore__certificates": "ca", "ssl__keystore__type": "PEM",
        "ssl__keystore__certificate__chain": "chain", "ssl__keystore__key": "hunter2", "ssl__key__password": "pw",
    }  # fmt: skip
    librdkafka = {
        "ssl__ca__pem": "ca", "ssl__certificate__pem": "chain", "ssl__key__pem": "hunter2", "ssl__key__password": "pw",
    }  # fmt: skip
    settings = security(security__protocol="SSL", **java)

    assert settings == security(security__protocol="SSL", **librdkafka)
    assert (settings["ssl_cadata"], settings["ssl_certdata"]) == ("ca", "chain")
    assert settings["ssl_keydata"] == "hunter2"
    given = {f"kafka.{name.replace('__', '.')}": value for name, value in java.items()}
    assert "hunter2" not in repr(SinkOptions.parse({**LEAST, "kafka.security.protocol": "SSL", **given}))


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        ({}, None),
        ({"ssl__protocol": "TLSv1.3"}, None),
        ({"ssl__protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl__enabled__protocols": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl__enabled__protocols": "TLSv1.2,TLSv1.3", "ssl__protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl__cipher__suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, "TLSv1.2"),
        ({"ssl__cipher__suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1.3"),
        ({"ssl__cipher__suites": "TLS_AES_256_GCM_SHA384,ECDHE-RSA-AES256-GCM-SHA384"}, None),
    ],
)
def test_versions_are_limited_by_protocols_and_suites(names: dict[str, str], versions: str | None) -> None:
    assert security(security__protocol="SSL", **names).get("ssl_versions") == versions


def test_every_suite_is_one_that_openssl_knows() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    known = {each["name"] for each in context.get_ciphers()}

    assert set(_SUITES.values()) - known == set()
    assert len(_SUITES) == len(set(_SUITES.values())) > 20


def test_suites_have_javas_or_openssls_names() -> None:
    java = "TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,TLS_RSA_WITH_AES_128_GCM_SHA256"
    openssl = "TLS_AES_128_GCM_SHA256:ECDHE-ECDSA-AES128-SHA256:AES128-GCM-SHA256"

    for text in (java, openssl):
        assert security(security__protocol="SSL", ssl__cipher__suites=text)["ssl_ciphers"] == openssl


def test_old_tls_versions_are_refused() -> None:
    assert security(security__protocol="SSL", ssl__enabled__protocols="TLSv1.2, TLSv1.3")
    assert "TLSv1.2" in refusal(security__protocol="SSL", ssl__enabled__protocols="TLSv1.1,TLSv1.2")[0]


def test_an_unknown_host_name_check_is_refused() -> None:
    (line,) = refusal(security__protocol="SSL", ssl__endpoint__identification__algorithm="ldaps")

    assert "must be https, or empty" in line


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("TRUE", True), ("false", None)])
def test_a_delegation_token_is_read_from_javas_line(value: str, expected: bool | None) -> None:
    jaas = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="{value}";'

    found = security(security__protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-256", sasl__jaas__config=jaas)

    assert found.get("sasl_tokenauth") is expected
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("id", "hmac")


def test_a_delegation_token_does_not_log_in_by_plain() -> None:
    jaas = f'{PLAIN_MODULE} required username="id" password="hunter2" tokenauth="true";'

    (line,) = refusal(security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__jaas__config=jaas)

    assert "logs in by SCRAM-SHA-256 or SCRAM-SHA-512" in line and "hunter2" not in line
