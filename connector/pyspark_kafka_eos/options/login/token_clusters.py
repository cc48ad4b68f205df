"""Spark's `spark.kafka.clusters.<id>.*`: which delegation token of an application logs in to which brokers.

Owns: the names, Spark's defaults, the choice between clusters, the `kafka.*` options that a token becomes.
Does not know: where Spark keeps its tokens.
Invariants:
- No message contains a token's secret.
- Brokers that more than one token is for are refused, as by Spark: neither token is the right one.
Source: Spark's "Structured Streaming + Kafka Integration Guide", chapter Security, delegation token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kafka_core.errors import OptionsError

PREFIX = "spark.kafka.clusters."
SERVICE = "kafka.server.delegation.token."
"""What a Kafka token's service begins with in Hadoop's credentials; the cluster's identifier follows."""

_LOGIN = "kafka.sasl."


@dataclass(frozen=True)
class TokenCluster:
    """One `<id>`. `targets`: a java.util.regex pattern, which matches a whole `host:port`."""

    name: str
    targets: str
    protocol: str
    mechanism: str


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token (KIP-48): its id, and its HMAC in base64, which is a secret."""

    name: str
    hmac: str

    def __repr__(self) -> str:
        return f"Token({self.name!r})"


def clusters_of(conf: Mapping[str, str]) -> tuple[TokenCluster, ...]:
    """Every cluster that Spark's settings name, by its identifier. An identifier has no dot, as in Spark."""
    names = {setting[len(PREFIX) :].split(".")[0] for setting in conf if setting.startswith(PREFIX)}
    return tuple(
        TokenCluster(
            name,
            conf.get(f"{PREFIX}{name}.target.bootstrap.servers.regex", ".*"),
            conf.get(f"{PREFIX}{name}.security.protocol", "SASL_SSL"),
            conf.get(f"{PREFIX}{name}.sasl.token.mechanism", "SCRAM-SHA-512"),
        )
        for name in sorted(names - {""})
    )


def has_a_login(options: Mapping[str, object]) -> bool:
    """Whether the options say how to log in themselves. They are followed then, and no token is looked for."""
    return any(name.lower().startswith(_LOGIN) for name in options)


def cluster_for(
    clusters: Iterable[TokenCluster], servers: str, matches: Callable[[str, str], bool]
) -> TokenCluster | None:
    """The cluster that one of the brokers belongs to; None where there is none.

    `servers`: `host:port` with commas. `matches(pattern, server)`: whether the whole server is the pattern's.
    OptionsError where several clusters have one.
    """
    each = [server.strip() for server in servers.split(",") if server.strip()]
    found = [one for one in clusters if any(matches(one.targets, server) for server in each)]
    if len(found) > 1:
        names = ", ".join(f"{PREFIX}{one.name}.target.bootstrap.servers.regex" for one in found)
        raise OptionsError(
            f"more than one delegation token is for {servers}: {names} match it; nothing was written; narrow them until one is left"
        )
    return found[0] if found else None


def options_of(cluster: TokenCluster, token: DelegationToken, given: Mapping[str, object]) -> dict[str, str]:
    """The `kafka.*` options by which the token logs in, beside the `given` ones; OptionsError where they contradict
    it.
    """
    lowered = {name.lower(): str(value) for name, value in given.items()}
    own = lowered.get("kafka.security.protocol")
    protocol = (own or cluster.protocol).upper()
    if not protocol.startswith("SASL_"):
        where = f"{PREFIX}{cluster.name}.security.protocol" if own is None else "kafka.security.protocol"
        raise OptionsError(
            f"the delegation token of {PREFIX}{cluster.name} cannot log in: it needs SASL, and {where} is {protocol}; nothing was "
            "written; set kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT"
        )
    mechanism = cluster.mechanism.upper()
    if mechanism not in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise OptionsError(
            f"{PREFIX}{cluster.name}.sasl.token.mechanism is {cluster.mechanism}; nothing was written; a delegation token logs in by "
            "SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    chosen = {} if own is not None else {"kafka.security.protocol": protocol}
    return chosen | {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required tokenauth="true" username="{_quoted(token.name)}" password="{_quoted(token.hmac)}";',
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


__all__ = ["SERVICE", "DelegationToken", "TokenCluster", "cluster_for", "clusters_of", "has_a_login", "options_of"]
