"""Secrets that an option names by their place: where they are found, when they are read, and that they are nowhere
else.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from kafka_core.errors import ExactlyOnceError, LoginRefused, OptionsError
from pyspark_kafka_eos.client.net.credentials import secrets
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.model import ClientSettings, Secret, SecretReference
from pyspark_kafka_eos.model.references import reference
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.client.certificates import Authority, encrypted
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_login import connects, login, refused, serving, settings
from tests.support.logs import everything_logged

Opened = Callable[..., Listener]
PLANTED = "PLANTED-hunter2"
USERS = {"alice": PLANTED}


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Listeners that are closed after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${env:NAME}", SecretReference("env", "NAME")),
        ("${env::NAME}", SecretReference("env", "NAME")),
        ("${file:/run/secret}", SecretReference("file", "/run/secret")),
        (
            "${file:/run/app.properties:db.password}",
            SecretReference("file", "/run/app.properties", "db.password"),
        ),
        ("${directory:/run/secrets:password}", SecretReference("file", "/run/secrets/password")),
        ("a${env:NAME}", None),
        ("${NAME}", None),
        ("${vault:a:b}", None),
        ("${directory:/run:../etc/passwd}", None),
        ("$ConnectionString", None),
    ],
)
def test_a_whole_value_in_the_form_of_kafkas_config_providers_is_a_reference(
    text: str, found: SecretReference | None
) -> None:
    assert reference(text) == found


def test_a_reference_is_no_password_of_the_same_characters() -> None:
    assert SecretReference("env", "A") != Secret("${env:A}") and Secret("${env:A}") != SecretReference("env", "A")
    assert pickle.loads(pickle.dumps(SecretReference("file", "a", "b"))) == SecretReference("file", "a", "b")


@pytest.mark.parametrize(
    ("content", "key", "expected"),
    [
        (f"{PLANTED}\n", None, PLANTED),
        (f" {PLANTED} \r\n", None, f" {PLANTED} "),
        (f"# password=no\nuser=alice\npassword = {PLANTED}\n", "password", PLANTED),
        ("password:a=b;c\n", "password", "a=b;c"),
    ],
)
def test_a_file_is_read_whole_or_by_a_key(tmp_path: Path, content: str, key: str | None, expected: str) -> None:
    file = tmp_path / "secret"
    file.write_text(content)

    assert secrets.text_of(SecretReference("file", str(file), key)) == expected


def test_what_is_missing_is_named_and_nothing_of_the_file_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, binary = tmp_path / "app.properties", tmp_path / "binary"
    file.write_text(f"other={PLANTED}\n")
    binary.write_bytes(PLANTED.encode() + b"\xff")
    monkeypatch.delenv("NOWHERE", raising=False)
    cases = {
        SecretReference("env", "NOWHERE"): "the environment variable NOWHERE is not set",
        SecretReference("file", "/nowhere/x"): "/nowhere/x cannot be read",
        SecretReference("file", str(file), "password"): "has no line password=...",
        SecretReference("file", str(binary)): "is not UTF-8",
    }
    for place, said in cases.items():
        with pytest.raises(OptionsError) as caught:
            secrets.text_of(place)

        whole = "".join(traceback.format_exception(caught.value)) + repr(caught.value.facts)
        assert said in whole and PLANTED not in whole


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("spelling", ["names", "jaas"])
def test_user_and_password_from_their_places_log_in(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mechanism: str, spelling: str
) -> None:
    listener, file = opened(mechanisms=[mechanism], users=USERS), tmp_path / "password"
    file.write_text(PLANTED)
    monkeypatch.setenv("WHO", "alice")
    name, password = "${env:WHO}", f"${{file:{file}}}"
    wanted = login(mechanism=mechanism, name=name, password=password)
    if spelling == "jaas":
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        del wanted["sasl__username"], wanted["sasl__password"]
        wanted["sasl__jaas__config"] = (
            f'org.apache.kafka.common.security.{module} required username="{name}" password="{password}";'
        )

    connects(settings(listener.address, **wanted))

    assert listener.named[-1] == "alice"


def test_a_new_password_is_used_by_the_next_connection_of_a_process_that_runs(opened: Opened, tmp_path: Path) -> None:
    users, file = dict(USERS), tmp_path / "password"
    listener = opened(mechanisms=["PLAIN"], users=users)
    file.write_text(PLANTED)
    network = Network(settings(listener.address, **login(mechanism="PLAIN", password=f"${{file:{file}}}")))
    try:
        network.bootstrap(10_000)
        users["alice"] = "another one"
        file.write_text("another one")
        before = listener.logins

        network.bootstrap(10_000)

        assert listener.logins > before
        file.write_text(PLANTED)
        with pytest.raises(LoginRefused):
            network.bootstrap(10_000)
    finally:
        network.close()


def test_a_place_that_is_missing_is_named_before_anything_is_opened(opened: Opened) -> None:
    listener = opened(mechanisms=["PLAIN"], users=USERS)

    error = refused(settings(listener.address, **login(mechanism="PLAIN", password="${file:/nowhere/password}")))

    assert isinstance(error, OptionsError) and "/nowhere/password" in error.message
    assert listener.connections == 0


def test_the_password_of_a_key_comes_from_its_place_too(opened: Opened, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "own")
    server, client = authority.issue("server"), authority.issue("client")
    listener, file = opened(tls=serving(server, clients=authority.file)), tmp_path / "password"
    locked = encrypted(client[1], PLANTED)
    file.write_text(PLANTED)

    connects(
        settings(
            listener.address,
            security__protocol="SSL",
            ssl__ca__location=authority.file,
            ssl__certificate__location=client[0],
            ssl__key__location=locked,
            ssl__key__password=f"${{file:{file}}}",
        )
    )

    assert listener.connections > 0


# ---- where a secret must not be


def by_value(address: str) -> ClientSettings:
    return settings(address, **login(mechanism="PLAIN", password=PLANTED))


def by_place(address: str) -> ClientSettings:
    return settings(address, **login(mechanism="PLAIN", password="${env:PLANTED_IN}"))


@pytest.mark.parametrize("make", [by_value, by_place])
@pytest.mark.parametrize("right", [True, False])
def test_a_login_leaves_its_secret_in_no_log_message_or_state_of_the_client(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], ClientSettings], right: bool
) -> None:
    listener = opened(mechanisms=["PLAIN"], users=USERS if right else {"alice": "other"})
    monkeypatch.setenv("PLANTED_IN", PLANTED)
    with everything_logged() as said:
        network = Network(make(listener.address))
        try:
            try:
                network.bootstrap(10_000)
            except LoginRefused as error:
                said.write("".join(traceback.format_exception(error)) + json.dumps(error.facts))
            state = [repr(network), *(repr(vars(each)) for each in (network, network._pool, network._first))]
        finally:
            network.close()

    assert listener.logins == 1
    assert "SaslAuthenticate" in said.getvalue(), "the exchange was not logged"
    assert PLANTED not in said.getvalue()
    assert PLANTED not in "".join(state)


def shown_by_frames(error: BaseException) -> list[str]:
    """Variables of this package's frames, in the error and all that it comes from, that have the planted secret."""
    left: list[BaseException | None] = [error]
    found, seen = [], set()
    coded = (PLANTED, base64.b64encode(f"alice:{PLANTED}".encode()).decode(), PLANTED.encode().hex())
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        for frame, line in traceback.walk_tb(each.__traceback__):
            for name, value in frame.f_locals.items():
                if f"{os.sep}tests{os.sep}" not in frame.f_code.co_filename and any(
                    one in f"{value!r}{value}" for one in coded
                ):
                    found.append(f"{frame.f_code.co_filename}:{line} {name}")
    return found


