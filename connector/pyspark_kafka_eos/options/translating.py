"""A mapping of `kafka.*` names, by the table of `kafka`: the fields that the user set, the client's settings, the
problems.

Owns: the judgement of one name on one side, and the words about a name that the side does not have.
Does not know: Spark's own options, how TLS and SASL names combine (`security`), sockets.
Invariants:
- No message contains the value of a name that can hold a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kafka_core.similar import did_you_mean
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options.kafka import (
    ALL_NAMES,
    CONSUMER,
    PRODUCER,
    ROWS,
    Ignore,
    Only,
    Refuse,
    Side,
)
from pyspark_kafka_eos.options.kinds import Use
from pyspark_kafka_eos.options.login.security import SECURITY_NAMES, translate_security
from pyspark_kafka_eos.options.values import LARGEST_SHOWN_VALUE

CLIENT_FIELDS = tuple(field.name for field in fields(ClientSettings))

_WRONG_SIDE = {
    "isolation.level": "the sink reads nothing; set it on the source",
    "group.id": "the sink's option offsets.group names the consumer group that gets the source offsets",
}


def translate(given: Mapping[str, str], side: Side, problems: list[str]) -> tuple[dict[str, Any], ClientSettings]:
    """Translate `given`, Java names without their `kafka.` prefix, for one side of the query.

    Returns the options' fields that the user set, and the client's settings. Every unusable name adds a line
    to `problems`; if any was added, the returned values must not be used. `without_effect` gets the names that are
    accepted and have no effect.
    """
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in SECURITY_NAMES or reason_to_ignore(name, text, side) is not None:
            continue
        row = ROWS[side].get(name)
        if isinstance(row, Use):
            assert row.field is not None, name
            values[row.field] = row.kind.read(f"kafka.{name}", text, problems)
        elif isinstance(row, Only):
            if text.lower() not in row.values:
                problems.append(f"kafka.{name} cannot be {text[:LARGEST_SHOWN_VALUE]!r}: {row.otherwise}")
        elif isinstance(row, Refuse):
            problems.append(f"kafka.{name} has no meaning here: {row.instead}")
        else:
            problems.append(_stranger(name, side))
    if "bootstrap.servers" not in given:
        problems.append("kafka.bootstrap.servers is missing: it names the brokers, host:port separated by commas")
    security = {name: text for name, text in given.items() if name in SECURITY_NAMES}
    _check_timeouts(values, problems)
    client = {name: values.pop(name) for name in CLIENT_FIELDS if name in values}
    client.setdefault("bootstrap_servers", ())
    return values, ClientSettings(**client, security=translate_security(security, problems))


def reason_to_ignore(name: str, text: str, side: Side) -> str | None:
    """Why a name with this value is accepted and has no effect on this side; "" where it asks for what happens
    anyway; None where it is used or refused. A setting that one side ignores is ignored on the other one too:
    a file of properties is often given to both."""
    row = ROWS[side].get(name)
    elsewhere = row is None
    if row is None:
        row = {**PRODUCER, **CONSUMER}.get(name)
    if isinstance(row, Ignore):
        return "" if text.lower() in row.same else row.why
    if isinstance(row, Only) and elsewhere and text.lower() in row.values:
        return ""
    return None


_NOTHING_SIMILAR = ": Kafka's Java client has no setting of a similar name"


def _stranger(name: str, side: Side) -> str:
    """The line for a name without a row on this side."""
    if side == "sink" and name in CONSUMER:
        reason = _WRONG_SIDE.get(name, "it is a setting of consumers")
        return f"kafka.{name} has no meaning on the sink: {reason}"
    if side == "source" and name in PRODUCER:
        return f"kafka.{name} has no meaning on the source: it is a setting of producers, give it to the sink"
    if side == "ledger" and name in ALL_NAMES:
        return f"kafka.{name} has no meaning for the ledger: every decision is read, as committed; leave it out"
    hint = did_you_mean(name, ALL_NAMES, joint=": ", prefix="kafka.")
    return f"kafka.{name} is not a known option{hint or _NOTHING_SIMILAR}"


def _check_timeouts(values: dict[str, Any], problems: list[str]) -> None:
    """A delivery contains at least one request (KIP-91), and so does an answer that is waited for (KIP-533): a default
    gives way to the user's value.
    """
    request, delivery = values.get("request_timeout_ms"), values.get("delivery_timeout_ms")
    if request is not None and delivery is not None and delivery < request:
        problems.append(
            f"kafka.delivery.timeout.ms ({delivery}) is less than kafka.request.timeout.ms ({request}): "
            "a delivery waits for at least one request"
        )
    elif request is not None and delivery is None:
        values["delivery_timeout_ms"] = max(request, ClientSettings.delivery_timeout_ms)
    elif delivery is not None and request is None:
        values["request_timeout_ms"] = min(delivery, ClientSettings.request_timeout_ms)
    one, whole = values.get("request_timeout_ms") or ClientSettings.request_timeout_ms, values.get("api_timeout_ms")
    if whole is None:
        values["api_timeout_ms"] = max(one, ClientSettings.api_timeout_ms)
    elif request is not None and whole < request:
        problems.append(
            f"kafka.default.api.timeout.ms ({whole}) is less than kafka.request.timeout.ms ({request}): an answer that is "
            "waited for takes at least one request"
        )
    elif whole < one:
        values["request_timeout_ms"] = whole
