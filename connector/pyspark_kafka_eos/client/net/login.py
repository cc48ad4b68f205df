"""The security settings of one cluster, as connections and messages need them.

Owns: what of the pairs in `ClientSettings.security` is for TLS and which mechanism, and what can be checked before a
socket is opened.
Does not know: sockets, the reading of options.
Invariants: a secret is revealed for one login alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark_kafka_eos.client.net.credentials import kerberos
from pyspark_kafka_eos.client.net.credentials.kerberos import Kerberos
from pyspark_kafka_eos.client.net.credentials.secrets import framed_outside, texts_of
from pyspark_kafka_eos.client.net.credentials.tls import Tls, open_context
from pyspark_kafka_eos.client.net.oauth import tokens
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.client.net.refusals import Asked

_SCRAM = "SCRAM-"


def credentials(security: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """User and password of one login, read now; empty for a login without them. OptionsError where they cannot be
    read.
    """
    found = {name: texts_of(value) for name, value in security if name.startswith(("sasl_mechanism", "sasl_plain_"))}
    name = found.get("sasl_plain_username")
    if name is not None and str(found.get("sasl_mechanism")).startswith(_SCRAM):
        # RFC 5802, 5.1: these two separate the fields of a message.
        found["sasl_plain_username"] = str(name).replace("=", "=3D").replace(",", "=2C")
    return found


def asked(security: Iterable[tuple[str, Any]]) -> Asked:
    """What the settings ask of a listener."""
    found = dict(security)
    return Asked(
        found.get("security_protocol", "PLAINTEXT"),
        found.get("sasl_mechanism"),
        Tls.from_settings(found),
        OAuth.from_settings(found),
        Kerberos.from_settings(found),
        by_token=bool(found.get("sasl_tokenauth")),
    )


@framed_outside
def check(wanted: Asked, security: Iterable[tuple[str, Any]]) -> None:
    """OptionsError where this machine lacks what the settings need: a readable file, a variable, a package."""
    if wanted.tls is not None:
        open_context(wanted.tls)
    if wanted.oauth is not None:
        tokens.check(wanted.oauth)
    credentials(security)
    if wanted.kerberos is not None:
        kerberos.check(wanted.kerberos)