def _refused_password(opened: Opened, _: Path) -> ClientSettings:
    return by_place(opened(mechanisms=["PLAIN"], users={"alice": "other"}).address)


def _refused_scram(opened: Opened, _: Path) -> ClientSettings:
    listener = opened(mechanisms=["SCRAM-SHA-256"], users={"alice": "other"})
    return settings(listener.address, **login(mechanism="SCRAM-SHA-256", password="${env:PLANTED_IN}"))


def _cheap_scram(opened: Opened, _: Path) -> ClientSettings:
    listener = opened(mechanisms=["SCRAM-SHA-256"], users=USERS, iterations="1")
    return settings(listener.address, **login(mechanism="SCRAM-SHA-256", password="${env:PLANTED_IN}"))


def _token(url: str, listener: Listener, **more: str | Path) -> ClientSettings:
    return settings(
        listener.address, security__protocol="SASL_PLAINTEXT", sasl__mechanism="OAUTHBEARER",
        sasl__oauthbearer__token__endpoint__url=url, sasl__oauthbearer__client__credentials__client__id="alice",
        sasl__oauthbearer__client__credentials__client__secret="${env:PLANTED_IN}", **more,
    )  # fmt: skip


def _no_endpoint(opened: Opened, _: Path) -> ClientSettings:
    return _token("http://127.0.0.1:1/token", opened(mechanisms=["OAUTHBEARER"]))


