"""PKCS12 stores, as Java makes them since version 9, turned into PEM.

Owns: reading a store by `cryptography`, which is an extra of this package, and what is wrong with one.
Does not know: TLS.
Invariants: a key that comes out of a store is in memory only.
"""

from __future__ import annotations

from typing import Any

from connector.client import files
from connector.client.files import Given
from connector.errors import OptionsError
from connector.model import Secret

_TRUST = "kafka.ssl.truststore.location"
_KEYS = "kafka.ssl.keystore.location"
_JKS = b"\xfe\xed\xfe\xed"
_DER = b"\x30"


def kind_of(text: bytes) -> str:
    """What a file that is no PEM is, in words; empty where that is not known."""
    if text.startswith(_JKS):
        return "a Java key store (JKS)"
    return "binary (DER or PKCS12)" if text.startswith(_DER) else ""


def authorities(name: str, password: Secret | None) -> Given:
    """The certificates of a trust store."""
    store, found = _opened(_TRUST, name, password)
    certificates = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    if not certificates:
        raise store.refused("contains no certificate")
    return Given(_TRUST, b"".join(map(_pem, certificates)))


def identity(name: str, password: Secret | None) -> tuple[Given, Given]:
    """The certificate chain and the key of a key store."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store, found = _opened(_KEYS, name, password)
    if found.key is None or found.cert is None:
        raise store.refused("contains no private key with its certificate")
    chain = [found.cert.certificate, *(each.certificate for each in found.additional_certs)]
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Given(_KEYS, b"".join(map(_pem, chain))), Given(_KEYS, key)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text


def _opened(option: str, name: str, password: Secret | None) -> tuple[Given, Any]:
    store = files.read(option, name)
    if not store.text.startswith(_DER):
        raise store.refused(
            f"is no PKCS12 store{'; it is a JKS store' if store.text.startswith(_JKS) else ''}"
        )
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise OptionsError(
            f"{option}: reading the PKCS12 store {store.where} needs the Python package cryptography on the driver and "
            "on every executor: pip install 'pyspark-kafka-eos[pkcs12]', or export the store as PEM; nothing was "
            "opened",
            {"file": name},
        ) from None
    try:
        return store, load_pkcs12(store.text, None if password is None else password.reveal().encode())
    except ValueError as error:
        # The library's reason does not tell a wrong password from a damaged file.
        raise store.refused(f"cannot be opened with {option.replace('location', 'password')}") from error
