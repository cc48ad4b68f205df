"""The source's offset JSON: Spark's own, with entries that say what the offsets stand on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.spark.offset_json import Position, position_of, to_json

A, B, C = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b.c", 2)

TOPICS = st.sampled_from(["a", "b.c", "version", "topic"])
PLACES = st.builds(TopicPartition, TOPICS, st.integers(0, 20))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**62), min_size=1)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    """Offsets of topics of which some have an id."""
    offsets = draw(OFFSETS)
    ids = draw(st.dictionaries(TOPICS, st.uuids().map(str)))
    logs = {where: LogMark(ids[where.topic], draw(st.integers(-1, 9))) for where in offsets if where.topic in ids}
    return Position(offsets, draw(st.sampled_from(["", "MkU3OEVBNTcwNTJENDM2Qg"])), logs)


def test_without_what_it_stands_on_it_is_that_of_sparks_kafka_source() -> None:
    assert to_json(Position({C: 23, B: 1, A: 7})) == {"a": {"0": 7, "10": 1}, "b.c": {"2": 23}}


def test_it_names_the_cluster_the_topics_and_the_epochs_once_where_they_are_the_same() -> None:
    logs = {A: LogMark("id-a", 4), B: LogMark("id-a", 5), C: LogMark("id-c", 7)}

    body = to_json(Position({A: 7, B: 1, C: 23}, "here", logs, Position({A: 5}, logs={A: LogMark("id-a", 4)})))

    assert list(body)[2:] == [
        "version:1",
        "cluster:here",
        "topic:a:id-a:4,5",
        "topic:b.c:id-c:7",
        'began:{"a":{"0":5},"topic:a:id-a:4":{}}',
    ]
    assert all(body[entry] == {} for entry in list(body)[2:])


@given(positions(), st.none() | positions())
def test_equal_positions_have_equal_text_and_read_back(end: Position, began: Position | None) -> None:
    began = None if began is None else Position(began.offsets, logs=began.logs)
    whole = Position(end.offsets, end.cluster_id, end.logs, began)
    backwards = Position(dict(reversed(end.offsets.items())), end.cluster_id, dict(reversed(end.logs.items())), began)

    text = json.dumps(to_json(whole))

    assert text == json.dumps(to_json(backwards))
    assert position_of(json.loads(text)) == whole


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"cluster:here": {}}, "in an unknown format, which another version .* reads format 1"),
        ({"version:2": {}, "cluster:here": {}}, "in format 2, which another version .* reads format 1"),
        ({"version:" + "2" * 9_000: {}}, "in format 2{40}, which another version"),
        ({"version:1": {}, "colour:" + "x" * 9_000: {}}, "unknown entry"),
        ({"version:1": {}, "cluster:here": {"0": 1}}, "entry 'cluster:here' names partitions"),
        ({"version:1": {}, "colour:red": {}}, "unknown entry 'colour:red'"),
        ({"version:1": {}, "topic:t:id": {}}, "not have the form"),
        ({"version:1": {}, "topic:t:id:1,2": {}}, "not have the form"),
        ({"version:1": {}, "began:" + "[" * 5_000: {}}, "not have the form"),
        ({"t": {"x": 1}}, "not have the form"),
        ({"t": [1]}, "not have the form"),
    ],
)
def test_another_version_or_form_is_one_sentence(entries: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=said) as raised:
        position_of({"t": {"0": 5}, **entries})

    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1_000
    assert "othing was read" in str(raised.value) and "a new " in str(raised.value)
