"""A broker with a second listener that takes TLS, and the options that reach it.

Owns: the certificate, the listener's settings.
Does not know: what is written through it.
Invariant: both listeners are of one process, so a way with TLS and the same way without it differ in nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka


class KafkaWithTls(LocalKafka):
    """One broker; `options` of Spark's own Kafka sink and of ours reach its listener for TLS. `folder`: for the
    certificate.
    """

    def __init__(self, version: str, *, data_dir: Path, config: Mapping[str, str], folder: Path) -> None:
        super().__init__(version, data_dir=data_dir, config=config)
        self._certificate, self._store = _make_certificate(folder)
        (self._tls_port,) = free_ports(1)

    @property
    def options(self) -> dict[str, str]:
        """In the place of `kafka.bootstrap.servers`; the protocol's version and cipher are each client's default."""
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self._tls_port}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self._certificate),
        }

    def _write_settings(self, broker: int, config: Mapping[str, str] | None = None) -> None:
        advertised = f"PLAINTEXT://127.0.0.1:{self._ports[0]},TLS://127.0.0.1:{self._tls_port}"
        protocols = "PLAINTEXT:PLAINTEXT,TLS:SSL"
        # Before 4.0 ZooKeeper is in the controller's place.
        controller = f",CONTROLLER://127.0.0.1:{self._ports[1]}" if self._kraft else ""
        more = {
            "listeners": advertised + controller,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": protocols + (",CONTROLLER:PLAINTEXT" if controller else ""),
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self._store),
        }
        super()._write_settings(broker, {**more, **(config or {})})


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and a file of it and its key."""
    certificate, key, store = (folder / name for name in ("server.pem", "server.key", "server.store"))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    store.touch(mode=0o600)
    store.write_text(key.read_text() + certificate.read_text())
    return certificate, store
