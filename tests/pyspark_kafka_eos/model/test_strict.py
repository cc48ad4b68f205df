"""No record of any shape, by whomever it is written, gives another error than the one of its reader, or takes more than
its size.
"""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_core.errors import ExactlyOnceError, LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.net.oauth.endpoint import _read
from pyspark_kafka_eos.client.net.oauth.settings import OAuth
from pyspark_kafka_eos.commit.ledger.notes import (
    Aborted,
    Began,
    Ended,
    Mending,
    Moved,
    Renamed,
    Settled,
    SettledInParts,
    from_bytes,
    to_bytes,
)
from pyspark_kafka_eos.commit.ledger.parts import Collection, DecisionPart, Manifest, cut
from pyspark_kafka_eos.model import Decision, RoutedTopic, Seal, SealedPartition, Traffic, strict
from pyspark_kafka_eos.model.basis import Basis, TopicRules
from pyspark_kafka_eos.model.seal import KeptPartition
from pyspark_kafka_eos.model.write_settings import RowOptions
from pyspark_kafka_eos.slot.turn_log import from_json as turn_from_json
from pyspark_kafka_eos.slot.turn_log import to_json as turn_to_json
from pyspark_kafka_eos.slot.turns import TaskStarted
from pyspark_kafka_eos.spark.offset_log import kafka_sources

OAUTH = OAuth("client_credentials", url="https://login.example/token")
WHO = ProducerIdentity(7, 3)
PART = SealedPartition("out", 1, 4, 5, 6, 7, 2)
SEAL = Seal(
    "pipe:0", 0, WHO, 2, 6, 60, 7, 1_000, (PART,), kept=(KeptPartition(WHO, PART),), topics=(RoutedTopic("out", "id", 4),)
)  # fmt: skip
BASIS = Basis("Europe/Berlin", 5, (("out", TopicRules(1_000, True, 7, None)),))
DECISION = Decision(
    "pipe", "query", 3, (SEAL,), ("line",), 5, "0.1", 1, (("pipe:1", WHO),), ("said",), Traffic(1), 16, basis=BASIS, number=9
)  # fmt: skip
MANIFEST, PARTS = cut(DECISION.to_bytes(), 1_000)
RECORDS: list[bytes] = [
    DECISION.to_bytes(),
    MANIFEST.to_bytes(),
    *map(
        to_bytes,
        [
            Ended.of_decision(DECISION, WHO), Settled(4, WHO, DECISION), SettledInParts(4, WHO, MANIFEST), PARTS[0],
            Mending("pipe:0", WHO, (TopicPartition("out", 1),)), Aborted("pipe:0", WHO), Began("query", 3), Renamed("query", "other"), Moved(17),
        ],
    ),
]  # fmt: skip

Reader = Callable[[bytes], object]


def as_note(value: bytes) -> object:
    return from_bytes(value)


def as_decision(value: bytes) -> object:
    return Manifest.from_record(value) or Decision.from_bytes(value)


def as_turn(value: bytes) -> object:
    return turn_from_json(value)


def as_offsets(value: bytes) -> object:
    return kafka_sources([value.decode("utf-8", "replace")])


def as_token(value: bytes) -> object:
    return _read(OAUTH, value)


READERS: list[Reader] = [as_note, as_decision, as_turn, as_offsets, as_token]

