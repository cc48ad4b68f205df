"""Java's stores turned into PEM: PKCS12, as Java makes them since version 9, and JKS.

Owns: reading PKCS12 by `cryptography`, which is an extra of this package, JKS by `jks`, and what is wrong with a store.
Does not know: TLS.
Invariants:
- A key that comes out of a store is in memory only.
- The content decides the format, whatever the options call it: Java reads both under both names (keystore.type.compat).
"""

from __future__ import annotations

from typing import Any

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials import files, jks
from pyspark_kafka_eos.client.net.credentials.files import Given
from pyspark_kafka_eos.client.net.credentials.secrets import text_of
from pyspark_kafka_eos.model import Secret

_TRUST = "kafka.ssl.truststore.location"
_KEYS = "kafka.ssl.keystore.location"
_DER = b"\x30"


def kind_of(text: bytes) -> str:
    """What a file that is no PEM is, in words; empty where that is not known."""
    if text.startswith(jks.MAGIC):
        return "a Java key store (JKS)"
    return "binary (DER or PKCS12)" if text.startswith(_DER) else ""


def authorities(name: str, password: Secret | None) -> Given:
    """The certificates of a trust store."""
    store = files.read(_TRUST, name)
    if store.text.startswith(jks.MAGIC):
        return _java_authorities(store, password)
    found = _opened(_TRUST, store, password)
    certificates = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    if not certificates:
        raise store.refused("contains no certificate")
    return Given(_TRUST, b"".join(map(_pem, certificates)))


def identity(name: str, password: Secret | None, key_password: Secret | None) -> tuple[Given, Given]:
    """The certificate chain and the key of a key store. `key_password`: of the key in a JKS store, where it has its
    own.
    """
    store = files.read(_KEYS, name)
    if store.text.startswith(jks.MAGIC):
        return _java_identity(store, password, key_password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found = _opened(_KEYS, store, password)
    if found.key is None or found.cert is None:
        raise store.refused("contains no private key with its certificate")
    chain = [found.cert.certificate, *(each.certificate for each in found.additional_certs)]
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Given(_KEYS, b"".join(map(_pem, chain))), Given(_KEYS, key)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text


def _java_authorities(store: Given, password: Secret | None) -> Given:
    entries = _java_entries(_TRUST, store, password)
    trusted = [each.chain[0] for each in entries if each.key is None]
    if not trusted:
        raise store.refused("contains no certificate that it trusts")
    return Given(_TRUST, b"".join(jks.pem("CERTIFICATE", each) for each in trusted))


def _java_identity(store: Given, password: Secret | None, key_password: Secret | None) -> tuple[Given, Given]:
    entries = [each for each in _java_entries(_KEYS, store, password) if each.key is not None]
    if len(entries) != 1 or not entries[0].chain:
        raise store.refused(f"contains {len(entries)} private keys with their certificates; it must be one")
    opens = key_password or password
    if opens is None:
        raise store.refused("has a protected key: set kafka.ssl.keystore.password")
    try:
        key = jks.unprotected(entries[0].key or b"", text_of(opens))
    except jks.JksError as error:
        raise store.refused(str(error)) from None
    chain = b"".join(jks.pem("CERTIFICATE", each) for each in entries[0].chain)
    return Given(_KEYS, chain), Given(_KEYS, jks.pem("PRIVATE KEY", key))


def _java_entries(option: str, store: Given, password: Secret | None) -> list[jks.Entry]:
    try:
        return jks.read(store.text, None if password is None else text_of(password))
    except jks.JksError as error:
        raise store.refused(f"{error} ({option.replace('location', 'password')})") from None


def _opened(option: str, store: Given, password: Secret | None) -> Any:
    if not store.text.startswith(_DER):
        raise store.refused("is neither a PKCS12 nor a JKS store")
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise OptionsError(
            f"{option}: reading the PKCS12 store {store.where} needs the Python package cryptography on the driver and "
            "on every executor: pip install 'pyspark-kafka-eos[pkcs12]', or export the store as PEM; nothing was "
            "opened",
            {"file": store.path},
        ) from None
    try:
        return load_pkcs12(store.text, None if password is None else text_of(password).encode())
    except ValueError as error:
        # The library's reason does not tell a wrong password from a damaged file.
        raise store.refused(f"cannot be opened with {option.replace('location', 'password')}") from error
