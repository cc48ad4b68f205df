"""GSSAPI under the Java client's and librdkafka's names, as pairs for the client.

Owns: which names Kerberos has, the reading of `Krb5LoginModule`.
Does not know: tickets, files, the package that a login needs.
Invariants: a name without effect is refused; nothing of a JAAS text is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_eos.model import Secret
from pyspark_kafka_eos.options.login.jaas import Jaas, parse_jaas

KERBEROS_NAMES: dict[str, str] = {
    "sasl.kerberos.service.name": "the brokers' Kerberos service for GSSAPI (default kafka)",
    "sasl.kerberos.principal": "whose tickets log in (GSSAPI); Java has it in kafka.sasl.jaas.config",
    "sasl.kerberos.keytab": "file with the keys of that principal; without it tickets come from the ticket cache",
}

_MODULE = "Krb5LoginModule"
_USED = {"useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName"}
_SAME = {"storeKey", "renewTGT", "doNotPrompt", "refreshKrb5Config", "debug", "isInitiator"}
"""Java's own, which change nothing of which tickets are used."""

_FORM = (
    f'com.sun.security.auth.module.{_MODULE} required useKeyTab=true keyTab="/file" principal="user@REALM"; '
    f"or ... {_MODULE} required useTicketCache=true;"
)


def translate_kerberos(given: Mapping[str, str], problems: list[str]) -> dict[str, str | bool | Secret | None]:
    """The pairs of a login by Kerberos; every unusable name adds a line to `problems`."""
    for name in ("sasl.username", "sasl.password"):
        if name in given:
            problems.append(
                f"kafka.{name} has no meaning for GSSAPI: set kafka.sasl.kerberos.principal and "
                "kafka.sasl.kerberos.keytab, or run kinit on every machine"
            )
    found = {
        "principal": given.get("sasl.kerberos.principal"),
        "keytab": given.get("sasl.kerberos.keytab"),
        "cache": None,
    }
    service = given.get("sasl.kerberos.service.name")
    if "sasl.jaas.config" in given:
        both = [name for name in ("principal", "keytab") if found[name] is not None]
        jaas = parse_jaas(given["sasl.jaas.config"])
        if both:
            problems.append(
                f"kafka.sasl.jaas.config and kafka.sasl.kerberos.{both[0]} are both given: keep one spelling"
            )
        elif jaas is None or jaas.short != _MODULE:
            problems.append(
                f"kafka.sasl.jaas.config cannot be used for GSSAPI (it is not repeated here): it must be {_FORM}"
            )
        else:
            found = _read(jaas, problems)
            named = jaas.options.get("serviceName")
            if service is not None and named not in (None, service):
                problems.append(
                    "kafka.sasl.kerberos.service.name and serviceName of kafka.sasl.jaas.config differ: keep one"
                )
            service = service or named
    if found["keytab"] is not None and not found["principal"]:
        problems.append(
            "a keytab needs the principal whose keys are used: set kafka.sasl.kerberos.principal, "
            "or principal of kafka.sasl.jaas.config"
        )
    pairs: dict[str, str | bool | Secret | None] = {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": service or "kafka",
    }
    return pairs | {f"sasl_kerberos_{name}": value for name, value in found.items() if value is not None}


def _read(jaas: Jaas, problems: list[str]) -> dict[str, str | None]:
    options = jaas.options
    if not set(options) <= _USED | _SAME:
        known = ", ".join(sorted(_USED | _SAME))
        problems.append(
            f"kafka.sasl.jaas.config has an option of {_MODULE} that has no meaning here; known are {known}"
        )
    by_keytab, by_cache = (options.get(name, "").lower() == "true" for name in ("useKeyTab", "useTicketCache"))
    for used, name, flag in ((by_keytab, "keyTab", "useKeyTab"), (by_cache, "ticketCache", "useTicketCache")):
        if name in options and not used:
            problems.append(f"{name} of kafka.sasl.jaas.config needs {flag}=true")
    if by_keytab and "keyTab" not in options:
        problems.append("useKeyTab of kafka.sasl.jaas.config needs keyTab with the file")
    if not by_keytab and not by_cache:
        problems.append(f"kafka.sasl.jaas.config asks for a password: it must be {_FORM}")
    return {
        "principal": options.get("principal"),
        "keytab": options.get("keyTab") if by_keytab else None,
        # Java looks into the cache first; a keytab alone gives the same tickets.
        "cache": options.get("ticketCache") if by_cache and not by_keytab else None,
    }
