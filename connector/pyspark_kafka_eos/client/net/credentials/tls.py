"""TLS of one connection: the context from the options, and what is wrong with a certificate, a key or a list.

Owns: reading what the options name; the versions and cipher suites; the reasons why something cannot be used.
Does not know: sockets, brokers, SASL.
Invariants:
- Everything is read anew for each context, so a rotated file is used by the next connection.
- Nothing is ever asked at a terminal: OpenSSL would ask for the password of a key, and block the process until it is
  typed.
- No message contains a password or a part of a key.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials import files, stores
from pyspark_kafka_eos.client.net.credentials.files import Given
from pyspark_kafka_eos.client.net.credentials.secrets import text_of
from pyspark_kafka_eos.model import Secret

_AUTHORITY = "kafka.ssl.ca.location (Java: kafka.ssl.truststore.location)"
_CERTIFICATE = "kafka.ssl.certificate.location (Java: kafka.ssl.keystore.location)"
_KEY = "kafka.ssl.key.location (Java: kafka.ssl.keystore.location)"
_PASSWORD = "kafka.ssl.key.password"
_REVOKED = "kafka.ssl.crl.location"
_AUTHORITY_TEXT = "kafka.ssl.truststore.certificates (librdkafka: kafka.ssl.ca.pem)"
_CERTIFICATE_TEXT = "kafka.ssl.keystore.certificate.chain (librdkafka: kafka.ssl.certificate.pem)"
_KEY_TEXT = "kafka.ssl.keystore.key (librdkafka: kafka.ssl.key.pem)"
_CIPHERS = "kafka.ssl.cipher.suites"

_BEGINS_CERTIFICATE = rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----"
_BEGINS_KEY = rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
_BEGINS_REVOKED = rb"-----BEGIN X509 CRL-----"
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64
"""RFC 7468: characters of a line of PEM."""


@dataclass(frozen=True)
class Tls:
    """The options of TLS; the fields have the names of the pairs in `ClientSettings.security`.

    Files: *file; texts in PEM: *data; PKCS12 and JKS stores: *store with a password. `ssl_versions`: None for all, or
    the one that is allowed. `ssl_ciphers`: names of OpenSSL separated by colons, those of TLS 1.3 among them.
    """

    ssl_cafile: str | None = None
    ssl_cadata: str | None = None
    ssl_truststore: str | None = None
    ssl_truststore_password: Secret | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_certdata: str | None = None
    ssl_keydata: Secret | None = None
    ssl_keystore: str | None = None
    ssl_keystore_password: Secret | None = None
    ssl_password: Secret | None = None
    ssl_crlfile: str | None = None
    ssl_check_hostname: bool = True
    ssl_versions: str | None = None
    ssl_ciphers: str | None = None

    @staticmethod
    def from_settings(security: Mapping[str, Any]) -> Tls | None:
        """From the pairs of the settings; None where the connection has no TLS."""
        if security.get("security_protocol") not in ("SSL", "SASL_SSL"):
            return None
        names = {field.name for field in fields(Tls)}
        return Tls(**{name: value for name, value in security.items() if name in names})

    @property
    def trusts(self) -> str | None:
        """Where the authorities are, for messages; None for those of this machine."""
        return self.ssl_cafile or self.ssl_truststore or (self.ssl_cadata and _AUTHORITY_TEXT)

    @property
    def identity(self) -> str | None:
        """Where this client's certificate is, for messages; None without one."""
        return self.ssl_certfile or self.ssl_keystore or (self.ssl_certdata and _CERTIFICATE_TEXT)


class _Locked(Exception):
    """The key is encrypted and there is no password."""


