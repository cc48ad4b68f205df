"""The table of Java names: complete, and each row does what it says on its side of the query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options import SinkOptions, SourceOptions, documented_options
from pyspark_kafka_eos.options.kafka import (
    ALL_NAMES,
    BOTH,
    CONSUMER,
    PRODUCER,
    ROWS,
    Ignore,
    Only,
    Refuse,
    Side,
    Use,
)
from pyspark_kafka_eos.options.login.security import SECURITY_NAMES

SINK = {"kafka.bootstrap.servers": "broker:9092", "pipeline": "p"}
SOURCE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def java_names(client: str) -> list[str]:
    """The names that Kafka's own class lists."""
    lines = Path(__file__).with_name("java_client_names.txt").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith(client)]


def refused(side: Side, name: str, value: str) -> str:
    """The one line with which a side refuses `kafka.{name}`."""
    parse, others = (SinkOptions.parse, SINK) if side == "sink" else (SourceOptions.parse, SOURCE)
    with pytest.raises(OptionsError) as caught:
        parse({**others, f"kafka.{name}": value})
    (line,) = caught.value.problems()
    assert "nothing was read or written" in caught.value.message
    return line


def ignored(side: Side, name: str, value: str) -> tuple[str, ...]:
    """What a side reports as without effect where `kafka.{name}` is given."""
    if side == "sink":
        return SinkOptions.parse({**SINK, f"kafka.{name}": value}).ignored
    return SourceOptions.parse({**SOURCE, f"kafka.{name}": value}).ignored


@pytest.mark.parametrize(("client", "side"), [("producer", "sink"), ("consumer", "source")])
def test_every_config_of_the_java_client_has_a_row_on_its_side(client: str, side: Side) -> None:
    names = java_names(client)
    assert len(names) > 100

    assert [name for name in names if name not in ROWS[side] and name not in SECURITY_NAMES] == []


def test_every_config_of_the_java_client_is_in_exactly_one_class() -> None:
    for client, own in (("producer", PRODUCER), ("consumer", CONSUMER)):
        for name in java_names(client):
            assert sum(name in table for table in (BOTH, own, SECURITY_NAMES)) == 1, name
    for row in (row for side in ROWS.values() for row in side.values()):
        assert sum(isinstance(row, kind) for kind in (Use, Only, Ignore, Refuse)) == 1


@pytest.mark.parametrize("side", ["sink", "source"])
def test_a_setting_that_nobody_misses_is_accepted_and_reported_on_both_sides(side: Side) -> None:
    rows = {name: row for each in ROWS.values() for name, row in each.items() if isinstance(row, Ignore)}
    rows = {name: row for name, row in rows.items() if not isinstance(ROWS[side].get(name), Use)}
    assert {"session.timeout.ms", "fetch.max.bytes", "linger.ms", "retries", "buffer.memory"} <= set(rows)

    for name, row in rows.items():
        assert ignored(side, name, "3") == (f"kafka.{name} ({row.why})",)
        assert all(ignored(side, name, value) == () for value in row.same)


def test_an_ignored_setting_changes_nothing_else() -> None:
    sink = SinkOptions.parse({**SINK, "kafka.linger.ms": "5", "kafka.session.timeout.ms": "45000"})
    source = SourceOptions.parse({**SOURCE, "kafka.linger.ms": "5", "kafka.fetch.min.bytes": "1"})

    assert replace(sink, ignored=()) == SinkOptions.parse(SINK)
    assert replace(source, ignored=()) == SourceOptions.parse(SOURCE)


@pytest.mark.parametrize(
    ("side", "name", "value"),
    [
        ("sink", "interceptor.classes", "x"),
        ("sink", "metric.reporters", "x"),
        ("sink", "partitioner.class", "x"),
        ("sink", "partitioner.rack.aware", "true"),
        ("sink", "transactional.id", "x"),
        ("sink", "acks", "1"),
        ("source", "enable.auto.commit", "true"),
        ("source", "auto.offset.reset", "earliest"),
        ("source", "config.providers", "x"),
    ],
)
def test_a_setting_whose_effect_would_be_missed_stays_refused(side: Side, name: str, value: str) -> None:
    assert refused(side, name, value).startswith(f"kafka.{name} ")


def test_no_name_is_both_a_security_name_and_a_row() -> None:
    assert set(SECURITY_NAMES) & {*ROWS["sink"], *ROWS["source"]} == set()


@pytest.mark.parametrize("side", ["sink", "source"])
def test_every_refused_name_is_refused_with_its_own_words(side: Side) -> None:
    rows = {name: row.instead for name, row in ROWS[side].items() if isinstance(row, Refuse)}
    assert rows

    for name, instead in rows.items():
        assert refused(side, name, "1") == f"kafka.{name} has no meaning here: {instead}"


