"""Delegation tokens in Spark's JVM, put where Spark's own provider puts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def token_in_spark(
    spark: SparkSession, cluster: str, token: str | None, hmac: str, conf: Mapping[str, str]
) -> Iterator[None]:
    """Spark has these settings and the token of the cluster; None: the settings only. A token with the name of an
    earlier one replaces it.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    settings = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    text = jvm.org.apache.hadoop.io.Text
    made = jvm.org.apache.hadoop.security.token.Token
    service = text(f"kafka.server.delegation.token.{cluster}")
    for name, value in conf.items():
        settings.set(name, value)
    try:
        if token is not None:
            kind = text("KAFKA_DELEGATION_TOKEN")
            user.addToken(made(bytearray(token.encode()), bytearray(hmac.encode()), kind, service))
        yield
    finally:
        for name in conf:
            settings.remove(name)
        if token is not None:
            # A user's credentials are only added to, so one without a service of Kafka takes its place.
            user.addToken(service, made(bytearray(), bytearray(), text("none"), text("none")))
