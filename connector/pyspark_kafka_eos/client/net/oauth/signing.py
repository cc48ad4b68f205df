"""Signatures of assertions, by PyJWT and `cryptography`, which are an extra of this package.

Owns: opening the key, RS256 and ES256 (RFC 7518, 3.3 and 3.4).
Does not know: claims.
Invariants: no message contains a part of a key.
"""

from __future__ import annotations

import base64
import importlib.util
from typing import Any

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.credentials.files import Given


def check() -> None:
    """OptionsError where a package is missing."""
    if not all(importlib.util.find_spec(name) for name in ("jwt", "cryptography")):
        raise OptionsError(
            "kafka.sasl.oauthbearer.assertion.private.key.*: signing an assertion needs the Python packages PyJWT and cryptography on "
            "the driver and on every executor: pip install 'pyspark-kafka-eos[oauth]', or give a signed assertion as "
            "kafka.sasl.oauthbearer.assertion.file; nothing was opened"
        )


def signed(algorithm: str, key: Given, password: str | None, unsigned: bytes) -> str:
    """The token with its signature. `algorithm`: RS256 or ES256. OptionsError where the key cannot be used."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    opened = _opened(key, password)
    fits = (
        isinstance(opened, rsa.RSAPrivateKey)
        if algorithm == "RS256"
        else (isinstance(opened, ec.EllipticCurvePrivateKey) and isinstance(opened.curve, ec.SECP256R1))
    )
    if not fits:
        kind = "RSA" if algorithm == "RS256" else "the curve P-256"
        raise key.refused(f"is no key of {kind}, which {algorithm} needs")
    signature = jwt.get_algorithm_by_name(algorithm).sign(unsigned, opened)
    return f"{unsigned.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _opened(key: Given, password: str | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(key.text, None if password is None else password.encode())
    except TypeError:
        wrong = "is encrypted: set kafka.sasl.oauthbearer.assertion.private.key.passphrase"
        raise key.refused(wrong if password is None else "is not encrypted: leave its passphrase out") from None
    except (ValueError, UnsupportedAlgorithm):
        wrong = "with its passphrase" if password is not None else "as a private key in PEM"
        raise key.refused(f"cannot be opened {wrong}") from None
