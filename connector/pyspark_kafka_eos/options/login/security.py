"""Security: which protocol has which names, and SASL under the Java client's and librdkafka's names, as the network
library's.

Owns: which security names exist, how they combine, the reading of `sasl.jaas.config`. `options.tls` has those of TLS.
Does not know: whether a file exists or a password is right. The connecting process reads the files, on a
cluster often on another machine.
Invariants:
- No message contains a secret, and a secret leaves this module only as a `Secret`.
- A security name without effect is refused, because its author believes that it protects something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark_kafka_eos.model.references import maybe_secret, secret
from pyspark_kafka_eos.options.login import oauth
from pyspark_kafka_eos.options.login.jaas import parse_jaas
from pyspark_kafka_eos.options.login.kerberos import KERBEROS_NAMES, translate_kerberos
from pyspark_kafka_eos.options.login.tls import TLS_NAMES, TLS_SECRETS, Value, translate_tls

Pairs = tuple[tuple[str, Value], ...]


SECURITY_NAMES: dict[str, str] = {
    "security.protocol": "PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or GSSAPI (needs the extra kerberos)",
    "sasl.mechanisms": "librdkafka's name of kafka.sasl.mechanism",
    "sasl.jaas.config": "PlainLoginModule, ScramLoginModule (also with tokenauth), OAuthBearerLoginModule, IAMLoginModule or Krb5LoginModule with its options, as for Java",
    "sasl.username": "user for PLAIN and SCRAM, instead of kafka.sasl.jaas.config",
    "sasl.password": "password for PLAIN and SCRAM, instead of kafka.sasl.jaas.config",
    **KERBEROS_NAMES,
    **TLS_NAMES,
    **oauth.OAUTH_NAMES,
}
"""Every name that `translate_security` reads, and its meaning for the documentation."""

SECRET_NAMES = frozenset(("sasl.jaas.config", "sasl.password")) | TLS_SECRETS | oauth.OAUTH_SECRETS

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULE_OF_MECHANISM = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_TOKENAUTH = "tokenauth"
"""Java's option for user and password that are the id and the HMAC of a delegation token (KIP-48)."""

_A_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")
"""Anything else may be a secret in the wrong place, and is not shown. Source: RFC 4422, 3.1."""

_MECHANISMS = (*_MODULE_OF_MECHANISM, "GSSAPI", *oauth.MECHANISMS)


def translate_security(given: Mapping[str, str], problems: list[str]) -> Pairs:
    """Translate security names, without their `kafka.` prefix, to the network library's, as sorted pairs.

    Empty where `given` is. Every unusable name or combination adds a line to `problems`; if any was added,
    the returned pairs must not be used.
    """
    if not given:
        return ()
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        problems.append(f"kafka.security.protocol must be one of {', '.join(_PROTOCOLS)}")
        return ()
    pairs: dict[str, Value] = {"security_protocol": protocol}
    by_sasl = ("SASL_SSL", "SASL_PLAINTEXT")
    for prefixes, used_by in ((("ssl.",), ("SSL", "SASL_SSL")), (("sasl.", "https."), by_sasl)):
        names = sorted(name for name in given if name.startswith(prefixes))
        if names and protocol not in used_by:
            listed = ", ".join(f"kafka.{name}" for name in names)
            problems.append(
                f"{listed} would have no effect: kafka.security.protocol is {protocol}; "
                f"set it to {' or '.join(used_by)}"
            )
    if protocol in ("SSL", "SASL_SSL"):
        pairs.update(translate_tls(given, problems))
    if protocol.startswith("SASL_"):
        pairs.update(_sasl(given, problems))
    return tuple(sorted(pairs.items()))


def _what_is_wrong(mechanism: str) -> str:
    if not mechanism:
        return "kafka.sasl.mechanism is missing"
    if not _A_MECHANISM.fullmatch(mechanism):
        return "kafka.sasl.mechanism is no name of a mechanism"
    return f"kafka.sasl.mechanism is {mechanism}, which is not supported"


