"""A SASL PLAIN exchange with everything logged: the broker gets the password, no log record does."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from kafka_core.errors import AuthorizationFailed
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.model import ClientSettings, Secret
from tests.pyspark_kafka_eos.client.client_tools import settings_for

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
PASSWORD = "correct-horse-battery"
WAIT_S = 30.0


class SaslBroker:
    """Speaks as much of the protocol as the exchange needs, and refuses the credentials at its end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.authenticated_with = b""
        self.exchanges = 0
        self.asked = threading.Event()
        self._links: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                link = self._listener.accept()[0]
            except OSError:
                return
            self._links.append(link)
            link.settimeout(WAIT_S)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        stream = link.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                api, version, correlation = struct.unpack_from(">hhi", frame)
                body = self._answer(api, version, frame)
                link.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
        except OSError:
            return

    def _answer(self, api: int, version: int, frame: bytes) -> bytes:
        if api == API_VERSIONS:
            # Version 0 whatever was asked, as a broker of Kafka 2.0 answers a newer client.
            known = [(0, 0, 5), (1, 4, 8), (3, 0, 6), (API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1)]
            known.append((SASL_AUTHENTICATE, 0, 0))
            code = 0 if version == 0 else 35
            return struct.pack(">hi", code, len(known)) + b"".join(struct.pack(">hhh", *each) for each in known)
        if api == SASL_HANDSHAKE:
            return struct.pack(">hi", 0, 1) + _text(b"PLAIN")
        assert api == SASL_AUTHENTICATE
        self.authenticated_with = frame
        self.exchanges += 1
        self.asked.set()
        return struct.pack(">h", 58) + _text(b"no") + struct.pack(">i", 0)


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


@pytest.fixture
def broker() -> Iterator[SaslBroker]:
    server = SaslBroker()
    yield server
    server.close()


class Everything(logging.Handler):
    """Keeps what a handler of the user's would write, and every argument as it is shown."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        shown = record.args if isinstance(record.args, tuple) else (record.args,)
        self.said.append(" ".join([record.name, record.getMessage(), *(f"{each!r} {each}" for each in shown)]))


@pytest.fixture
def logged() -> Iterator[Everything]:
    """All log records of the process, at every level."""
    handler, root, kafka = Everything(), logging.getLogger(), logging.getLogger("kafka")
    before = root.level, kafka.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    kafka.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before[0])
    kafka.setLevel(before[1])


def settings(broker: SaslBroker) -> ClientSettings:
    return settings_for(
        broker.address,
        security=(  # type: ignore[arg-type]
            ("sasl_mechanism", "PLAIN"),
            ("sasl_plain_password", Secret(PASSWORD)),
            ("sasl_plain_username", "somebody"),
            ("security_protocol", "SASL_PLAINTEXT"),
        ),
    )


def test_the_password_reaches_the_broker_and_no_log_record(broker: SaslBroker, logged: Everything) -> None:
    network = Network(settings(broker))
    try:
        with pytest.raises(AuthorizationFailed, match="refused the credentials") as refused:
            network.bootstrap(10_000)
    finally:
        network.close()

    assert broker.asked.wait(WAIT_S)
    assert broker.exchanges == 1, "refused credentials were tried again"
    assert PASSWORD.encode() in broker.authenticated_with
    assert any("SaslAuthenticate with" in line and "not shown" in line for line in logged.said), "it was not logged"
    assert [line for line in logged.said if PASSWORD in line] == []
    assert PASSWORD not in str(refused.value)
    assert PASSWORD not in repr(refused.value)
