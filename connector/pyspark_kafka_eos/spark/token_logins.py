"""Logins by the delegation tokens that Spark has obtained for its application (`spark.kafka.clusters.*`).

Owns: reading Spark's settings and the tokens in its JVM.
Does not know: how a token becomes options (`options.token_clusters`), when Spark obtains a new one.
Invariants:
- A login that the options themselves name wins. Spark's own Kafka source would take the token.
- Without a setting `spark.kafka.clusters.*` the JVM is not asked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options.given import named
from pyspark_kafka_eos.options.login.token_clusters import (
    SERVICE,
    DelegationToken,
    TokenCluster,
    cluster_for,
    clusters_of,
    has_a_login,
    options_of,
)
from pyspark_kafka_eos.spark.java import java_class

log = logging.getLogger(__name__)

Options = Mapping[str, str | int | bool | float]

_SERVERS = "kafka.bootstrap.servers"


def delegation_token_options(spark: SparkSession, bootstrap_servers: str) -> dict[str, str]:
    """The `kafka.*` options by which the application's delegation token logs in to these brokers, for
    `.options(**...)`.

    `bootstrap_servers`: `host:port`, with commas between them. OptionsError where Spark's settings name no
    cluster for them, several, or one whose token Spark does not have. A token ends, by Kafka's default after
    24 hours; a query by format keeps the one it was started with. Source: KIP-48, Spark's guide of the Kafka source.
    """
    context = _context(spark)
    if context is None:
        raise OptionsError(
            "delegation tokens are in the driver's JVM, which Spark Connect does not show; nothing was read; give the login as "
            "kafka.sasl.* options"
        )
    clusters = clusters_of(_conf(context))
    tokens = _tokens(context)
    found = cluster_for((one for one in clusters if one.name in tokens), bootstrap_servers, _matching(context))
    if found is None:
        raise OptionsError(
            f"no delegation token for {bootstrap_servers}: {_what_there_is(clusters, tokens)}; nothing was read; set "
            "spark.kafka.clusters.<id>.auth.bootstrap.servers and .target.bootstrap.servers.regex, and give Spark the package "
            "spark-token-provider-kafka-0-10 and a Kerberos login (--principal, --keytab)"
        )
    return options_of(found, tokens[found.name], {})


def with_token(options: Options) -> dict[str, str | int | bool | float]:
    """The options, with the login of the application's token where they name none and a token is for their brokers.
    OptionsError where they are no mapping of texts."""
    given = named(options)
    servers = next((str(value) for name, value in given.items() if name.lower() == _SERVERS), None)
    context = None if servers is None or has_a_login(given) else _context(SparkSession.getActiveSession())
    clusters = () if context is None else clusters_of(_conf(context))
    if servers is None or not clusters:
        return given
    tokens = _tokens(context)
    found = cluster_for((one for one in clusters if one.name in tokens), servers, _matching(context))
    if found is not None:
        return given | options_of(found, tokens[found.name], given)
    if (lacking := cluster_for(clusters, servers, _matching(context))) is not None:
        log.warning(
            "spark.kafka.clusters.%s is for %s, but Spark has no token of it; logging in as the options say", lacking.name, servers
        )  # fmt: skip
    return given


def _context(spark: SparkSession | None) -> Any:
    """None on Spark Connect and without a session."""
    return None if spark is None else getattr(spark, "_sc", None)


def _conf(context: Any) -> dict[str, str]:
    return {name: value for name, value in context.getConf().getAll() if name.startswith("spark.kafka.clusters.")}


def _tokens(context: Any) -> dict[str, DelegationToken]:
    """The current user's Kafka tokens, by their cluster's identifier."""
    user = java_class(context, "org.apache.hadoop.security.UserGroupInformation").getCurrentUser()
    found = {}
    for token in user.getCredentials().getAllTokens().toArray():
        service = token.getService().toString()
        if service.startswith(SERVICE):
            name, hmac = bytes(token.getIdentifier()).decode(), bytes(token.getPassword()).decode()
            found[service[len(SERVICE) :]] = DelegationToken(name, hmac)
    return found


def _matching(context: Any) -> Any:
    def matches(pattern: str, server: str) -> bool:
        try:
            return bool(java_class(context, "java.util.regex.Pattern").matches(pattern, server))
        except IllegalArgumentException:
            # PySpark's class for java.util.regex.PatternSyntaxException too.
            raise OptionsError(
                f"{pattern} is no java.util.regex pattern; nothing was written; it is the target.bootstrap.servers.regex of a "
                "spark.kafka.clusters.*"
            ) from None

    return matches


def _what_there_is(clusters: tuple[TokenCluster, ...], tokens: Mapping[str, DelegationToken]) -> str:
    if not clusters:
        return "no setting spark.kafka.clusters.* is there"
    return ", ".join(
        f"spark.kafka.clusters.{one.name} {'does not match' if one.name in tokens else 'has no token in this application'}"
        for one in clusters
    )


__all__ = ["delegation_token_options", "with_token"]
