"""Key stores of Java's own format (JKS), which `keytool` made before version 9 and Kafka's documents still show.

Owns: the format: entries, the check of the store's password, Sun's protection of a private key.
Does not know: TLS, options.
Invariants: a key that comes out of a store is in memory only; no message contains a part of it.
Sources: sun.security.provider.JavaKeyStore and KeyProtector of OpenJDK. The libraries for it in Python are no longer
kept up, and the format is closed: Java writes no other version of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"

_KEY, _CERTIFICATE = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST = 20
"""Bytes of SHA-1: of the salt and of the check around a protected key, and of the check at a store's end."""

_PROTECTED = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier of Sun's protection, 1.3.6.1.4.1.42.2.17.1.1, in DER."""

_MOST_ENTRIES = 100_000
"""A length beyond this is damage. Java's own trust store has 150 entries; double would only read damage longer."""


class JksError(ValueError):
    """A store cannot be read; the text says why, to follow the store's name."""


@dataclass(frozen=True)
class Entry:
    """One alias. `chain`: certificates in DER, the entry's own first; `key`: the protected key, None for a trusted
    certificate.
    """

    alias: str
    chain: tuple[bytes, ...]
    key: bytes | None = field(repr=False, default=None)


def read(store: bytes, password: str | None) -> list[Entry]:
    """The entries. Without a password the store's check is not made, as in Java. JksError for damage or another
    password.
    """
    body, check = store[:-_DIGEST], store[-_DIGEST:]
    if password is not None:
        wanted = hashlib.sha1(_wide(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(wanted, check):
            raise JksError("cannot be opened with its password, or is damaged")
    try:
        return _entries(body)
    except (struct.error, UnicodeDecodeError) as error:
        raise JksError("is damaged: it ends too early") from error


def unprotected(key: bytes, password: str) -> bytes:
    """A private key in PKCS8 (DER). JksError for another password."""
    sealed = _sealed(key)
    salt, hidden, check = sealed[:_DIGEST], sealed[_DIGEST:-_DIGEST], sealed[-_DIGEST:]
    word, digest, stream = _wide(password), salt, b""
    while len(stream) < len(hidden):
        digest = hashlib.sha1(word + digest, usedforsecurity=False).digest()
        stream += digest
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(word + plain, usedforsecurity=False).digest(), check):
        raise JksError("has a key that cannot be opened with its password")
    return plain


def pem(kind: str, der: bytes) -> bytes:
    """A certificate or a key in PEM (RFC 7468)."""
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self.raw(size))
        return int(value)

    def raw(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) != size:
            raise struct.error("too short")
        self._at += size
        return found

    def text(self) -> str:
        return self.raw(self.number(">H")).decode()

    def block(self) -> bytes:
        return self.raw(self.number(">i"))


def _entries(body: bytes) -> list[Entry]:
    reader = _Reader(body)
    if reader.raw(4) != MAGIC:
        raise JksError("is no JKS store")
    version, count = reader.number(">i"), reader.number(">i")
    if version not in (1, 2) or not 0 <= count <= _MOST_ENTRIES:
        raise JksError("is damaged: its head is not that of a JKS store")
    return [_entry(reader, version) for _ in range(count)]


def _entry(reader: _Reader, version: int) -> Entry:
    tag, alias, _made_at = reader.number(">i"), reader.text(), reader.number(">q")
    if tag == _CERTIFICATE:
        return Entry(alias, (_certificate(reader, version),))
    if tag != _KEY:
        raise JksError("is damaged: it has an entry that is neither key nor certificate")
    key, length = reader.block(), reader.number(">i")
    if not 0 <= length <= _MOST_ENTRIES:
        raise JksError("is damaged: the length of a chain is impossible")
    return Entry(alias, tuple(_certificate(reader, version) for _ in range(length)), key)


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version == 2 else "X.509"
    if kind != "X.509":
        raise JksError("has a certificate that is not X.509")
    return reader.block()


def _sealed(key: bytes) -> bytes:
    """The last octet string of EncryptedPrivateKeyInfo (PKCS8)."""
    _, start, _ = _element(key, 0)
    tag, inner, after = _element(key, start)
    octets, at, end = _element(key, after)
    if tag != 0x30 or not key[inner:after].startswith(_PROTECTED) or octets != 0x04 or end - at < 2 * _DIGEST:
        raise JksError("has a key with a protection that is not Sun's")
    return key[at:end]


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """One element of DER: its tag, where its content begins, where it ends."""
    if at + 2 > len(data):
        raise JksError("has a damaged key")
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise JksError("has a damaged key")
    return tag, start, start + length


def _wide(password: str) -> bytes:
    """Java hashes a password as characters of two bytes."""
    return password.encode("utf-16-be", "surrogatepass")
