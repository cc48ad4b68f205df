"""TLS of the listener: the server's context, and the principal of a client's certificate.

Owns: the reading of key and trust stores in PEM, distinguished names as Kafka writes them.
Does not know: sockets.
Invariants: a file that cannot be used is refused by name before anything listens. Nothing ever prompts on a terminal.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded_kafka.settings.config import SecurityConfig
from kafka_core.errors import OptionsError

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "localityName": "L", "organizationName": "O",
    "organizationalUnitName": "OU", "stateOrProvinceName": "ST", "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
"""The names that RFC 2253 has a short form of."""
_ESCAPED = frozenset(',+"\\<>;')


class _TellingObject(ssl.SSLObject):
    """A connection that sends the alert of a failed handshake, so that the client learns the reason.

    asyncio drops what OpenSSL has written when the handshake fails, but sends it when the handshake waits for more.
    So the failure is first reported as a wait. The client's next bytes, its end or the time limit end the connection.
    """

    _failed: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """As in `ssl`."""
        if self._failed is not None:
            raise self._failed
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failed = error
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the alert goes out first") from error


def server_context(config: SecurityConfig) -> ssl.SSLContext:
    """The context of the listener; OptionsError names the setting and its file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _TellingObject
    # Kafka's default since 2.5 (KIP-553).
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    keys = _file("ssl.keystore.location", config.keystore_location)
    try:
        context.load_cert_chain(keys, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise _refused("ssl.keystore.location", keys, "has no unencrypted key with its certificate in PEM") from error
    context.verify_mode = _VERIFY[config.client_auth]
    if config.truststore_location:
        trusted = _file("ssl.truststore.location", config.truststore_location)
        try:
            context.load_verify_locations(trusted)
        except ssl.SSLError as error:
            raise _refused("ssl.truststore.location", trusted, "has no certificate in PEM") from error
    elif config.client_auth != "none":
        raise OptionsError(
            f"ssl.client.auth={config.client_auth} needs ssl.truststore.location, the authorities of the clients' "
            "certificates; nothing was started",
            {"setting": "ssl.truststore.location"},
        )
    return context


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate that `getpeercert` returned, as RFC 2253 and Kafka's default principal have it:
    `CN=alice,O=example`, the most specific part first."""
    parts = []
    for several in reversed(certificate.get("subject", ())):
        parts.append("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in several))
    return ",".join(parts)


def common_name(name: str) -> str:
    """The distinguished name of a certificate that has this name alone."""
    return f"CN={_escaped(name)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text


def _file(setting: str, name: str) -> Path:
    if not name:
        raise OptionsError(f"a listener with TLS needs {setting}; nothing was started", {"setting": setting})
    path = Path(name)
    try:
        path.read_bytes()
    except OSError as error:
        raise _refused(setting, path, f"cannot be read: {error.strerror}") from None
    return path


def _no_password() -> str:
    # Without this OpenSSL asks for the password on the terminal.
    raise ValueError("the key is encrypted")


def _refused(setting: str, path: Path, what: str) -> OptionsError:
    return OptionsError(f"{setting}: {path} {what}; nothing was started", {"setting": setting, "file": str(path)})