def open_context(tls: Tls) -> ssl.SSLContext:
    """A context for one connection. OptionsError, with the file, where something cannot be read or used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, tls)
    context.check_hostname = tls.ssl_check_hostname
    _trust(context, tls)
    if tls.identity is not None:
        _identify(context, tls)
    if tls.ssl_crlfile is not None:
        _revoke(context, tls.ssl_crlfile)
    return context


def cipher_refused(tls: Tls, used: str) -> str | None:
    """Why a connection must not use this cipher suite, which the handshake has chosen; None where it may.

    Python cannot choose among the suites of TLS 1.3, so the choice is judged.
    """
    if tls.ssl_ciphers is None or used in tls.ssl_ciphers.split(":"):
        return None
    return f"the broker chose the cipher suite {used}, which {_CIPHERS} does not list"


def _limit(context: ssl.SSLContext, tls: Tls) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ssl_versions == "TLSv1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif tls.ssl_versions == "TLSv1.3":
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    older = [each for each in (tls.ssl_ciphers or "").split(":") if each and not each.startswith("TLS_")]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise OptionsError(
                f"{_CIPHERS}: this machine's OpenSSL has none of {', '.join(older)}; nothing was opened"
            ) from error


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.ssl_cadata is not None:
        given = Given(_AUTHORITY_TEXT, _lines(tls.ssl_cadata))
    elif tls.ssl_truststore is not None:
        given = stores.authorities(tls.ssl_truststore, tls.ssl_truststore_password)
    elif tls.ssl_cafile is None:
        context.load_default_certs()
        return
    elif os.path.isdir(folder := files.find(tls.ssl_cafile)):
        # OpenSSL finds the authorities of a folder by their hashed names, at the handshake.
        context.load_verify_locations(capath=folder)
        return
    else:
        given = files.read(_AUTHORITY, tls.ssl_cafile)
    _require(given, _BEGINS_CERTIFICATE, "certificate")
    _load(context, given)


def _identify(context: ssl.SSLContext, tls: Tls) -> None:
    certificate, key, password = _pair(tls)
    _require(certificate, _BEGINS_CERTIFICATE, "certificate")
    _require(key, _BEGINS_KEY, "private key")

    def reveal() -> str:
        if password is None:
            raise _Locked
        return text_of(password)

    try:
        with certificate.as_file() as certificate_path, key.as_file() as key_path:
            context.load_cert_chain(certificate_path, key_path, reveal)
    except _Locked:
        raise key.refused(f"has an encrypted private key: set {_PASSWORD}") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise key.refused(
                f"has a private key that does not belong to the certificate in {certificate.where}"
            ) from error
        if _ENCRYPTED.search(key.text) and password is not None:
            raise key.refused(f"has a private key that {_PASSWORD} does not open") from error
        raise _unusable(key, error) from error


def _pair(tls: Tls) -> tuple[Given, Given, Secret | None]:
    """This client's certificate, its key, and the password of the key."""
    if tls.ssl_keystore is not None:
        return (*stores.identity(tls.ssl_keystore, tls.ssl_keystore_password, tls.ssl_password), None)
    if tls.ssl_certdata is not None:
        certificate = Given(_CERTIFICATE_TEXT, _lines(tls.ssl_certdata))
    else:
        certificate = files.read(_CERTIFICATE, tls.ssl_certfile or "")
    if tls.ssl_keydata is not None:
        key = Given(_KEY_TEXT, _lines(text_of(tls.ssl_keydata)))
    else:
        key = files.read(_KEY, tls.ssl_keyfile or tls.ssl_certfile or "")
    return certificate, key, tls.ssl_password


def _revoke(context: ssl.SSLContext, name: str) -> None:
    given = files.read(_REVOKED, name)
    _require(given, _BEGINS_REVOKED, "list of revoked certificates (CRL)")
    _load(context, given)
    # The broker's own certificate, as librdkafka checks it; a list of each authority above it is rarely there.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(context: ssl.SSLContext, given: Given) -> None:
    try:
        with given.as_file() as path:
            context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise _unusable(given, error) from error


def _lines(text: str) -> bytes:
    """PEM in lines: in an option it often is one line, with blanks or the two characters \\n where the lines ended."""

    def block(match: re.Match[str]) -> str:
        body = match[2].replace("\\r", "").replace("\\n", "\n")
        if ":" not in body:  # RFC 1421's headers, which tell how a key is encrypted, stay as they are
            plain = "".join(body.split())
            body = "\n" + "\n".join(plain[at : at + _LINE] for at in range(0, len(plain), _LINE)) + "\n"
        return f"-----BEGIN {match[1]}-----{body}-----END {match[1]}-----\n"

    return "".join(map(block, _BLOCK.finditer(text))).encode()


def _require(given: Given, begins: bytes, content: str) -> None:
    if re.search(begins, given.text):
        return
    kind = stores.kind_of(given.text)
    raise given.refused(
        f"contains no {content} in PEM format{f'; it is {kind}' if kind else ''}; export it as PEM, or name another"
    )


def _unusable(given: Given, error: Exception) -> OptionsError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return given.refused(f"cannot be used: {reason}")
