"""The table of Java names: complete, and each row does what it says on its side of the query."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.errors import OptionsError
from connector.options import SinkOptions, SourceOptions, documented_options
from connector.options.kafka import ALL_NAMES, CONSUMER, PRODUCER, ROWS, Only, Refuse, Side
from connector.options.security import SECURITY_NAMES

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
    heading, line = caught.value.message.splitlines()
    assert "nothing was written" in heading
    return line


@pytest.mark.parametrize(("client", "side"), [("producer", "sink"), ("consumer", "source")])
def test_every_config_of_the_java_client_has_a_row_on_its_side(client: str, side: Side) -> None:
    names = java_names(client)
    assert len(names) > 100

    assert [name for name in names if name not in ROWS[side] and name not in SECURITY_NAMES] == []


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
        ("retries", "0", "kafka.delivery.timeout.ms bounds how long a batch is sent again"),
        ("retries", "3", "kafka.delivery.timeout.ms bounds how long a batch is sent again"),
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


@pytest.mark.parametrize("name", sorted(CONSUMER))
def test_a_consumers_setting_is_refused_on_the_sink(name: str) -> None:
    assert refused("sink", name, "1").startswith(f"kafka.{name} has no meaning on the sink: ")


@pytest.mark.parametrize("name", sorted(PRODUCER))
def test_a_producers_setting_is_refused_on_the_source(name: str) -> None:
    assert refused("source", name, "1").startswith(f"kafka.{name} has no meaning on the source: ")


def test_the_group_id_on_the_sink_is_answered_with_offsets_group() -> None:
    assert "offsets.group" in refused("sink", "group.id", "g")


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    assert refused("sink", "compression.type", "brotli") == (
        "kafka.compression.type is 'brotli': must be one of none, gzip, snappy, lz4, zstd"
    )


def test_every_name_that_a_refusal_recommends_exists() -> None:
    plain = {name for name, _, _ in documented_options()}
    words = [
        word.strip(".,;:`()").partition("=")[0]
        for row in [*ROWS["sink"].values(), *ROWS["source"].values()]
        if not hasattr(row, "field")
        for word in (row.instead if isinstance(row, Refuse) else row.otherwise).split()
        if word.startswith("kafka.")
    ]
    assert words

    assert [word for word in words if word not in plain] == []
    assert all(word.removeprefix("kafka.") in ALL_NAMES for word in words)