def _sasl(given: Mapping[str, str], problems: list[str]) -> dict[str, Value]:
    """Mechanism and credentials."""
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if mechanism not in _MECHANISMS:
        problems.append(f"{_what_is_wrong(mechanism)}; it must be one of {', '.join(_MECHANISMS)}")
        return {}
    if mechanism in oauth.MECHANISMS:
        return _token(given, mechanism, problems)
    strange = sorted(name for name in given if name in oauth.OAUTH_NAMES)
    if strange:
        listed = ", ".join(f"kafka.{name}" for name in strange)
        problems.append(f"{listed} would have no effect: kafka.sasl.mechanism is {mechanism}; leave it out")
    if mechanism == "GSSAPI":
        return translate_kerberos(given, problems)
    for name in KERBEROS_NAMES:
        if name in given:
            problems.append(f"kafka.{name} has no meaning for {mechanism}: it belongs to GSSAPI")
    credentials = _credentials(given, mechanism, problems)
    if credentials is None:
        return {}
    username, password, by_token = credentials
    pairs: dict[str, Value] = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": maybe_secret(username),
        "sasl_plain_password": secret(password),
    }
    return pairs | {"sasl_tokenauth": True} if by_token else pairs


def _token(given: Mapping[str, str], mechanism: str, problems: list[str]) -> dict[str, Value]:
    """A login by token."""
    for name in ("sasl.username", "sasl.password", *KERBEROS_NAMES):
        if name in given:
            problems.append(f"kafka.{name} has no meaning for {mechanism}: leave it out")
    jaas = parse_jaas(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else None
    if jaas is None and "sasl.jaas.config" in given:
        problems.append("kafka.sasl.jaas.config cannot be read (it is not repeated here)")
    return {
        "sasl_mechanism": "OAUTHBEARER",
        **oauth.translate_oauth(given, mechanism, jaas, problems),
    }


_Credentials = tuple[str, str, bool]


def _credentials(given: Mapping[str, str], mechanism: str, problems: list[str]) -> _Credentials | None:
    """User name, password, and whether they are a delegation token's, from either spelling; None after a line in
    `problems`.
    """
    plain = [name for name in ("sasl.username", "sasl.password") if name in given]
    if "sasl.jaas.config" in given:
        if plain:
            problems.append(f"kafka.sasl.jaas.config and kafka.{plain[0]} are both given: keep one spelling")
            return None
        return _read_jaas(given["sasl.jaas.config"], mechanism, problems)
    if len(plain) < 2 or not given["sasl.username"]:
        problems.append(
            f"{mechanism} needs a user: set kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password"
        )
        return None
    return given["sasl.username"], given["sasl.password"], False


def _read_jaas(text: str, mechanism: str, problems: list[str]) -> _Credentials | None:
    """Read Java's login module line. No message repeats any part of `text` but a well-formed class name: it
    holds a secret."""
    wanted = _MODULE_OF_MECHANISM[mechanism]
    form = f'... .{wanted} required username="..." password="...";'
    jaas = parse_jaas(text)
    if jaas is None:
        problems.append(f"kafka.sasl.jaas.config cannot be read (it is not repeated here): it must be {form}")
        return None
    if jaas.short != wanted:
        problems.append(f"kafka.sasl.jaas.config names {jaas.named}, but {mechanism} needs {form}")
        return None
    found = jaas.options
    if not found.get("username") or "password" not in found:
        problems.append(f"kafka.sasl.jaas.config lacks username or password: it must be {form}")
        return None
    scram = wanted == "ScramLoginModule"
    by_token = found.get(_TOKENAUTH, "").lower() == "true"
    if by_token and not scram:
        problems.append(
            f"tokenauth of kafka.sasl.jaas.config has no meaning for {mechanism}: a delegation token logs in by SCRAM-SHA-256 or "
            "SCRAM-SHA-512"
        )
        return None
    if not set(found) <= {"username", "password", *((_TOKENAUTH,) if scram else ())}:
        problems.append(
            "kafka.sasl.jaas.config has more than username and password (and tokenauth for SCRAM); nothing else has a meaning here: "
            "leave the rest out"
        )
        return None
    return found["username"], found["password"], by_token
