"""Security: which protocol has which names, and SASL under the Java client's and librdkafka's names, as the network library's.

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

from connector.model import Secret
from connector.options.tls import TLS_NAMES, TLS_SECRETS, Value, translate_tls

Pairs = tuple[tuple[str, Value], ...]


SECURITY_NAMES: dict[str, str] = {
    "security.protocol": "PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or GSSAPI (needs the Python package gssapi)",
    "sasl.mechanisms": "librdkafka's name of kafka.sasl.mechanism",
    "sasl.jaas.config": "PlainLoginModule or ScramLoginModule with username and password, as for Java",
    "sasl.username": "user for PLAIN and SCRAM, instead of kafka.sasl.jaas.config",
    "sasl.password": "password for PLAIN and SCRAM, instead of kafka.sasl.jaas.config",
    "sasl.kerberos.service.name": "the brokers' Kerberos service for GSSAPI (default kafka)",
    **TLS_NAMES,
}
"""Every name that `translate_security` reads, and its meaning for the documentation."""

SECRET_NAMES = frozenset(("sasl.jaas.config", "sasl.password")) | TLS_SECRETS

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULE_OF_MECHANISM = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_MECHANISMS = (*_MODULE_OF_MECHANISM, "GSSAPI")
_NOT_YET = ("OAUTHBEARER", "AWS_MSK_IAM")

# Java reads the text with StreamTokenizer: a class, a flag, then name=value pairs, quoted or not, and a
# semicolon.
_JAAS_WORD = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;="']+)"""
_JAAS_OPTION = rf"\s+{_JAAS_WORD}\s*=\s*{_JAAS_WORD}"
_JAAS = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)((?:{_JAAS_OPTION})*)\s*;\s*",
    re.IGNORECASE | re.DOTALL,
)
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


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
    for prefix, used_by in (("ssl.", ("SSL", "SASL_SSL")), ("sasl.", ("SASL_SSL", "SASL_PLAINTEXT"))):
        names = sorted(name for name in given if name.startswith(prefix))
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


def _sasl(given: Mapping[str, str], problems: list[str]) -> dict[str, Value]:
    """Mechanism and credentials."""
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if mechanism not in _MECHANISMS:
        found = f"{mechanism} is not supported yet" if mechanism in _NOT_YET else "missing or not known"
        problems.append(f"kafka.sasl.mechanism: {found}; it must be one of {', '.join(_MECHANISMS)}")
        return {}
    if mechanism == "GSSAPI":
        for name in ("sasl.jaas.config", "sasl.username", "sasl.password"):
            if name in given:
                problems.append(
                    f"kafka.{name} has no meaning for GSSAPI here: the ticket is taken from the ticket "
                    "cache; run kinit on every machine and set kafka.sasl.kerberos.service.name"
                )
        return {
            "sasl_mechanism": mechanism,
            "sasl_kerberos_service_name": given.get("sasl.kerberos.service.name", "kafka"),
        }
    if "sasl.kerberos.service.name" in given:
        problems.append(
            f"kafka.sasl.kerberos.service.name has no meaning for {mechanism}: it belongs to GSSAPI"
        )
    credentials = _credentials(given, mechanism, problems)
    if credentials is None:
        return {}
    username, password = credentials
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": Secret(password),
    }


def _credentials(given: Mapping[str, str], mechanism: str, problems: list[str]) -> tuple[str, str] | None:
    """User name and password from either spelling, or None after a line in `problems`."""
    plain = [name for name in ("sasl.username", "sasl.password") if name in given]
    if "sasl.jaas.config" in given:
        if plain:
            problems.append(f"kafka.sasl.jaas.config and kafka.{plain[0]} are both given: keep one spelling")
            return None
        return _read_jaas(given["sasl.jaas.config"], mechanism, problems)
    if len(plain) < 2 or not given["sasl.username"]:
        problems.append(
            f"{mechanism} needs a user: set kafka.sasl.jaas.config, or kafka.sasl.username "
            "and kafka.sasl.password"
        )
        return None
    return given["sasl.username"], given["sasl.password"]


def _read_jaas(text: str, mechanism: str, problems: list[str]) -> tuple[str, str] | None:
    """Read Java's login module line. No message repeats any part of `text` but a well-formed class name: it
    holds a secret."""
    wanted = _MODULE_OF_MECHANISM[mechanism]
    form = f'... .{wanted} required username="..." password="...";'
    match = _JAAS.fullmatch(text)
    if match is None:
        problems.append(f"kafka.sasl.jaas.config cannot be read (it is not repeated here): it must be {form}")
        return None
    # A shaded class (kafkashaded.org.apache.kafka...) is the same module.
    module = match[1].rpartition(".")[2]
    if module != wanted:
        named = match[1] if module.endswith("LoginModule") else "no login module"
        problems.append(f"kafka.sasl.jaas.config names {named}, but {mechanism} needs {form}")
        return None
    found = {_unquote(name): _unquote(value) for name, value in re.findall(_JAAS_OPTION, match[2], re.DOTALL)}
    if not found.get("username") or "password" not in found:
        problems.append(f"kafka.sasl.jaas.config lacks username or password: it must be {form}")
        return None
    if set(found) != {"username", "password"}:
        problems.append(
            "kafka.sasl.jaas.config has more than username and password; only these two have a meaning here "
            "(delegation tokens are not supported yet); leave the rest out"
        )
        return None
    return found["username"], found["password"]


def _unquote(word: str) -> str:
    """One StreamTokenizer word: inside quotes a backslash begins an escape, as in Java."""
    if word[0] not in "\"'":
        return word

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", plain, word[1:-1], flags=re.DOTALL)
