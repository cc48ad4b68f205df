"""Versions, cipher suites, texts in place of files, stores, and where files are looked for: what the handshake makes of
each.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark import SparkFiles

import pyspark_kafka_eos.spark.workers
from kafka_core.errors import BrokerNotTrusted, OptionsError
from pyspark_kafka_eos.client.net.credentials.files import Given, find
from pyspark_kafka_eos.spark.workers import sparks_files
from tests.pyspark_kafka_eos.client.certificates import Authority, encrypted, openssl
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_login import connects, refused, serving, settings

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
ECDSA_256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
Opened = Callable[..., Listener]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture(scope="module")
def server(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("client")


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


def only(certificate: tuple[Path, Path], version: ssl.TLSVersion) -> ssl.SSLContext:
    """A listener of one version of TLS."""
    context = serving(certificate, newest=version)
    context.minimum_version = version
    return context


# ---- versions and suites


@pytest.mark.parametrize(
    ("names", "at_12", "at_13"),
    [
        ({}, True, True),
        ({"ssl__protocol": "TLSv1.3"}, True, True),
        ({"ssl__protocol": "TLSv1.2"}, True, False),
        ({"ssl__enabled__protocols": "TLSv1.3"}, False, True),
        ({"ssl__enabled__protocols": "TLSv1.2"}, True, False),
        ({"ssl__cipher__suites": ECDSA_256}, True, False),
        ({"ssl__cipher__suites": "TLS_AES_256_GCM_SHA384"}, False, True),
    ],
)
def test_a_version_that_is_not_allowed_is_not_used(
    opened: Opened,
    authority: Authority,
    server: tuple[Path, Path],
    names: dict[str, str],
    at_12: bool,
    at_13: bool,
) -> None:
    for version, allowed in ((V12, at_12), (V13, at_13)):
        listener = opened(tls=only(server, version))
        wanted = settings(listener.address, security__protocol="SSL", ssl__ca__location=authority.file, **names)
        if allowed:
            connects(wanted)
            continue
        error = refused(wanted)
        assert isinstance(error, OptionsError)
        assert "no version of TLS in common" in error.message


def test_a_suite_that_is_not_listed_is_not_used(
    opened: Opened, authority: Authority, server: tuple[Path, Path]
) -> None:
    old = serving(server, newest=V12)
    old.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    at_12, at_13 = opened(tls=old), opened(tls=only(server, V13))
    ca = {"security__protocol": "SSL", "ssl__ca__location": authority.file}
    # OpenSSL's listener takes this one of TLS 1.3 whenever it is offered.
    chosen, other = "TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"

    connects(settings(at_12.address, **ca, ssl__cipher__suites="ECDHE-ECDSA-AES128-GCM-SHA256"))
    connects(settings(at_13.address, **ca, ssl__cipher__suites=chosen))
    older = refused(settings(at_12.address, **ca, ssl__cipher__suites=ECDSA_256))
    newer = refused(settings(at_13.address, **ca, ssl__cipher__suites=other))

    assert isinstance(older, OptionsError) and "no cipher suite in common" in older.message
    assert isinstance(newer, OptionsError)
    assert f"chose the cipher suite {chosen}, which kafka.ssl.cipher.suites does not list" in newer.message


# ---- texts


def one_line(path: Path) -> str:
    """PEM as it stands in a properties file, or in a secret of one line."""
    return path.read_text().strip().replace("\n", "\\n")


@pytest.mark.parametrize("shape", [Path.read_text, one_line, lambda path: " ".join(path.read_text().split("\n"))])
@pytest.mark.parametrize("locked", [False, True])
def test_texts_do_what_their_files_do(
    opened: Opened, authority: Authority, server: tuple[Path, Path], client: tuple[Path, Path],
    shape: Callable[[Path], str], locked: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    listener = opened(tls=serving(server, clients=authority.file))
    key = encrypted(client[1], "opens it") if locked else client[1]
    # Of this process alone: others make files in /tmp at any time.
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    connects(
        settings(
            listener.address, security__protocol="SSL", ssl__truststore__type="PEM", ssl__keystore__type="PEM",
            ssl__truststore__certificates=shape(authority.file), ssl__keystore__certificate__chain=shape(client[0]),
            ssl__keystore__key=shape(key), **({"ssl__key__password": "opens it"} if locked else {}),
        )
    )  # fmt: skip

    assert list(temporary.iterdir()) == []


def test_a_text_that_is_no_pem_is_refused_and_not_repeated(
    opened: Opened, authority: Authority, server: tuple[Path, Path], client: tuple[Path, Path]
) -> None:
    listener = opened(tls=serving(server))
    chain = {"security__protocol": "SSL", "ssl__keystore__certificate__chain": client[0].read_text()}

    error = refused(settings(listener.address, **chain, ssl__keystore__key="hunter2"))
    broken = refused(
        settings(
            listener.address,
            **chain,
            ssl__keystore__key="-----BEGIN PRIVATE KEY-----hunter2-----END PRIVATE KEY-----",
        )
    )

    assert isinstance(error, OptionsError) and isinstance(broken, OptionsError)
    assert "kafka.ssl.keystore.key" in error.message and "no private key in PEM" in error.message
    assert "cannot be used" in broken.message
    assert "hunter2" not in repr(error) + repr(broken)
    assert listener.connections == 0


def test_a_text_is_a_file_only_while_it_is_read() -> None:
    with Given("option", b"text").as_file() as path:
        assert Path(path).read_bytes() == b"text"
        real = os.path.realpath(path)
    assert not os.path.exists(real)


# ---- stores


def test_a_pkcs12_store_without_the_package_says_what_to_install(
    opened: Opened, client: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, store = opened(), tmp_path / "keys.p12"
    openssl("pkcs12", "-export", "-in", client[0], "-inkey", client[1], "-out", store, "-passout", "pass:pw")
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)

    error = refused(
        settings(
            listener.address, security__protocol="SSL", ssl__truststore__type="PKCS12",
            ssl__truststore__location=store, ssl__truststore__password="pw",
        )
    )  # fmt: skip

    assert isinstance(error, OptionsError)
    assert "pip install 'pyspark-kafka-eos[pkcs12]'" in error.message and str(store) in error.message


def test_a_store_that_is_neither_pkcs12_nor_jks_is_refused(opened: Opened, tmp_path: Path) -> None:
    listener, strange = opened(), tmp_path / "trust.store"
    strange.write_bytes(b"\xce\xce\xce\xce" + bytes(60))

    error = refused(
        settings(
            listener.address,
            security__protocol="SSL",
            ssl__truststore__type="PKCS12",
            ssl__truststore__location=strange,
        )
    )

    assert isinstance(error, OptionsError) and "is neither a PKCS12 nor a JKS store" in error.message


def test_a_pkcs12_store_does_what_its_pem_does(
    opened: Opened, authority: Authority, server: tuple[Path, Path], client: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("cryptography", reason="the extra pkcs12 is not installed")
    listener = opened(tls=serving(server, clients=authority.file))
    keys, trust = tmp_path / "keys.p12", tmp_path / "trust.p12"
    openssl("pkcs12", "-export", "-in", client[0], "-inkey", client[1], "-out", keys, "-passout", "pass:pw")
    openssl("pkcs12", "-export", "-nokeys", "-in", authority.file, "-out", trust, "-passout", "pass:pw")
    names = {
        "security__protocol": "SSL", "ssl__truststore__type": "PKCS12", "ssl__keystore__type": "PKCS12",
        "ssl__truststore__location": trust, "ssl__keystore__location": keys, "ssl__truststore__password": "pw",
    }  # fmt: skip

    connects(settings(listener.address, **names, ssl__keystore__password="pw"))
    wrong = refused(settings(listener.address, **names, ssl__keystore__password="hunter2"))
    empty = refused(
        settings(listener.address, **{**names, "ssl__keystore__location": trust}, ssl__keystore__password="pw")
    )

    assert isinstance(wrong, OptionsError) and isinstance(empty, OptionsError)
    assert "kafka.ssl.keystore.password" in wrong.message and "hunter2" not in repr(wrong)
    assert "no private key with its certificate" in empty.message


# ---- where files are


def test_a_relative_name_is_looked_for_where_spark_puts_its_files_too(
    opened: Opened,
    authority: Authority,
    server: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = opened(tls=serving(server))
    own, sparks = tmp_path / "own", tmp_path / "sparks"
    own.mkdir()
    sparks.mkdir()
    monkeypatch.chdir(own)
    wanted = settings(listener.address, security__protocol="SSL", ssl__ca__location="ca.pem")
    # What Spark sets in a Python worker before its task.
    monkeypatch.setattr(SparkFiles, "_root_directory", str(sparks))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    assert sparks_files() == str(sparks) and pyspark_kafka_eos.spark.workers.__name__

    nowhere = refused(wanted)
    (sparks / "ca.pem").write_bytes(authority.file.read_bytes())
    connects(wanted)

    assert isinstance(nowhere, OptionsError)
    assert f"looked for in {own}" in nowhere.message and str(sparks) in nowhere.message
    assert find("ca.pem") == str(sparks / "ca.pem")
    (own / "ca.pem").write_text("")
    assert find("ca.pem") == str(own / "ca.pem")


def test_without_spark_there_is_no_second_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", False)
    # An earlier test of this process may have left a session.
    monkeypatch.setattr(SparkFiles, "_sc", None)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)

    assert sparks_files() is None


def test_a_folder_of_authorities_is_searched_by_their_hashes(
    opened: Opened, authority: Authority, server: tuple[Path, Path], tmp_path: Path
) -> None:
    listener = opened(tls=serving(server))
    hashed = openssl("x509", "-hash", "-noout", "-in", authority.file).strip()
    (tmp_path / f"{hashed}.0").write_bytes(authority.file.read_bytes())

    connects(settings(listener.address, security__protocol="SSL", ssl__ca__location=tmp_path))


def test_a_list_of_revoked_certificates_is_read_anew_by_the_next_connection(opened: Opened, tmp_path: Path) -> None:
    own = Authority(tmp_path / "revoking")
    certificate = own.issue("server")
    listener, listed = opened(tls=serving(certificate)), tmp_path / "crl.pem"
    listed.write_bytes(own.revoked().read_bytes())
    wanted = settings(listener.address, security__protocol="SSL", ssl__ca__location=own.file, ssl__crl__location=listed)

    connects(wanted)
    own.revoke(certificate[0])
    listed.write_bytes(own.revoked().read_bytes())

    assert type(refused(wanted)) is BrokerNotTrusted
