"""Stores in Java's own format, made by Java's own keytool: what is in them is used, and a damaged one is refused."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from embedded_kafka.real.java import require_java
from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials import jks
from tests.pyspark_kafka_eos.client.certificates import Authority, openssl
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_login import connects, refused, serving, settings

pytestmark = pytest.mark.processes

PASSWORD, KEY_PASSWORD = "store-pass", "key-pass-2"


@dataclass(frozen=True)
class Stores:
    """`keys`: one password; `locked`: another one for the key; `trust`: two authorities; `pkcs12`: what keytool makes
    today.
    """

    authority: Authority
    server: tuple[Path, Path]
    client: tuple[Path, Path]
    keys: Path
    locked: Path
    trust: Path
    pkcs12: Path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    java = require_java().executable
    found = shutil.which("keytool", path=str(java.parent)) or shutil.which("keytool")
    if found is None:
        pytest.skip("this machine's Java has no keytool")
    keytool = found
    folder = tmp_path_factory.mktemp("stores")
    authority, other = Authority(folder / "own"), Authority(folder / "other")
    client, middle = authority.issue("client"), folder / "client.p12"
    openssl(
        *(
            "pkcs12",
            "-export",
            "-in",
            client[0],
            "-inkey",
            client[1],
            "-certfile",
            authority.file,
            "-name",
            "me",
        ),
        *("-out", middle, "-passout", "pass:middle"),
    )

    def run(*words: str | Path) -> None:
        done = subprocess.run([keytool, "-noprompt", *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    for name, opens in (("keys", PASSWORD), ("locked", KEY_PASSWORD)):
        run(
            *(
                "-importkeystore",
                "-srckeystore",
                middle,
                "-srcstoretype",
                "PKCS12",
                "-srcstorepass",
                "middle",
            ),
            *("-destkeystore", folder / f"{name}.jks", "-deststoretype", "JKS", "-deststorepass", PASSWORD),
            *("-srcalias", "me", "-destalias", "me", "-destkeypass", opens),
        )
    for name, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
        for alias, each in (("own", authority), ("other", other)):
            run(
                *("-importcert", "-file", each.file, "-alias", alias, "-keystore", folder / name),
                *("-storetype", kind, "-storepass", PASSWORD),
            )
    return Stores(
        authority, authority.issue("server"), client, folder / "keys.jks", folder / "locked.jks", folder / "trust.jks",
        folder / "trust.p12",
    )  # fmt: skip


@pytest.fixture
def opened() -> Iterator[Callable[..., Listener]]:
    """Listeners that are closed after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


@pytest.mark.parametrize("named", [{}, {"ssl__truststore__type": "JKS", "ssl__keystore__type": "JKS"}])
@pytest.mark.parametrize("which", ["keys", "locked"])
def test_jks_stores_log_in_as_their_pem_does(
    opened: Callable[..., Listener], stores: Stores, named: dict[str, str], which: str
) -> None:
    listener = opened(tls=serving(stores.server, clients=stores.authority.file))
    key = {"ssl__key__password": KEY_PASSWORD} if which == "locked" else {}

    connects(
        settings(
            listener.address, security__protocol="SSL", ssl__truststore__location=stores.trust,
            ssl__truststore__password=PASSWORD, ssl__keystore__location=getattr(stores, which),
            ssl__keystore__password=PASSWORD, **key, **named,
        )
    )  # fmt: skip

    assert listener.connections > 0


def test_the_key_and_the_chain_are_those_that_went_in(stores: Stores) -> None:
    (entry,) = jks.read(stores.keys.read_bytes(), PASSWORD)
    pem = jks.pem("PRIVATE KEY", jks.unprotected(entry.key or b"", PASSWORD))

    assert pem.split() == stores.client[1].read_bytes().split()
    assert [jks.pem("CERTIFICATE", each).split()[-3] for each in entry.chain] == [
        each.read_bytes().split()[-3] for each in (stores.client[0], stores.authority.file)
    ]
    assert entry.alias == "me" and "key" not in repr(entry)
    assert {each.alias for each in jks.read(stores.trust.read_bytes(), None)} == {"own", "other"}


def test_a_store_of_pkcs12_under_the_name_jks_is_read_as_java_reads_it(
    opened: Callable[..., Listener], stores: Stores
) -> None:
    pytest.importorskip("cryptography", reason="the extra pkcs12 is not installed")
    listener = opened(tls=serving(stores.server))

    connects(
        settings(
            listener.address,
            security__protocol="SSL",
            ssl__truststore__location=stores.pkcs12,
            ssl__truststore__password=PASSWORD,
        )
    )

    assert listener.connections > 0


def test_wrong_passwords_and_stores_without_what_is_wanted_are_named(
    opened: Callable[..., Listener], stores: Stores
) -> None:
    listener = opened(tls=serving(stores.server))
    trust = {"ssl__truststore__location": stores.trust}
    keys = {"ssl__keystore__location": stores.locked, "ssl__keystore__password": PASSWORD}
    cases = [
        ({**trust, "ssl__truststore__password": "hunter2"}, "cannot be opened with its password"),
        ({**trust, **keys}, "has a key that cannot be opened"),
        ({**trust, **keys, "ssl__key__password": "hunter2"}, "has a key that cannot be opened"),
        ({**trust, "ssl__keystore__location": stores.locked}, "has a protected key: set"),
        ({**trust, **keys, "ssl__keystore__location": stores.trust}, "contains 0 private keys"),
        ({"ssl__truststore__location": stores.keys}, "contains no certificate that it trusts"),
    ]
    for names, said in cases:
        error = refused(settings(listener.address, security__protocol="SSL", **names))

        assert isinstance(error, OptionsError) and said in error.message, (said, error)
        assert "hunter2" not in str(error) and PASSWORD not in str(error)
    assert listener.connections == 0


def test_a_damaged_store_is_refused_and_never_anything_else(stores: Stores) -> None:
    whole, chance = stores.locked.read_bytes(), random.Random(7)
    refusals = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        text = bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
        try:
            for entry in jks.read(text, None):
                if entry.key is not None:
                    jks.unprotected(entry.key, KEY_PASSWORD)
        except jks.JksError:
            refusals += 1
        with pytest.raises(jks.JksError):
            jks.read(text if text != whole else b"", PASSWORD)

    assert refusals > 1000