def _no_tls_at_the_endpoint(opened: Opened, _: Path) -> ClientSettings:
    listener = opened(mechanisms=["OAUTHBEARER"])
    return _token(f"https://{listener.address}/token", listener)


def _no_authority_of_the_endpoint(opened: Opened, folder: Path) -> ClientSettings:
    broken = folder / "ca.pem"
    broken.write_text("no certificate")
    return _token("https://127.0.0.1:1/token", opened(mechanisms=["OAUTHBEARER"]), https__ca__location=broken)


def _key_of_another_password(opened: Opened, folder: Path) -> ClientSettings:
    authority = Authority(folder / "own")
    server, client = authority.issue("server"), authority.issue("client")
    listener = opened(tls=serving(server, clients=authority.file))
    return settings(
        listener.address, security__protocol="SSL", ssl__ca__location=authority.file,
        ssl__certificate__location=client[0], ssl__key__location=encrypted(client[1], "another"),
        ssl__key__password="${env:PLANTED_IN}",
    )  # fmt: skip


def _assertions_key_of_another_passphrase(opened: Opened, folder: Path) -> ClientSettings:
    _, key = Authority(folder / "own").issue("client")
    return settings(
        opened(mechanisms=["OAUTHBEARER"]).address, security__protocol="SASL_PLAINTEXT", sasl__mechanism="OAUTHBEARER",
        sasl__oauthbearer__token__endpoint__url="http://127.0.0.1:1/token", sasl__oauthbearer__assertion__claim__sub="svc",
        sasl__oauthbearer__assertion__claim__aud="kafka",
        sasl__oauthbearer__assertion__private__key__file=encrypted(key, "another"),
        sasl__oauthbearer__assertion__private__key__passphrase="${env:PLANTED_IN}",
    )  # fmt: skip


FAILURES = [
    _refused_password, _refused_scram, _cheap_scram, _no_endpoint, _no_tls_at_the_endpoint, _no_authority_of_the_endpoint,
    _key_of_another_password, _assertions_key_of_another_passphrase,
]  # fmt: skip


@pytest.mark.parametrize("make", FAILURES, ids=lambda each: each.__name__)
def test_an_error_keeps_no_frame_that_has_a_secret_in_a_variable(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Opened, Path], ClientSettings]
) -> None:
    """pytest --showlocals, rich.traceback and collectors of errors print each frame's variables (S12)."""
    monkeypatch.setenv("PLANTED_IN", PLANTED)
    made = make(opened, tmp_path)

    def connect() -> None:
        network = Network(made)
        try:
            network.bootstrap(1_500)
        finally:
            network.close()

    with pytest.raises(ExactlyOnceError) as caught:
        connect()
    assert shown_by_frames(caught.value) == []


def test_options_show_no_secret_and_a_pickle_of_a_reference_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_IN", PLANTED)
    given = {
        "kafka.bootstrap.servers": "b:9092", "pipeline": "p", "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice",
    }  # fmt: skip
    plain = SinkOptions.parse({**given, "kafka.sasl.password": PLANTED})
    placed = SinkOptions.parse({**given, "kafka.sasl.password": "${env:PLANTED_IN}"})

    for each in (plain, placed):
        shown = f"{each} {each!r} {each.client} {TypeAdapter(SinkOptions).dump_json(each)!r}"
        assert PLANTED not in shown
    # The tasks need a password that the options contain; one that they name stays where it is.
    assert PLANTED.encode() in pickle.dumps(plain)
    assert PLANTED.encode() not in pickle.dumps(placed)


@pytest.mark.processes
def test_a_command_shows_no_secret_in_its_output_and_not_in_the_list_of_processes(opened: Opened) -> None:
    listener = opened(mechanisms=["PLAIN"], users={"alice": "other"})
    words = [
        sys.executable, "-m", "pyspark_kafka_eos.cli", "doctor", "--json", "-b", listener.address,
        *("-o", "pipeline=p", "-o", "kafka.security.protocol=SASL_PLAINTEXT", "-o", "kafka.sasl.mechanism=PLAIN"),
        *("-o", "kafka.sasl.username=alice", "-o", "kafka.sasl.password=${env:PLANTED_IN}"),
    ]  # fmt: skip
    root = Path(__file__).parents[3]
    environ = {"PLANTED_IN": PLANTED, "PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}

    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as command:
        line = Path(f"/proc/{command.pid}/cmdline").read_text()
        said, _ = command.communicate(timeout=90)

    assert listener.logins >= 1, said
    assert command.returncode == 1 and "refused the credentials" in said
    assert PLANTED not in said + line
