"""Secrets that an option names in place of its text: where the process that connects finds them.

Owns: the grammar `${env:NAME}`, `${file:PATH}`, `${file:PATH:KEY}`, `${directory:PATH:NAME}`, as of Kafka's config
providers (KIP-297, KIP-421, KIP-887).
Does not know: whether the variable or the file exists.
Invariants: only a whole value is a reference. A text that merely contains one is a secret itself.
"""

from __future__ import annotations

import re

from pyspark_kafka_eos.model.values import Secret, SecretReference

_ENVIRONMENT = re.compile(r"\$\{env::?([A-Za-z_]\w*)\}")
_FILE = re.compile(r"\$\{file:([^:{}]+)(?::([^:{}]+))?\}")
_DIRECTORY = re.compile(r"\$\{directory:([^:{}]+):([^:/{}]+)\}")


def reference(text: str) -> SecretReference | None:
    """What the text refers to; None where it is no reference."""
    if found := _ENVIRONMENT.fullmatch(text):
        return SecretReference("env", found[1])
    if found := _FILE.fullmatch(text):
        return SecretReference("file", found[1], found[2])
    if found := _DIRECTORY.fullmatch(text):
        return SecretReference("file", f"{found[1].rstrip('/')}/{found[2]}")
    return None


def secret(text: str) -> Secret:
    """The value of an option that is a secret."""
    return reference(text) or Secret(text)


def maybe_secret(text: str) -> str | Secret:
    """The value of an option that is no secret, but may stand where secrets are kept, such as a user's name."""
    return reference(text) or text


def names_a_secret(text: str) -> bool:
    """Whether the text is a reference or has one within, as a JAAS text has."""
    return any(each.search(text) for each in (_ENVIRONMENT, _FILE, _DIRECTORY))
