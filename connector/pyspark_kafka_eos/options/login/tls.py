"""TLS: the Java client's and librdkafka's names for it, as the names that
`pyspark_kafka_eos.client.net.credentials.tls` reads.

Owns: which names of TLS exist, how they combine, the names of cipher suites.
Does not know: whether a file exists, or a password is right.
Invariants:
- No message contains a secret, and a secret leaves this module only as a `Secret`.
- Of two names for one thing one is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_eos.model import Secret
from pyspark_kafka_eos.model.references import secret

Value = str | bool | Secret | None

TLS_NAMES: dict[str, str] = {
    "ssl.ca.location": "PEM file of the authorities to trust (default: this machine's)",
    "ssl.ca.pem": "librdkafka's name of kafka.ssl.truststore.certificates",
    "ssl.certificate.location": "PEM file of this client's certificate chain",
    "ssl.certificate.pem": "librdkafka's name of kafka.ssl.keystore.certificate.chain",
    "ssl.key.location": "PEM file of this client's private key",
    "ssl.key.pem": "librdkafka's name of kafka.ssl.keystore.key",
    "ssl.key.password": "opens the private key, where a JKS store has another password for it, too",
    "ssl.crl.location": "PEM file of revoked certificates; the broker's own certificate is looked up in it",
    "ssl.truststore.location": "with kafka.ssl.truststore.type=PEM the same as kafka.ssl.ca.location; or a store",
    "ssl.truststore.type": "PEM, PKCS12 (needs the extra pkcs12) or JKS (default, as Java's); the file's content decides between the last two",
    "ssl.truststore.password": "opens the trust store",
    "ssl.truststore.certificates": "the authorities to trust, in PEM, instead of a file",
    "ssl.keystore.location": "with kafka.ssl.keystore.type=PEM: key and certificate chain in one file; or a store",
    "ssl.keystore.type": "PEM, PKCS12 (needs the extra pkcs12) or JKS (default, as Java's); the file's content decides between the last two",
    "ssl.keystore.password": "opens the key store",
    "ssl.keystore.key": "this client's private key in PEM, instead of a file",
    "ssl.keystore.certificate.chain": "this client's certificate chain in PEM, instead of a file",
    "ssl.endpoint.identification.algorithm": "https (default) checks the broker's host name, empty does not",
    "ssl.protocol": "the newest version to use: TLSv1.2, or TLSv1.3 (default; also TLS)",
    "ssl.enabled.protocols": "the versions to use: TLSv1.2, TLSv1.3 or both (default)",
    "ssl.cipher.suites": "the cipher suites to use, by Java's or OpenSSL's names (default: OpenSSL's)",
}
"""Every name of TLS and its meaning for the documentation."""

TLS_SECRETS = frozenset(
    (
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)

_STORES = ("PKCS12", "JKS")
_VERSIONS = ("TLSv1.2", "TLSv1.3")

_AUTHORITIES = ("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates", "ssl.ca.pem")
_CERTIFICATES = (
    "ssl.keystore.location", "ssl.certificate.location", "ssl.keystore.certificate.chain", "ssl.certificate.pem",
)  # fmt: skip
_KEYS = ("ssl.keystore.location", "ssl.key.location", "ssl.keystore.key", "ssl.key.pem")


def _suites() -> dict[str, str]:
    """OpenSSL's name of each cipher suite by Java's (the one of the registry of IANA)."""
    found = {f"TLS_{each}": f"TLS_{each}" for each in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384",
                                                       "CHACHA20_POLY1305_SHA256")}  # fmt: skip
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA"):
        before = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
        java = f"TLS_{exchange}_WITH_"
        found[java + "AES_128_GCM_SHA256"] = before + "AES128-GCM-SHA256"
        found[java + "AES_256_GCM_SHA384"] = before + "AES256-GCM-SHA384"
        found[java + "AES_128_CBC_SHA256"] = before + "AES128-SHA256"
        found[java + "AES_128_CBC_SHA"] = before + "AES128-SHA"
        found[java + "AES_256_CBC_SHA"] = before + "AES256-SHA"
        if exchange != "RSA":
            found[java + "CHACHA20_POLY1305_SHA256"] = before + "CHACHA20-POLY1305"
        # Only these two have the larger hash with CBC.
        larger = "SHA384" if exchange.startswith("ECDHE") else "SHA256"
        found[f"{java}AES_256_CBC_{larger}"] = f"{before}AES256-{larger}"
    return found


_SUITES = _suites()


def translate_tls(given: Mapping[str, str], problems: list[str]) -> dict[str, Value]:
    """The pairs for the names of TLS, without their `kafka.` prefix. Every unusable name or combination adds a line to
    `problems`.
    """
    pairs: dict[str, Value] = {}
    kinds = {store: _kind(given, store, problems) for store in ("truststore", "keystore")}
    for sources in (_AUTHORITIES, _CERTIFICATES, _KEYS):
        found = [name for name in sources if name in given]
        if len(found) > 1:
            problems.append(f"kafka.{found[0]} and kafka.{found[1]} are both given: keep one of them")
    _translate_authorities(given, kinds["truststore"], pairs)
    _translate_identity(given, kinds["keystore"], pairs, problems)
    if "ssl.crl.location" in given:
        pairs["ssl_crlfile"] = given["ssl.crl.location"]
    check = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if check not in ("https", "", "none"):
        problems.append("kafka.ssl.endpoint.identification.algorithm must be https, or empty to check no host name")
    pairs["ssl_check_hostname"] = check == "https"
    _translate_limits(given, pairs, problems)
    return pairs


def _kind(given: Mapping[str, str], store: str, problems: list[str]) -> str:
    """PEM, PKCS12 or JKS."""
    location, name, password = (f"ssl.{store}.{each}" for each in ("location", "type", "password"))
    kind = given.get(name, "JKS" if location in given else "PEM").upper()
    if kind not in ("PEM", *_STORES):
        problems.append(f"kafka.{name} must be PEM, PKCS12 or JKS: another kind of store cannot be read without Java")
    elif kind == "PEM" and password in given:
        opens = "; kafka.ssl.key.password opens its key" if store == "keystore" else ""
        problems.append(f"kafka.{password} is given, but a PEM {store} has no password{opens}: leave it out")
    elif kind in _STORES and location not in given:
        problems.append(f"kafka.{name}={kind} is given without kafka.{location}: name the store")
    return kind


def _translate_authorities(given: Mapping[str, str], kind: str, pairs: dict[str, Value]) -> None:
    if kind in _STORES:
        pairs["ssl_truststore"] = given.get("ssl.truststore.location")
        if "ssl.truststore.password" in given:
            pairs["ssl_truststore_password"] = secret(given["ssl.truststore.password"])
        return
    for name in _AUTHORITIES:
        if name in given:
            pairs["ssl_cafile" if name.endswith("location") else "ssl_cadata"] = given[name]


def _translate_identity(given: Mapping[str, str], kind: str, pairs: dict[str, Value], problems: list[str]) -> None:
    if kind in _STORES:
        pairs["ssl_keystore"] = given.get("ssl.keystore.location")
        password = given.get("ssl.keystore.password")
        if password is not None:
            pairs["ssl_keystore_password"] = secret(password)
        if kind == "JKS" and "ssl.key.password" in given:
            pairs["ssl_password"] = secret(given["ssl.key.password"])
        elif given.get("ssl.key.password", password) != password:
            problems.append(
                "kafka.ssl.key.password differs from kafka.ssl.keystore.password: a PKCS12 store has one "
                "password, leave the first out"
            )
        return
    certificate = next((name for name in _CERTIFICATES if name in given), None)
    key = next((name for name in _KEYS if name in given), None)
    if certificate is not None:
        as_file = certificate.endswith("location")
        pairs["ssl_certfile" if as_file else "ssl_certdata"] = given[certificate]
        if key is None and as_file:
            # One PEM file may hold both, as Java's PEM key store does.
            key = certificate
        if key is None:
            problems.append(f"kafka.{certificate} is given without a key: set kafka.ssl.keystore.key")
    elif key is not None:
        wanted = (
            "kafka.ssl.certificate.location: name both files" if key == "ssl.key.location"
            else "a certificate: set kafka.ssl.keystore.certificate.chain"
        )  # fmt: skip
        problems.append(f"kafka.{key} is given without {wanted}")
    if key is not None and key.endswith("location"):
        pairs["ssl_keyfile"] = given[key]
    elif key is not None:
        pairs["ssl_keydata"] = secret(given[key])
    if "ssl.key.password" in given:
        pairs["ssl_password"] = secret(given["ssl.key.password"])
        if key is None:
            problems.append("kafka.ssl.key.password is given without a key: set kafka.ssl.key.location")


def _translate_limits(given: Mapping[str, str], pairs: dict[str, Value], problems: list[str]) -> None:
    """Versions and cipher suites."""
    versions = [each.strip() for each in given.get("ssl.enabled.protocols", ",".join(_VERSIONS)).split(",")]
    newest = given.get("ssl.protocol", "TLS")
    if not set(versions) <= set(_VERSIONS):
        problems.append("kafka.ssl.enabled.protocols must list TLSv1.2, TLSv1.3 or both: older ones are not safe")
        return
    if newest not in ("TLS", *_VERSIONS):
        problems.append("kafka.ssl.protocol must be TLS, TLSv1.2 or TLSv1.3: older ones are not safe")
        return
    allowed = {each for each in versions if newest != "TLSv1.2" or each == "TLSv1.2"}
    if not allowed:
        problems.append(
            "kafka.ssl.protocol=TLSv1.2 leaves no version of kafka.ssl.enabled.protocols=TLSv1.3: leave one of them out"
        )
        return
    suites = _read_suites(given, problems)
    if suites:
        pairs["ssl_ciphers"] = ":".join(suites)
        of_suites = {"TLSv1.3" if each.startswith("TLS_") else "TLSv1.2" for each in suites}
        if not allowed & of_suites:
            problems.append(
                f"kafka.ssl.cipher.suites lists none of {', '.join(sorted(allowed))}, the versions that are "
                "left: add suites of it, or allow another version"
            )
            return
        allowed &= of_suites
    if len(allowed) == 1:
        pairs["ssl_versions"] = next(iter(allowed))


def _read_suites(given: Mapping[str, str], problems: list[str]) -> list[str]:
    """OpenSSL's names of the suites, in the order given."""
    found = []
    text = given.get("ssl.cipher.suites", "").replace(":", ",")
    for name in filter(None, map(str.strip, text.split(","))):
        suite = _SUITES.get(name.upper(), name if name in _SUITES.values() else None)
        if suite is None:
            problems.append(
                f"kafka.ssl.cipher.suites: {name[:80]!r} is not known; give suites of TLS 1.2 and 1.3 by Java's "
                "names, such as TLS_AES_256_GCM_SHA384, or OpenSSL's"
            )
        else:
            found.append(suite)
    return found
