"""The embedded broker with each way to log in: `EmbeddedKafka(security=...)`, one broker after another.

Owns: which `Security` is which way, and which ways the embedded broker lacks.
Does not know: what is done with a door.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from embedded_kafka import EmbeddedKafka, Security
from tests.pyspark_kafka_eos.client.certificates import openssl
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import AUDIENCE, TokenEndpoint
from tests.security import ways
from tests.security.real import bearer
from tests.security.ways import Closed, Door

LACKS = {
    ways.TOKEN: "the embedded broker makes no delegation tokens (KIP-48)",
    ways.KERBEROS: "the embedded broker has no GSSAPI",
}
"""Way -> why the embedded broker does not have it."""

_USERS = {ways.USER: ways.PASSWORD}
_LIFE_S = 600.0


def _by(*mechanisms: str) -> Security:
    return Security("SASL_SSL", mechanisms, _USERS)


_SECURITY: dict[str, Security | None] = {
    ways.PLAINTEXT: None,
    ways.TLS: Security("SSL", users=_USERS),
    ways.MUTUAL: Security("SSL", users=_USERS, client_certificates=True),
    ways.PLAIN: _by("PLAIN"),
    ways.SCRAM_256: _by("SCRAM-SHA-256"),
    ways.SCRAM_512: _by("SCRAM-SHA-512"),
    ways.BEARER: _by("OAUTHBEARER"),
}


@contextmanager
def opened(way: str, folder: Path) -> Iterator[Door | Closed]:
    """A broker that takes this way alone, or why there is none."""
    if way in LACKS:
        yield Closed(way, LACKS[way])
        return
    with ExitStack() as stack:
        config: dict[str, str] = {}
        more: dict[str, str] = {}
        token: dict[str, Callable[[str], tuple[str, float]]] = {}
        if way == ways.BEARER:
            key = folder / "issuer.key"
            openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
            issuer = stack.enter_context(TokenEndpoint(folder / "issuer", key, clients={ways.USER: ways.PASSWORD}))
            config = {
                "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": issuer.issuer,
            }
            more = bearer(issuer)
            token["oauth_cb"] = lambda _: (issuer.token(ways.USER, _LIFE_S), time.time() + _LIFE_S)
        kafka = stack.enter_context(EmbeddedKafka(security=_SECURITY[way], config=config))
        settings = kafka.client_settings()
        yield Door(way, ways.product({**settings, **more}), {**settings, **token})
