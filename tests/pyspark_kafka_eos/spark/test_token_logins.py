"""Tokens in Spark's JVM, put there as Spark's own provider puts them."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

import pyspark_kafka_eos
from kafka_core.errors import OptionsError
from pyspark_kafka_eos import ExactlyOnceWriter, delegation_token_options
from pyspark_kafka_eos.spark.token_logins import with_token
from tests.support.spark_tokens import token_in_spark

pytestmark = [pytest.mark.spark]

HMAC = "cGxhbnRlZC1obWFj"
GIVEN = {"kafka.bootstrap.servers": "broker:9093", "pipeline": "p", "topic": "t"}
Put = Callable[..., None]


@pytest.fixture
def put(spark: SparkSession) -> Iterator[Put]:
    """Gives Spark a token of a cluster, and the settings of that cluster."""
    with ExitStack() as held:

        def put_one(cluster: str, token: str | None, **settings: str) -> None:
            given = {"auth__bootstrap__servers": "kdc:1", **settings}
            prefix = f"spark.kafka.clusters.{cluster}."
            conf = {prefix + name.replace("__", "."): value for name, value in given.items()}
            held.enter_context(token_in_spark(spark, cluster, token, HMAC, conf))

        yield put_one


def security(writer: ExactlyOnceWriter) -> dict[str, object]:
    return dict(writer.options.client.security)


def test_the_writer_logs_in_by_the_token_of_its_brokers(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1", target__bootstrap__servers__regex="broker:.*")

    found = security(ExactlyOnceWriter(GIVEN))

    assert found["sasl_plain_username"] == "token-1" and found["sasl_tokenauth"] is True
    assert found["security_protocol"] == "SASL_SSL" and found["sasl_mechanism"] == "SCRAM-SHA-512"


def test_a_renewed_token_is_taken_and_the_driver_begins_anew(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1")
    writer = ExactlyOnceWriter(GIVEN)
    writer._driver = kept = object()  # type: ignore[assignment]
    writer._take_renewed_token()
    assert writer._driver is kept

    put("prod", "token-2")
    writer._take_renewed_token()

    assert security(writer)["sasl_plain_username"] == "token-2" and writer._driver is None


def test_a_pickled_writer_still_asks_for_the_newest(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1")
    writer = pickle.loads(pickle.dumps(ExactlyOnceWriter(GIVEN)))

    put("prod", "token-2")
    writer._take_renewed_token()

    assert security(writer)["sasl_plain_username"] == "token-2"


def test_a_login_of_the_options_wins(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1")
    own = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "p",
    }

    assert security(ExactlyOnceWriter(GIVEN | own))["sasl_plain_username"] == "u"


def test_another_clusters_token_is_not_taken(spark: SparkSession, put: Put, caplog: pytest.LogCaptureFixture) -> None:
    put("prod", "token-1", target__bootstrap__servers__regex="elsewhere:.*")

    with caplog.at_level(logging.WARNING):
        assert with_token(GIVEN) == GIVEN
    assert caplog.records == []


def test_a_cluster_without_a_token_is_told(spark: SparkSession, put: Put, caplog: pytest.LogCaptureFixture) -> None:
    put("prod", None)

    with caplog.at_level(logging.WARNING):
        assert with_token(GIVEN) == GIVEN
    assert "spark.kafka.clusters.prod" in caplog.text and "no token" in caplog.text


def test_two_tokens_for_the_same_brokers_are_refused(spark: SparkSession, put: Put) -> None:
    put("one", "token-1")
    put("two", "token-2")

    with pytest.raises(OptionsError, match="more than one delegation token") as caught:
        ExactlyOnceWriter(GIVEN)
    assert HMAC not in str(caught.value)


def test_a_pattern_that_java_cannot_read_is_the_users(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1", target__bootstrap__servers__regex="broker(:")

    with pytest.raises(OptionsError, match=r"broker\(: is no java\.util\.regex pattern"):
        ExactlyOnceWriter(GIVEN)


def test_the_function_returns_what_the_format_takes(spark: SparkSession, put: Put) -> None:
    put("prod", "token-1", security__protocol="SASL_PLAINTEXT", sasl__token__mechanism="SCRAM-SHA-256")

    found = delegation_token_options(spark, "broker:9093")

    assert found["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert found["kafka.sasl.mechanism"] == "SCRAM-SHA-256"
    assert 'username="token-1"' in found["kafka.sasl.jaas.config"]


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (None, "no setting spark.kafka.clusters"),
        (("prod", None), "prod has no token in this application"),
        (("prod", "token-1"), "prod does not match"),
    ],
)
def test_the_function_says_why_there_is_none(
    spark: SparkSession, put: Put, cluster: tuple[str, str | None] | None, told: str
) -> None:
    if cluster is not None:
        put(*cluster, target__bootstrap__servers__regex="elsewhere")

    with pytest.raises(OptionsError, match=told):
        delegation_token_options(spark, "broker:9093")


def test_the_function_is_public() -> None:
    assert "delegation_token_options" in pyspark_kafka_eos.__all__
