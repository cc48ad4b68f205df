"""The options of a login by Kerberos, in the spellings of Java and of librdkafka."""

from __future__ import annotations

import pytest

from tests.pyspark_kafka_eos.options.test_security_options import refusal, security

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
GSSAPI = {"security__protocol": "SASL_SSL", "sasl__mechanism": "GSSAPI"}


def found(**names: str) -> dict[str, object]:
    """The pairs of Kerberos, without their prefix."""
    pairs = security(**GSSAPI, **names)
    return {name.removeprefix("sasl_kerberos_"): value for name, value in pairs.items() if "kerberos" in name}


def test_a_keytab_has_the_same_pairs_in_both_spellings() -> None:
    java = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="/etc/alice.keytab" principal="alice@EXAMPLE.COM" '
        'serviceName="brokers";'
    )
    expected = {
        "service_name": "brokers",
        "principal": "alice@EXAMPLE.COM",
        "keytab": "/etc/alice.keytab",
    }

    assert found(sasl__jaas__config=java) == expected
    assert (
        found(
            sasl__kerberos__service__name="brokers",
            sasl__kerberos__principal="alice@EXAMPLE.COM",
            sasl__kerberos__keytab="/etc/alice.keytab",
        )
        == expected
    )


def test_the_ticket_cache_is_used_where_nothing_else_is_named() -> None:
    assert found() == {"service_name": "kafka"}
    assert found(sasl__jaas__config=f"{MODULE} required useTicketCache=true;") == {"service_name": "kafka"}
    named = found(sasl__jaas__config=f'{MODULE} required useTicketCache=true ticketCache="/tmp/cc" principal="a@B";')
    assert named == {"service_name": "kafka", "cache": "/tmp/cc", "principal": "a@B"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"sasl__kerberos__keytab": "/k"}, "a keytab needs the principal"),
        (
            {"sasl__jaas__config": f'{MODULE} required useKeyTab=true keyTab="/k";'},
            "a keytab needs the principal",
        ),
        ({"sasl__jaas__config": f'{MODULE} required useKeyTab=true principal="a@B";'}, "needs keyTab"),
        (
            {"sasl__jaas__config": f'{MODULE} required useTicketCache=true keyTab="/k" principal="a@B";'},
            "needs useKeyTab=true",
        ),
        ({"sasl__jaas__config": f'{MODULE} required principal="hunter2@B";'}, "asks for a password"),
        ({"sasl__jaas__config": f"{MODULE} required useTicketCache=true hunter2=x;"}, "has no meaning here"),
        ({"sasl__jaas__config": "PlainLoginModule required username=a password=hunter2;"}, "it must be"),
        (
            {
                "sasl__jaas__config": f"{MODULE} required useTicketCache=true;",
                "sasl__kerberos__principal": "a@B",
            },
            "keep one spelling",
        ),
        (
            {
                "sasl__jaas__config": f'{MODULE} required useTicketCache=true serviceName="one";',
                "sasl__kerberos__service__name": "two",
            },
            "differ",
        ),
        ({"sasl__password": "hunter2"}, "has no meaning for GSSAPI"),
    ],
)
def test_what_does_not_fit_together_is_refused(names: dict[str, str], said: str) -> None:
    lines = refusal(**GSSAPI, **names)

    assert len(lines) == 1 and said in lines[0]
    assert "hunter2" not in lines[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("name", ["sasl__kerberos__principal", "sasl__kerberos__keytab"])
def test_kerberos_without_gssapi_has_no_effect(mechanism: str, name: str) -> None:
    lines = refusal(security__protocol="SASL_SSL", sasl__mechanism=mechanism, **{name: "x"})

    assert any(name.replace("__", ".") in each and "has no meaning" in each for each in lines)
