"""The ways to log in, by their names in the table.

Owns: the names, their order, and how a broker hands a way over.
Does not know: brokers, Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PLAINTEXT = "PLAINTEXT"
TLS = "TLS"
MUTUAL = "TLS, client certificate"
PLAIN = "SASL_SSL, PLAIN"
SCRAM_256 = "SASL_SSL, SCRAM-SHA-256"
SCRAM_512 = "SASL_SSL, SCRAM-SHA-512"
BEARER = "SASL_SSL, OAUTHBEARER"
TOKEN = "SASL_SSL, SCRAM-SHA-256, delegation token"
KERBEROS = "SASL_SSL, GSSAPI, keytab"

NAMES = (PLAINTEXT, TLS, MUTUAL, PLAIN, SCRAM_256, SCRAM_512, BEARER, TOKEN, KERBEROS)
"""The rows of the table."""

USER, PASSWORD = "alice", "wonderland"


@dataclass(frozen=True)
class Door:
    """One listener that takes one way to log in, and the operator's access to the same broker.

    given: the options of the product, with `kafka.` before them. operator: librdkafka's settings, by which topics are
    made and outputs are read.
    """

    way: str
    given: Mapping[str, str] = field(repr=False)
    operator: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True)
class Closed:
    """A way that a broker does not have, and why."""

    way: str
    why: str


def product(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by the clients' names as options of the product."""
    return {f"kafka.{name}": value for name, value in settings.items()}