ODD: list[Any] = [
    None, True, -1, 1.5, 2**63, 10**400, "", "x", "\ud800", "²", "no topic", [], {}, [[]], [None] * 9, {"version": 1},
    float("inf"), float("nan"),
]  # fmt: skip
"""Values that stand where a record has another one."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([2**63, 10**400]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


def read(reader: Reader, value: bytes) -> None:
    """Whatever it is, it is read, or refused as this package refuses."""
    with contextlib.suppress(ExactlyOnceError):
        reader(value)


def places(body: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    return [path, *(each for key, value in inner for each in places(value, (*path, key)))]


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(body[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_every_record_is_read_back_and_with_any_value_changed_refused_or_read(number: int) -> None:
    body = json.loads(RECORDS[number])
    reader = as_decision if number < 2 else as_note
    reader(RECORDS[number])

    for path in places(body):
        for odd in ODD:
            read(reader, json.dumps(changed(body, path, odd)).encode())


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_a_record_that_lacks_any_field_is_refused_or_read(number: int) -> None:
    body = json.loads(RECORDS[number])
    reader = as_decision if number < 2 else as_note

    for path in places(body):
        if path and isinstance(path[-1], str):
            holder = body
            for key in path[:-1]:
                holder = holder[key]
            rest = {name: value for name, value in holder.items() if name != path[-1]}
            read(reader, json.dumps(changed(body, path[:-1], rest)).encode())


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None)
@given(value=JSON)
def test_any_json_is_read_or_refused(reader: Reader, value: Any) -> None:
    read(reader, json.dumps(value).encode())


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, deadline=None)
@given(value=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(reader: Reader, value: bytes) -> None:
    read(reader, value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"version":1,"note":' + b"[" * 100_000,
        b"-" + b"9" * 5_000,
        b"1e999",
    ],
    ids=["lists", "objects", "in a note", "digits", "infinite"],
)
def test_a_text_that_is_deeper_or_longer_than_python_reads_is_refused(reader: Reader, text: bytes) -> None:
    read(reader, text)


@pytest.mark.parametrize("field", ["batch_id", "decided_ms", "repaired", "number", "sticky_bytes"])
@pytest.mark.parametrize("value", ["Infinity", "NaN", "-1", "1.0", "true", '"1"', "1e999", "9" * 30])
def test_a_number_of_a_decision_is_a_whole_one_within_bounds(field: str, value: str) -> None:
    body = json.loads(DECISION.to_bytes())
    body[field] = "HERE"

    with pytest.raises(LedgerUnreadable):
        Decision.from_bytes(json.dumps(body).replace('"HERE"', value).encode())


UNUSABLE: list[tuple[list[str | int], object]] = [
    (["sticky_bytes"], 0),
    (["topics", 0, 2], 0),
    (["row_options", 2], "zip"),
    (["row_options", 2], None),
    (["row_options", 4], 0),
    (["row_options", 5], 0),
]


@pytest.mark.parametrize(("where", "value"), UNUSABLE, ids=lambda each: repr(each))
def test_what_no_task_could_write_by_is_no_decision(where: list[str | int], value: object) -> None:
    """Else a repair would end with an error that is none of this package's and names nothing."""
    written = SealedPartition("out", 0, 0, 0, 1, None, 0)
    seal = Seal("pipe:0", 0, ProducerIdentity(7, 1), 2, partitions=(written,), topics=(RoutedTopic("out", "id", 3),))
    body = json.loads(Decision("pipe", "query", 0, (seal,), row_options=RowOptions(max_request_bytes=1)).to_bytes())
    assert Decision.from_bytes(json.dumps(body).encode()).seals == (seal,)

    found = body
    for each in where[:-1]:
        found = found[each]
    found[where[-1]] = value

    with pytest.raises(LedgerUnreadable):
        Decision.from_bytes(json.dumps(body).encode())


@pytest.mark.parametrize("name", ["", "evil:0", "pipe:1", "pipe:driver", "x" * 40_000])
def test_a_decision_has_seals_of_its_own_pipelines_slots_alone(name: str) -> None:
    """A command asks coordinators for these ids, and may end them."""
    decision = Decision("pipe", "query", 0, (Seal("pipe:0", 0, ProducerIdentity(7, 1), 2),))
    whole = replace(decision, seals=(Seal("pipe:batch", 0, ProducerIdentity(7, 1), 2),))
    other = replace(decision, seals=(Seal(name, 0, ProducerIdentity(7, 1), 2),))

    assert [Decision.from_bytes(each.to_bytes()) for each in (decision, whole)] == [decision, whole]
    with pytest.raises(LedgerUnreadable, match="is no transactional id of slot 0 of the pipeline"):
        Decision.from_bytes(other.to_bytes())


def test_a_manifest_of_more_parts_than_any_decision_has_is_refused_without_room_for_them() -> None:
    body = json.loads(MANIFEST.to_bytes()) | {"parts": 300_000_000}
    tracemalloc.start()
    try:
        with pytest.raises(LedgerUnreadable):
            as_decision(json.dumps(body, separators=(",", ":")).encode())
        # The most that is allowed: what is missing is counted, not listed.
        with pytest.raises(LedgerUnreadable, match="1000000 of the 1000000 parts"):
            Collection(Manifest(MANIFEST.digest, 1_000_000)).value()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


def test_what_is_wrong_is_said_in_few_words() -> None:
    body = json.loads(DECISION.to_bytes()) | {"batch_id": "x" * 100_000}

    with pytest.raises(LedgerUnreadable) as refused:
        Decision.from_bytes(json.dumps(body).encode())

    assert "is no number" in refused.value.message
    assert len(str(refused.value)) < 1_000


def test_a_part_behind_the_last_one_does_not_make_a_decision_whole() -> None:
    found = Collection(MANIFEST)
    found.add_parts([*PARTS[1:], DecisionPart(MANIFEST.digest, len(PARTS), "more")])

    assert not found.complete


@given(st.integers(), st.integers(0, 100), st.integers(0, 100))
def test_a_whole_number_is_one_between_its_bounds(value: int, low: int, more: int) -> None:
    try:
        assert strict.whole(value, low, low + more) == value
        assert low <= value <= low + more
    except ValueError:
        assert not low <= value <= low + more


def test_a_turn_is_read_back() -> None:
    assert turn_from_json(turn_to_json(0, [TaskStarted(3, "start")])) == (0, [TaskStarted(3, "start")])