@pytest.mark.parametrize("side", ["sink", "source"])
def test_a_name_with_one_right_value_accepts_it_and_refuses_another(side: Side) -> None:
    rows = {name: row for name, row in ROWS[side].items() if isinstance(row, Only)}
    assert rows

    for name, row in rows.items():
        for value in row.values:
            if side == "sink":
                assert SinkOptions.parse({**SINK, f"kafka.{name}": value}) == SinkOptions.parse(SINK)
            else:
                assert SourceOptions.parse({**SOURCE, f"kafka.{name}": value}) == SourceOptions.parse(SOURCE)
        assert refused(side, name, "other") == f"kafka.{name} cannot be 'other': {row.otherwise}"


@pytest.mark.parametrize("value", ["0", "6", "x"])
def test_more_than_five_requests_in_flight_are_refused(value: str) -> None:
    assert "1 to 5" in refused("sink", "max.in.flight.requests.per.connection", value)


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("acks", "1", "needs every in-sync replica: all"),
        ("acks", "0", "needs every in-sync replica: all"),
        ("enable.idempotence", "false", "needs the idempotent producer: true"),
    ],
)
def test_what_exactly_once_rests_on_cannot_be_weakened(name: str, value: str, needed: str) -> None:
    assert needed in refused("sink", name, value)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "none"])
def test_idempotence_is_not_switched_off_by_its_name_under_any_guarantee(guarantee: str) -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", "delivery.guarantee": guarantee}
    pipeline = {"pipeline": "p"} if guarantee == "exactly-once" else {}
    with pytest.raises(OptionsError, match=r"kafka\.enable\.idempotence cannot be 'false'"):
        SinkOptions.parse({**given, **pipeline, "kafka.enable.idempotence": "false"})


@pytest.mark.parametrize(
    "name",
    sorted(name for name, row in CONSUMER.items() if not isinstance(ROWS["sink"].get(name, row), Ignore)),
)
def test_a_consumers_setting_is_refused_on_the_sink(name: str) -> None:
    assert refused("sink", name, "1").startswith(f"kafka.{name} has no meaning on the sink: ")


@pytest.mark.parametrize("name", sorted(name for name, row in PRODUCER.items() if not isinstance(row, Ignore)))
def test_a_producers_setting_is_refused_on_the_source(name: str) -> None:
    assert refused("source", name, "1").startswith(f"kafka.{name} has no meaning on the source: ")


def test_the_group_id_on_the_sink_is_answered_with_offsets_group() -> None:
    assert "offsets.group" in refused("sink", "group.id", "g")


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    assert refused("sink", "compression.type", "brotli") == (
        "kafka.compression.type is 'brotli': must be one of none, gzip, snappy, lz4, zstd"
    )


def words_of(row: object) -> str:
    """The sentence of a row that is not used."""
    return str(getattr(row, {Refuse: "instead", Only: "otherwise", Ignore: "why"}[type(row)]))


@pytest.mark.parametrize(
    ("codec", "value", "level"),
    [
        ("gzip", "1", 1), ("gzip", "9", 9), ("gzip", "-1", None), ("lz4", "1", 1), ("lz4", "17", 17),
        ("zstd", "-131072", -131_072), ("zstd", "22", 22),
    ],
)  # fmt: skip
def test_the_level_of_the_codec_in_use_is_taken(codec: str, value: str, level: int | None) -> None:
    given = {"kafka.compression.type": codec, f"kafka.compression.{codec}.level": value}

    found = SinkOptions.parse({**SINK, **given})

    assert (found.compression, found.compression_level, found.ignored) == (codec, level, ())


def test_levels_of_other_codecs_are_reported() -> None:
    given = {
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "7",
        "kafka.compression.lz4.level": "3",
    }

    found = SinkOptions.parse({**SINK, **given})

    assert (found.compression_level, found.ignored) == (
        7,
        ("kafka.compression.lz4.level (kafka.compression.type is zstd)",),
    )


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("gzip", "0"),
        ("gzip", "10"),
        ("lz4", "0"),
        ("lz4", "18"),
        ("zstd", "23"),
        ("zstd", "-131073"),
        ("zstd", "high"),
    ],
)
def test_a_level_that_the_java_client_refuses_is_refused(codec: str, value: str) -> None:
    assert f"kafka.compression.{codec}.level is '{value}': must be a whole number" in refused(
        "sink", f"compression.{codec}.level", value
    )


def test_every_name_that_a_refusal_recommends_exists() -> None:
    plain = {name for name, _, _ in documented_options()}
    words = [
        word.strip(".,;:`()").partition("=")[0]
        for row in [*ROWS["sink"].values(), *ROWS["source"].values()]
        if not hasattr(row, "field")
        for word in words_of(row).split()
        if word.startswith("kafka.")
    ]
    assert words

    assert [word for word in words if word not in plain] == []
    assert all(word.removeprefix("kafka.") in ALL_NAMES for word in words)
