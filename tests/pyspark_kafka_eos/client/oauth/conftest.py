"""Token endpoints and listeners that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pyspark_kafka_eos.client.certificates import openssl
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import Keys, TokenEndpoint


@pytest.fixture
def opened() -> Iterator[Callable[..., Listener]]:
    """Listeners."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Made once: a key of RSA takes seconds on a busy machine."""
    folder = tmp_path_factory.mktemp("keys")
    issuer, private, public = (folder / name for name in ("issuer.key", "client.key", "client.pub"))
    for each in (issuer, private):
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", each)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return Keys(issuer, private, public)


@pytest.fixture
def endpoint(tmp_path: Path, keys: Keys) -> Iterator[TokenEndpoint]:
    """An endpoint that knows alice."""
    with TokenEndpoint(tmp_path / "endpoint", keys.issuer, clients={"alice": "OIDC+SECRET/55"}) as found:
        yield found
