"""The row of an option that is used, and the kinds of value that both sides of a query use.

Owns: the form of a row of the tables in `sink`, `source`, `ledger` and, for names that are used, `kafka`.
Does not know: which options exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from pyspark_kafka_eos.options.values import Kind, whole_number


@dataclass(frozen=True)
class Use:
    """The name is used: its value becomes `field` of the options or of the client's settings; None where it is only
    checked.
    `default`: in words, where the field's own default does not express it; None shows the field's. `without_effect`:
    the reason, where the option is accepted for migrating jobs and has no effect; such a use is reported.
    """

    field: str | None
    kind: Kind
    default: str | None
    meaning: str
    without_effect: str | None = None


def unused(kind: Kind, why: str) -> Use:
    """The row of an option that is accepted for migrating jobs and has no effect."""
    return Use(None, kind, "none", f"accepted for migrating jobs; {why}", why)


_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")


def is_name(text: str, longest: int) -> bool:
    """Whether a text is a name under Kafka's rule for topics, of at most `longest` characters."""
    # Kafka refuses . and .. because topics are directories on the broker.
    return len(text) <= longest and _NAME.fullmatch(text) is not None


def name_kind(longest: int) -> Kind:
    """A kind for names under Kafka's rule for topics, of at most `longest` characters."""
    legal = BeforeValidator(lambda text: text if is_name(text, longest) else None)
    expected = f"1 to {longest} of the characters A-Z a-z 0-9 . _ - and not . or .. (Kafka's rule for names)"
    return Kind(expected, TypeAdapter(Annotated[str, legal]))


TOPIC = name_kind(249)
POSITIVE = whole_number("a whole number", 1, 2**63 - 1)

UNPACKED = Use(
    "max_unpacked_bytes", whole_number("a number of bytes", 1, 2**31 - 1), None,
    "most bytes before compression: of a record that is written, of a batch of records that is read; reading takes up to three times "
    "as much memory",
)  # fmt: skip
"""max.unpacked.bytes of both sides: what one writes the other has to read."""


SERVICE_CREDENTIAL = {
    "databricks.serviceCredential": "log in with kafka.sasl.mechanism=OAUTHBEARER and a function of your own that gets the token "
    "(docs/security.md)",
}
"""Databricks' name for a login that its own runtime makes."""
