"""TLS of one connection: the context from the files that the options name, and what is wrong with a file.

Owns: reading the certificate, key and revocation files; the reasons why one of them cannot be used.
Does not know: sockets, brokers, SASL.
Invariants:
- The files are read anew for each context, so a rotated file is used by the next connection.
- Nothing is ever asked at a terminal: OpenSSL would ask for the password of a key, and block the process until it is typed.
- No message contains a password or a part of a key.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from connector.errors import OptionsError
from connector.model import Secret

_AUTHORITY = "kafka.ssl.ca.location (Java: kafka.ssl.truststore.location)"
_CERTIFICATE = "kafka.ssl.certificate.location (Java: kafka.ssl.keystore.location)"
_KEY = "kafka.ssl.key.location (Java: kafka.ssl.keystore.location)"
_PASSWORD = "kafka.ssl.key.password"
_REVOKED = "kafka.ssl.crl.location"

_BEGINS_CERTIFICATE = rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----"
_BEGINS_KEY = rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
_BEGINS_REVOKED = rb"-----BEGIN X509 CRL-----"
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED")
_JKS = b"\xfe\xed\xfe\xed"
_DER = b"\x30"


@dataclass(frozen=True)
class Tls:
    """The options of TLS; the fields have the names of the pairs in `ClientSettings.security`."""

    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: Secret | None = None
    ssl_crlfile: str | None = None
    ssl_check_hostname: bool = True

    @staticmethod
    def of(security: Mapping[str, Any]) -> Tls | None:
        """From the pairs of the settings; None where the connection has no TLS."""
        if security.get("security_protocol") not in ("SSL", "SASL_SSL"):
            return None
        names = {field.name for field in fields(Tls)}
        return Tls(**{name: value for name, value in security.items() if name in names})


class _Locked(Exception):
    """The key is encrypted and there is no password."""


def open_context(tls: Tls) -> ssl.SSLContext:
    """A context for one connection. OptionsError, with the file, where a file cannot be read or used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.ssl_check_hostname
    _trust(context, tls)
    if tls.ssl_certfile is not None:
        _identify(context, tls)
    if tls.ssl_crlfile is not None:
        _revoke(context, tls.ssl_crlfile)
    return context


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    path = tls.ssl_cafile
    if path is None:
        context.load_default_certs()
    elif os.path.isdir(path):
        # OpenSSL finds the authorities of a folder by their hashed names, at the handshake.
        context.load_verify_locations(capath=path)
    else:
        _require(_AUTHORITY, path, _read(_AUTHORITY, path), _BEGINS_CERTIFICATE, "certificate")
        try:
            context.load_verify_locations(cafile=path)
        except (ssl.SSLError, OSError) as error:
            raise _unusable(_AUTHORITY, path, error) from error


def _identify(context: ssl.SSLContext, tls: Tls) -> None:
    certificate = tls.ssl_certfile or ""
    key = tls.ssl_keyfile or certificate
    _require(_CERTIFICATE, certificate, _read(_CERTIFICATE, certificate), _BEGINS_CERTIFICATE, "certificate")
    key_text = _read(_KEY, key)
    _require(_KEY, key, key_text, _BEGINS_KEY, "private key")

    def password() -> str:
        if tls.ssl_password is None:
            raise _Locked
        return tls.ssl_password.reveal()

    try:
        context.load_cert_chain(certificate, key, password)
    except _Locked:
        raise OptionsError(
            f"the private key in {key} is encrypted: set {_PASSWORD}; nothing was opened", {"file": key}
        ) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise OptionsError(
                f"the private key in {key} does not belong to the certificate in {certificate}: correct "
                f"{_KEY} or {_CERTIFICATE}",
                {"file": key},
            ) from error
        if _ENCRYPTED.search(key_text) and tls.ssl_password is not None:
            raise OptionsError(
                f"{_PASSWORD} does not open the private key in {key}; correct the password or the file",
                {"file": key},
            ) from error
        raise _unusable(_KEY, key, error) from error


def _revoke(context: ssl.SSLContext, path: str) -> None:
    _require(_REVOKED, path, _read(_REVOKED, path), _BEGINS_REVOKED, "list of revoked certificates (CRL)")
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise _unusable(_REVOKED, path, error) from error
    # The broker's own certificate, as librdkafka checks it; a list of each authority above it is rarely there.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(option: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        seen = "" if os.path.isabs(path) else f" (looked for in {os.getcwd()})"
        raise OptionsError(
            f"{option}: {path}{seen} cannot be read on this machine: {error.strerror}; the driver and every "
            "executor need the file",
            {"file": path},
        ) from error


def _require(option: str, path: str, text: bytes, begins: bytes, content: str) -> None:
    if re.search(begins, text):
        return
    kind = ""
    if text.startswith(_JKS):
        kind = "; it is a Java key store (JKS)"
    elif text.startswith(_DER):
        kind = "; it is binary (DER or PKCS12)"
    raise OptionsError(
        f"{option}: {path} contains no {content} in PEM format{kind}; export it as PEM, or name another file",
        {"file": path},
    )


def _unusable(option: str, path: str, error: Exception) -> OptionsError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return OptionsError(f"{option}: {path} cannot be used: {reason}", {"file": path})
