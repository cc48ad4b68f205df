"""Every mistake at connecting that waiting cannot mend ends at once, with its cause, its file or server, and the right
class.

The mistakes are those that were tried against Apache Kafka with TLS and SASL. The listener here refuses as Kafka does.
"""

from __future__ import annotations

import errno
import os
import pty
import socket
import ssl
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_core.errors import (
    AuthorizationFailed,
    BrokerNotTrusted,
    BrokerUnavailable,
    ExactlyOnceError,
    LoginRefused,
    OptionsError,
)
from kafka_core.protocol.messages import MetadataRequest
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net.failures import TimedOut
from pyspark_kafka_eos.client.net.first_contact import FirstContact
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.client.certificates import Authority, encrypted, openssl
from tests.pyspark_kafka_eos.client.listener import Listener

AT_ONCE_S = 3.0
PATIENT_MS = 60_000
WAIT_S = 30.0
USERS = {"alice": "wonderland"}
SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")


@dataclass(frozen=True)
class Files:
    """One authority's certificates, and another authority's."""

    authority: Authority
    other: Authority
    server: tuple[Path, Path]
    expired: tuple[Path, Path]
    elsewhere: tuple[Path, Path]
    client: tuple[Path, Path]
    late_client: tuple[Path, Path]
    strange_client: tuple[Path, Path]
    locked_key: Path
    store: Path
    folder: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = Authority(folder / "own"), Authority(folder / "other")
    client = authority.issue("client")
    store = folder / "store.p12"
    openssl("pkcs12", "-export", "-in", client[0], "-inkey", client[1], "-out", store, "-passout", "pass:x")
    return Files(
        authority, other, authority.issue("server"), authority.issue("expired", expired=True),
        authority.issue("elsewhere", host="DNS:kafka.example"), client, authority.issue("late", expired=True),
        other.issue("strange"), encrypted(client[1], "opens it"), store, folder,
    )  # fmt: skip


