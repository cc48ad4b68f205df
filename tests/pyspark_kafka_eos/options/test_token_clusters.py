"""Spark's `spark.kafka.clusters.*` and the tokens that they are for. Source: Spark's guide of its Kafka source, chapter
Security.
"""

from __future__ import annotations

import re

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.login.token_clusters import (
    DelegationToken,
    TokenCluster,
    cluster_for,
    clusters_of,
    has_a_login,
    options_of,
)

HMAC = "c2VjcmV0LWhtYWM="
TOKEN = DelegationToken("token-1", HMAC)
CLUSTER = TokenCluster("prod", ".*", "SASL_SSL", "SCRAM-SHA-512")


def matches(pattern: str, server: str) -> bool:
    return re.fullmatch(pattern, server) is not None


def test_what_a_cluster_leaves_out_is_sparks_default() -> None:
    conf = {"spark.kafka.clusters.prod.auth.bootstrap.servers": "b:9093", "spark.app.name": "n"}

    assert clusters_of(conf) == (CLUSTER,)


def test_what_a_cluster_says_is_taken() -> None:
    conf = {
        "spark.kafka.clusters.b.target.bootstrap.servers.regex": "east-.*",
        "spark.kafka.clusters.b.security.protocol": "SASL_PLAINTEXT",
        "spark.kafka.clusters.b.sasl.token.mechanism": "SCRAM-SHA-256",
        "spark.kafka.clusters.a.auth.bootstrap.servers": "x:1",
    }

    first, second = clusters_of(conf)

    assert first.name == "a"
    assert second == TokenCluster("b", "east-.*", "SASL_PLAINTEXT", "SCRAM-SHA-256")


def test_no_setting_is_no_cluster() -> None:
    assert clusters_of({"spark.kafka.clusters.": "", "spark.kafka.producer.cache.timeout": "1m"}) == ()


@pytest.mark.parametrize(
    ("servers", "found"),
    [("east-1:1", "east"), ("west-1:1, east-2:1", "east"), ("west-1:1", None), ("", None)],
)
def test_one_broker_that_matches_as_a_whole_is_enough(servers: str, found: str | None) -> None:
    east = TokenCluster("east", "east-.:1", "SASL_SSL", "SCRAM-SHA-512")

    chosen = cluster_for([east], servers, matches)

    assert (None if chosen is None else chosen.name) == found


def test_two_clusters_for_the_same_brokers_are_refused_with_both_settings() -> None:
    other = TokenCluster("copy", "b:.*", "SASL_SSL", "SCRAM-SHA-512")

    with pytest.raises(OptionsError, match=r"clusters\.prod\.target.*clusters\.copy\.target"):
        cluster_for([CLUSTER, other], "b:9093", matches)


def test_the_options_of_a_token_are_a_login() -> None:
    options = options_of(CLUSTER, TOKEN, {})

    client = SinkOptions.parse({"kafka.bootstrap.servers": "b:9093", "pipeline": "p", **options}).client
    security = dict(client.security)
    assert security["security_protocol"] == "SASL_SSL"
    assert security["sasl_mechanism"] == "SCRAM-SHA-512"
    assert security["sasl_plain_username"] == "token-1"
    assert security["sasl_tokenauth"] is True
    assert HMAC not in repr(client)


def test_a_protocol_of_the_users_own_stays() -> None:
    assert "kafka.security.protocol" not in options_of(CLUSTER, TOKEN, {"Kafka.Security.Protocol": "sasl_plaintext"})


@pytest.mark.parametrize(
    ("protocol", "given", "named"),
    [
        ("SSL", {}, "spark.kafka.clusters.prod.security.protocol is SSL"),
        ("SASL_SSL", {"kafka.security.protocol": "SSL"}, "kafka.security.protocol is SSL"),
    ],
)
def test_a_protocol_without_sasl_is_refused(protocol: str, given: dict[str, str], named: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(TokenCluster("prod", ".*", protocol, "SCRAM-SHA-512"), TOKEN, given)

    assert named in caught.value.message and HMAC not in caught.value.message


def test_a_mechanism_that_takes_no_token_is_refused() -> None:
    with pytest.raises(OptionsError, match=r"sasl\.token\.mechanism is PLAIN"):
        options_of(TokenCluster("prod", ".*", "SASL_SSL", "PLAIN"), TOKEN, {})


def test_quotes_of_a_token_are_kept() -> None:
    options = options_of(CLUSTER, DelegationToken('a"b\\c', 'd"e'), {})

    client = SinkOptions.parse({"kafka.bootstrap.servers": "b:9093", "pipeline": "p", **options}).client
    assert dict(client.security)["sasl_plain_username"] == 'a"b\\c'


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ({"kafka.sasl.jaas.config": "x"}, True),
        ({"Kafka.Sasl.Mechanism": "PLAIN"}, True),
        ({"kafka.ssl.truststore.location": "t"}, False),
        ({}, False),
    ],
)
def test_a_login_is_any_option_of_sasl(options: dict[str, str], login: bool) -> None:
    assert has_a_login(options) is login


def test_a_token_shows_its_name_only() -> None:
    assert repr(TOKEN) == "Token('token-1')"