def serving(
    certificate: tuple[Path, Path], clients: Path | None = None, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """A listener's context; `clients`: the authority of the certificates that it asks for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if newest is not None:
        context.maximum_version = newest
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def settings(address: str, **names: str | Path) -> ClientSettings:
    """What a query's options make of `security__protocol="SSL"` and others (`__` for a dot)."""
    given = {f"kafka.{name.replace('__', '.')}": str(value) for name, value in names.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": address, "pipeline": "p", **given}).client


def login(
    protocol: str = "SASL_PLAINTEXT",
    mechanism: str = "SCRAM-SHA-512",
    name: str = "alice",
    password: str = "wonderland",
) -> dict[str, str]:
    return {
        "security__protocol": protocol, "sasl__mechanism": mechanism, "sasl__username": name, "sasl__password": password,
    }  # fmt: skip


def refused(wanted: ClientSettings) -> ExactlyOnceError:
    """The error of a connection that has a minute, and takes less than three seconds."""
    began = time.monotonic()
    with pytest.raises(ExactlyOnceError) as caught:
        Cluster(wanted, PATIENT_MS).close()
    took = time.monotonic() - began
    assert took < AT_ONCE_S, f"{took:.1f} s until: {caught.value}"
    return caught.value


def connects(wanted: ClientSettings) -> None:
    """The connection can be made."""
    network = Network(wanted)
    try:
        network.bootstrap(10_000)
    finally:
        network.close()


@pytest.fixture
def opened() -> Iterator[Callable[..., Listener]]:
    """Listeners that are closed after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


Opened = Callable[..., Listener]

# ---- the login


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_or_user_is_refused_with_the_brokers_words_after_one_try(
    opened: Opened, mechanism: str, name: str
) -> None:
    listener = opened(mechanisms=[mechanism], users=USERS)

    error = refused(settings(listener.address, **login(mechanism=mechanism, name=name, password="looking-glass")))

    assert type(error) is LoginRefused and isinstance(error, AuthorizationFailed)
    assert error.who_acts == "the author of the job"
    assert "Authentication failed: Invalid username or password" in error.message
    assert (error.facts["server"], error.facts["mechanism"]) == (listener.address, mechanism)
    assert "looking-glass" not in str(error)
    assert listener.logins == 1


def test_a_wrong_password_is_sent_to_one_of_the_servers_only(opened: Opened) -> None:
    listeners = [opened(mechanisms=["PLAIN"], users=USERS) for _ in range(3)]
    servers = ",".join(each.address for each in listeners)

    error = refused(settings(servers, **login(mechanism="PLAIN", password="x")))

    assert isinstance(error, LoginRefused)
    assert sum(each.logins for each in listeners) == 1


def test_threads_that_want_the_same_cluster_send_a_wrong_password_once(opened: Opened) -> None:
    listener = opened(mechanisms=["PLAIN"], users=USERS)
    wanted = settings(listener.address, **login(mechanism="PLAIN", password="x"), client__id="many")
    begin = threading.Barrier(8)

    def ask(_number: int) -> ExactlyOnceError:
        begin.wait(WAIT_S)
        with pytest.raises(ExactlyOnceError) as caught:
            Cluster.shared(wanted, PATIENT_MS)
        return caught.value

    with ThreadPoolExecutor(8) as threads:
        errors = list(threads.map(ask, range(8)))
    once = listener.logins

    assert {type(each) for each in errors} == {LoginRefused}
    # A thread that asks only after the first refusal is a new attempt.
    assert once < 8
    with pytest.raises(LoginRefused):
        Cluster.shared(wanted, PATIENT_MS)
    assert listener.logins == once + 1, "a person's next attempt asks the broker again"


def test_a_broker_that_ends_the_connection_within_the_login_without_a_word_is_asked_three_times(
    opened: Opened,
) -> None:
    listener = opened(mechanisms=["PLAIN"], users=USERS, silent=True)

    error = refused(settings(listener.address, **login(mechanism="PLAIN", password="x")))

    assert isinstance(error, LoginRefused)
    assert "without a reason" in error.message
    assert listener.logins == 3


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C,=3D", "a b;\"'", "pässwörd-é"])
def test_every_character_of_a_scram_name_reaches_the_broker(opened: Opened, mechanism: str, name: str) -> None:
    listener = opened(mechanisms=[mechanism], users={name: "päss,word="})

    connects(settings(listener.address, **login(mechanism=mechanism, name=name, password="päss,word=")))

    assert set(listener.named) == {name}


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_every_character_of_a_password_reaches_the_broker(opened: Opened, mechanism: str) -> None:
    password = "".join(map(chr, range(0x20, 0x7F))) + "äß€漢😀"
    listener = opened(mechanisms=[mechanism], users={"alice": password})

    connects(settings(listener.address, **login(mechanism=mechanism, name="alice", password=password)))

    assert set(listener.named) == {"alice"}


def test_a_plain_name_is_sent_as_it_is(opened: Opened) -> None:
    listener = opened(mechanisms=["PLAIN"], users={"a,b=c": "p"})

    connects(settings(listener.address, **login(mechanism="PLAIN", name="a,b=c", password="p")))

    assert set(listener.named) == {"a,b=c"}


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(opened: Opened) -> None:
    listener = opened(mechanisms=SCRAM, users=USERS)

    error = refused(settings(listener.address, **login(mechanism="PLAIN")))

    assert isinstance(error, OptionsError)
    assert "does not offer kafka.sasl.mechanism=PLAIN: it offers SCRAM-SHA-512, SCRAM-SHA-256" in error.message
    assert error.facts["offered"] == SCRAM
    assert listener.logins == 0


def test_gssapi_without_its_package_is_refused_before_anything_is_opened(opened: Opened) -> None:
    listener = opened(mechanisms=["GSSAPI"])

    error = refused(settings(listener.address, security__protocol="SASL_PLAINTEXT", sasl__mechanism="GSSAPI"))

    assert isinstance(error, OptionsError)
    assert "pip install 'pyspark-kafka-eos[kerberos]'" in error.message
    assert listener.connections == 0


def test_a_login_where_there_is_none_says_which_protocol_the_listener_has(opened: Opened, files: Files) -> None:
    plain = opened()
    mutual = opened(tls=serving(files.server, clients=files.authority.file))

    at_plain = refused(settings(plain.address, **login()))
    at_mutual = refused(
        settings(
            mutual.address,
            **login("SASL_SSL"),
            ssl__ca__location=files.authority.file,
            ssl__certificate__location=files.client[0],
            ssl__key__location=files.client[1],
        )
    )

    assert isinstance(at_plain, OptionsError) and isinstance(at_mutual, OptionsError)
    assert "takes no login (SASL)" in at_plain.message and "set it to PLAINTEXT" in at_plain.message
    assert "takes no login (SASL)" in at_mutual.message and "set it to SSL" in at_mutual.message


def test_no_login_where_one_is_asked_for_says_which_protocol_and_mechanisms(opened: Opened, files: Files) -> None:
    plain = opened(mechanisms=SCRAM, users=USERS)
    tls = opened(tls=serving(files.server), mechanisms=["PLAIN"], users=USERS)

    at_plain = refused(settings(plain.address))
    at_tls = refused(settings(tls.address, security__protocol="SSL", ssl__ca__location=files.authority.file))

    assert isinstance(at_plain, OptionsError) and isinstance(at_tls, OptionsError)
    assert "asks for a login (SASL: SCRAM-SHA-512, SCRAM-SHA-256)" in at_plain.message
    assert "set it to SASL_PLAINTEXT" in at_plain.message
    assert "asks for a login (SASL: PLAIN)" in at_tls.message and "set it to SASL_SSL" in at_tls.message


# ---- TLS or not


class Unhappy:
    """A listener that answers whatever it gets with some bytes, or only with its end."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Unhappy:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while True:
            try:
                link = self._socket.accept()[0]
            except OSError:
                return
            self.connections += 1
            with link:
                link.settimeout(WAIT_S)
                try:
                    link.recv(4096)
                    link.sendall(self._says)
                except OSError:
                    continue


JAVA_ALERT = bytes.fromhex("15030300020250")
"""What Kafka answers to a request without TLS: a fatal alert, "internal error"."""


def test_no_tls_at_a_tls_listener_is_named(opened: Opened, files: Files) -> None:
    listener = opened(tls=serving(files.server))
    with Unhappy(JAVA_ALERT) as java:
        at_java = refused(settings(java.address))
        # The alert shows it; nothing else has to be asked.
        assert java.connections == 1
    at_openssl = refused(settings(listener.address))
    with_login = refused(settings(listener.address, **login()))

    assert isinstance(at_java, OptionsError) and "speaks TLS" in at_java.message
    assert isinstance(at_openssl, OptionsError) and "set it to SSL" in at_openssl.message
    assert isinstance(with_login, OptionsError) and "set it to SASL_SSL" in with_login.message


@pytest.mark.parametrize("mechanisms", [(), SCRAM])
def test_tls_at_a_listener_without_it_is_named(opened: Opened, files: Files, mechanisms: tuple[str, ...]) -> None:
    listener = opened(mechanisms=mechanisms, users=USERS)

    error = refused(settings(listener.address, security__protocol="SSL", ssl__ca__location=files.authority.file))

    assert isinstance(error, OptionsError)
    assert f"{listener.address} does not speak TLS" in error.message
    assert listener.logins == 0


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_web_server_is_no_broker(protocol: str) -> None:
    with Unhappy(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        error = refused(settings(web.address, security__protocol=protocol))

    assert isinstance(error, OptionsError)
    assert "HTTP" in error.message or "does not speak TLS" in error.message


# ---- certificates


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_does_not_prove_the_broker_is_refused_with_its_reason(
    opened: Opened, files: Files, newest: ssl.TLSVersion
) -> None:
    expired, elsewhere = (opened(tls=serving(each, newest=newest)) for each in (files.expired, files.elsewhere))
    ca = {"security__protocol": "SSL", "ssl__ca__location": files.authority.file}

    late, other = (refused(settings(each.address, **ca)) for each in (expired, elsewhere))

    assert type(late) is BrokerNotTrusted and type(other) is BrokerNotTrusted
    assert late.who_acts == "the operator of the broker"
    assert f"the certificate of {expired.address} has expired" in late.message
    assert f"the certificate of {elsewhere.address} is for another host" in other.message
    assert other.facts["server"] == elsewhere.address
    connects(settings(elsewhere.address, **ca, ssl__endpoint__identification__algorithm=""))


def test_an_authority_that_is_not_trusted_is_the_files_fault(opened: Opened, files: Files) -> None:
    listener = opened(tls=serving(files.server))

    wrong = refused(settings(listener.address, security__protocol="SSL", ssl__ca__location=files.other.file))
    none = refused(settings(listener.address, security__protocol="SSL"))

    assert isinstance(wrong, OptionsError) and isinstance(none, OptionsError)
    assert f"not trusted by {files.other.file} (kafka.ssl.ca.location)" in wrong.message
    assert wrong.facts["file"] == str(files.other.file)
    assert "set kafka.ssl.ca.location" in none.message


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_that_asks_for_a_certificate_gets_none(opened: Opened, files: Files, newest: ssl.TLSVersion) -> None:
    listener = opened(tls=serving(files.server, files.authority.file, newest))

    error = refused(settings(listener.address, security__protocol="SSL", ssl__ca__location=files.authority.file))

    assert isinstance(error, OptionsError)
    assert "asks for a certificate of this client" in error.message
    assert "kafka.ssl.keystore.location" in error.message


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", ["late_client", "strange_client"])
def test_a_client_certificate_that_the_broker_does_not_accept_is_named(
    opened: Opened, files: Files, which: str, newest: ssl.TLSVersion
) -> None:
    listener = opened(tls=serving(files.server, files.authority.file, newest))
    certificate, key = getattr(files, which)

    error = refused(mutual(listener, files, certificate, key))

    assert type(error) is LoginRefused
    assert f"refused this client's certificate in {certificate}" in error.message
    assert error.facts == {"server": listener.address, "file": str(certificate)}


def mutual(listener: Listener, files: Files, certificate: Path, key: Path, **more: str) -> ClientSettings:
    return settings(
        listener.address, security__protocol="SSL", ssl__ca__location=files.authority.file,
        ssl__certificate__location=certificate, ssl__key__location=key, **more,
    )  # fmt: skip


def test_a_certificate_that_is_accepted_connects_with_an_encrypted_key_too(opened: Opened, files: Files) -> None:
    listener = opened(tls=serving(files.server, files.authority.file))

    connects(mutual(listener, files, *files.client))
    connects(mutual(listener, files, files.client[0], files.locked_key, ssl__key__password="opens it"))


# ---- files


def test_a_file_that_is_missing_or_has_something_else_is_named_before_anything_is_opened(
    opened: Opened, files: Files, tmp_path: Path
) -> None:
    listener = opened(tls=serving(files.server, files.authority.file))
    gone, certificate, key = tmp_path / "gone.pem", *files.client
    ca = {"security__protocol": "SSL", "ssl__ca__location": files.authority.file}
    both = {"ssl__certificate__location": certificate, "ssl__key__location": key}
    java = tmp_path / "trust.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    cases: list[tuple[dict[str, str | Path], Path, str]] = [
        ({**ca, "ssl__ca__location": gone}, gone, "No such file"),
        ({**ca, "ssl__ca__location": files.store}, files.store, "binary (DER or PKCS12)"),
        ({**ca, "ssl__ca__location": java}, java, "Java key store"),
        ({**ca, "ssl__ca__location": key}, key, "contains no certificate"),
        ({**ca, **both, "ssl__certificate__location": gone}, gone, "No such file"),
        ({**ca, **both, "ssl__key__location": gone}, gone, "No such file"),
        ({**ca, **both, "ssl__key__location": tmp_path}, tmp_path, "Is a directory"),
        ({**ca, **both, "ssl__key__location": certificate}, certificate, "contains no private key"),
        ({**ca, **both, "ssl__key__location": files.strange_client[1]}, files.strange_client[1], "does not belong"),
        ({**ca, **both, "ssl__key__location": files.locked_key}, files.locked_key, "set kafka.ssl.key.password"),
        ({**ca, "ssl__crl__location": gone}, gone, "No such file"),
        ({**ca, "ssl__crl__location": certificate}, certificate, "list of revoked certificates"),
    ]  # fmt: skip
    for names, path, said in cases:
        error = refused(settings(listener.address, **names))

        assert isinstance(error, OptionsError), error
        assert said in error.message and str(path) in error.message
        assert error.facts["file"] == str(path)
        assert "kafka.ssl." in error.message
    assert listener.connections == 0


def test_a_file_that_cannot_be_opened_is_named_with_the_systems_reason(
    opened: Opened, files: Files, tmp_path: Path
) -> None:
    # Root may read every file, so one that nobody can open stands for one without the permission.
    listener = opened(tls=serving(files.server))
    loop = tmp_path / "loop.pem"
    loop.symlink_to(loop)

    error = refused(settings(listener.address, security__protocol="SSL", ssl__ca__location=loop))

    assert isinstance(error, OptionsError) and error.facts["file"] == str(loop)
    assert os.strerror(errno.ELOOP) in error.message


def test_a_password_that_does_not_open_the_key_is_refused_and_not_repeated(opened: Opened, files: Files) -> None:
    listener = opened(tls=serving(files.server, files.authority.file))

    error = refused(mutual(listener, files, files.client[0], files.locked_key, ssl__key__password="looking-glass"))

    assert isinstance(error, OptionsError)
    assert "private key that kafka.ssl.key.password does not open" in error.message
    assert error.facts["file"] == str(files.locked_key)
    assert "looking-glass" not in repr(error)
    assert listener.connections == 0


@pytest.mark.processes
def test_nothing_is_asked_at_a_terminal(files: Files) -> None:
    """OpenSSL asks for the password of a key at the terminal of its process, if it has one."""
    child = textwrap.dedent(
        f"""
        from pyspark_kafka_eos.client.net.network import Network
        from kafka_core.errors import OptionsError
        from pyspark_kafka_eos.options import SinkOptions
        options = SinkOptions.parse({{
            "kafka.bootstrap.servers": "127.0.0.1:1", "pipeline": "p", "kafka.security.protocol": "SSL",
            "kafka.ssl.certificate.location": {str(files.client[0])!r},
            "kafka.ssl.key.location": {str(files.locked_key)!r},
        }})
        try:
            Network(options.client)
        except OptionsError as error:
            print("refused:", error.message)
        """
    )
    ours, theirs = pty.openpty()
    assert stat.S_ISCHR(os.fstat(theirs).st_mode)
    try:
        done = subprocess.run(
            [sys.executable, "-c", child], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True,
            timeout=WAIT_S, start_new_session=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)

    assert done.stdout.startswith("refused:"), done
    assert "encrypted private key: set kafka.ssl.key.password" in done.stdout


def test_a_rotated_file_is_used_by_the_next_connection(opened: Opened, files: Files, tmp_path: Path) -> None:
    listener = opened(tls=serving(files.server))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(files.other.file.read_bytes())
    wanted = settings(listener.address, security__protocol="SSL", ssl__ca__location=ca)
    network = Network(wanted)
    try:
        with pytest.raises(OptionsError, match="not trusted"):
            network.bootstrap(PATIENT_MS)
        ca.write_bytes(files.authority.file.read_bytes())
        network.bootstrap(PATIENT_MS)
    finally:
        network.close()


# ---- lists of revoked certificates


def test_a_revoked_certificate_is_refused_and_another_one_is_not(opened: Opened, files: Files, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "revoking")
    good, bad = authority.issue("good"), authority.issue("bad")
    authority.revoke(bad[0])
    newest, ended = authority.revoked(), authority.revoked("ended", ended=True)
    fine, revoked = opened(tls=serving(good)), opened(tls=serving(bad))
    ca = {"security__protocol": "SSL", "ssl__ca__location": authority.file}

    connects(settings(revoked.address, **ca))
    connects(settings(fine.address, **ca, ssl__crl__location=newest))
    error = refused(settings(revoked.address, **ca, ssl__crl__location=newest))
    late = refused(settings(fine.address, **ca, ssl__crl__location=ended))
    strange = refused(settings(fine.address, **ca, ssl__crl__location=files.authority.revoked()))

    assert type(error) is BrokerNotTrusted and "is revoked" in error.message
    assert isinstance(late, OptionsError) and isinstance(strange, OptionsError)
    assert str(ended) in late.message and "is not valid now" in late.message
    assert "has no list of the authority" in strange.message


# ---- what waiting can mend


def test_an_unknown_host_is_named_and_one_beside_a_good_server_does_no_harm(opened: Opened) -> None:
    listener = opened()

    error = refused(settings("no-such-host.invalid:9092"))
    connects(settings(f"no-such-host.invalid:9092,{listener.address}"))

    assert isinstance(error, OptionsError)
    assert "no machine has the name no-such-host.invalid" in error.message


def test_a_server_that_refuses_for_good_beside_one_that_accepts_does_no_harm(opened: Opened, files: Files) -> None:
    expired, good = opened(tls=serving(files.expired)), opened(tls=serving(files.server))
    wanted = settings(
        f"{expired.address},{good.address}", security__protocol="SSL", ssl__ca__location=files.authority.file
    )

    for _ in range(3):
        connects(wanted)


def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.slow
def test_where_nobody_listens_it_waits_and_says_the_last_reason_of_each_server() -> None:
    servers = [nobody(), nobody()]
    began = time.monotonic()

    with pytest.raises(BrokerUnavailable) as caught:
        Cluster(settings(",".join(servers)), 1_500)

    assert time.monotonic() - began >= 1.5
    assert all(f"{each}: " in caught.value.message for each in servers)
    assert caught.value.message.count("ECONNREFUSED") == 2
    assert caught.value.facts["bootstrap_servers"] == ",".join(servers)


@pytest.mark.slow
def test_a_refusal_is_kept_while_another_server_may_come_and_raised_at_the_limit(opened: Opened, files: Files) -> None:
    expired = opened(tls=serving(files.expired))
    wanted = settings(f"{expired.address},{nobody()}", security__protocol="SSL", ssl__ca__location=files.authority.file)
    began = time.monotonic()

    with pytest.raises(BrokerNotTrusted, match="has expired"):
        Cluster(wanted, 1_500)

    assert time.monotonic() - began >= 1.5


@pytest.mark.slow
def test_a_refusal_stands_where_a_later_attempt_had_no_time(
    opened: Opened, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit cuts the last attempt off, on a machine that does much else in its handshake."""
    expired = opened(tls=serving(files.expired))
    wanted = settings(f"{expired.address},{nobody()}", security__protocol="SSL", ssl__ca__location=files.authority.file)
    tried, asked = FirstContact._from, []

    async def slow(self: FirstContact, server: Any, allowed_s: float) -> Exception | None:
        asked.append(str(server))
        if asked.count(expired.address) > 1 and asked[-1] == expired.address:
            return TimedOut("it was not ready within 0.1 s")
        return await tried(self, server, allowed_s)

    monkeypatch.setattr(FirstContact, "_from", slow)

    with pytest.raises(BrokerNotTrusted, match="has expired"):
        Cluster(wanted, 1_500)

    assert asked.count(expired.address) > 1


def test_a_broker_that_comes_while_the_first_connection_is_tried_is_found() -> None:
    address = nobody()
    port = int(address.rpartition(":")[2])
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(connects, settings(address))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        with Listener(port=port):
            waiting.result(WAIT_S)


# ---- after the first connection


def test_a_password_that_was_changed_is_sent_once_and_not_all_the_time(opened: Opened) -> None:
    users = dict(USERS)
    listener = opened(mechanisms=["PLAIN"], users=users)
    network = Network(settings(listener.address, **login(mechanism="PLAIN")))
    try:
        network.bootstrap(PATIENT_MS)
        before = listener.logins
        users["alice"] = "looking-glass"
        answers = [network.call_many([(1, MetadataRequest(version=1, topics=[]))])[0] for _ in range(20)]
        # The library notices the lost connection and wants to read the brokers again, every 100 ms.
        assert not threading.Event().wait(0.5)
    finally:
        network.close()

    assert {type(each) for each in answers} == {LoginRefused}
    assert listener.logins == before + 1


def test_a_file_that_is_away_while_it_is_replaced_is_waited_for(opened: Opened, files: Files, tmp_path: Path) -> None:
    listener = opened(tls=serving(files.server))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(files.authority.file.read_bytes())
    network = Network(settings(listener.address, security__protocol="SSL", ssl__ca__location=ca))
    request = (1, MetadataRequest(version=1, topics=[]))
    try:
        network.bootstrap(PATIENT_MS)
        ca.unlink()
        (away,) = network.call_many([request])
        ca.write_bytes(files.authority.file.read_bytes())
        deadline = time.monotonic() + WAIT_S
        while isinstance(there := network.call_many([request])[0], BrokerUnavailable):
            assert time.monotonic() < deadline
    finally:
        network.close()

    assert type(away) is BrokerUnavailable and str(ca) in away.message
    assert there.brokers[0].node_id == 1


def test_a_tls_listener_that_never_answers_does_not_outlast_the_limit(files: Files) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()

        with pytest.raises(BrokerUnavailable, match=address):
            Cluster(settings(address, security__protocol="SSL", ssl__ca__location=files.authority.file), 1_000)

    assert 1.0 <= time.monotonic() - began < AT_ONCE_S


# ---- the doctor


def test_the_doctor_says_the_same(opened: Opened, files: Files) -> None:
    listener = opened(mechanisms=["PLAIN"], users=USERS)
    names = {f"kafka.{name.replace('__', '.')}": each for name, each in login(mechanism="PLAIN", password="x").items()}
    common = {"pipeline": "p", "topic": "t", "kafka.bootstrap.servers": listener.address}
    gone = str(files.folder / "gone.pem")
    began = time.monotonic()

    (password,) = examine(SinkOptions.parse({**common, **names}))
    (file,) = examine(SinkOptions.parse({**common, "kafka.security.protocol": "SSL", "kafka.ssl.ca.location": gone}))

    assert time.monotonic() - began < AT_ONCE_S
    assert (password.name, password.status, file.status) == ("brokers", "fail", "fail")
    assert "Invalid username or password" in password.seen and isinstance(password.error, LoginRefused)
    assert gone in file.seen and isinstance(file.error, OptionsError)
    assert password.do == "the author of the job acts: see the message"
