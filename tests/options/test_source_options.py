"""The source's options: Spark's Kafka source's names and rules, and ours where they differ."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from connector.errors import OptionsError
from connector.options import NOT_YET, OptionValue, SourceOptions, documented_options

LEAST: Mapping[str, OptionValue] = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "flights"}


def refusal(options: Mapping[str, OptionValue]) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        SourceOptions.parse(options)
    return caught.value.message.splitlines()[1:]


def test_brokers_and_topics_are_enough_and_the_rest_has_defaults() -> None:
    options = SourceOptions.parse(LEAST)

    assert options.subscribe == ("flights",)
    assert options.starting_offsets == "latest"
    assert options.max_offsets_per_trigger is None
    assert options.include_headers is False
    assert options.fail_on_data_loss is True
    assert options.group_id is None
    assert options.client.bootstrap_servers == ("broker:9092",)


def test_reading_is_committed_unless_the_user_asks_otherwise() -> None:
    assert SourceOptions.parse(LEAST).isolation_level == "read_committed"
    asked = SourceOptions.parse({**LEAST, "kafka.isolation.level": "read_uncommitted"})
    assert asked.isolation_level == "read_uncommitted"


def test_every_option_of_the_source_reaches_its_field() -> None:
    options = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "subscribe": " a, b ,,a",
            "startingOffsets": '{"a":{"0":23,"1":-2},"b":{"0":-1}}',
            "maxOffsetsPerTrigger": 5_000_000_000,
            "includeHeaders": True,
            "failOnDataLoss": "FALSE",
            "kafka.group.id": "g",
        }
    )

    assert options.subscribe == ("a", "b")
    assert options.starting_offsets == {"a": {0: 23, 1: -2}, "b": {0: -1}}
    assert options.max_offsets_per_trigger == 5_000_000_000
    assert options.include_headers is True
    assert options.fail_on_data_loss is False
    assert options.group_id == "g"


def test_the_lower_case_mapping_that_spark_gives_a_python_source_is_read() -> None:
    given = {**LEAST, "startingOffsets": "Earliest", "maxOffsetsPerTrigger": "10"}
    spark = CaseInsensitiveDict(given)
    assert "maxoffsetspertrigger" in set(spark)

    assert SourceOptions.parse(spark) == SourceOptions.parse(given)


def test_a_missing_subscribe_is_named() -> None:
    (line,) = refusal({"kafka.bootstrap.servers": "broker:9092"})

    assert line.startswith("subscribe is missing")


@pytest.mark.parametrize("topics", ["", ",", " , "])
def test_a_subscribe_without_a_topic_is_refused(topics: str) -> None:
    assert len(refusal({**LEAST, "subscribe": topics})) == 1


def test_each_illegal_topic_of_subscribe_is_named() -> None:
    lines = refusal({**LEAST, "subscribe": "good,b@d,w rse"})

    assert [line.split("'")[1] for line in lines] == ["b@d", "w rse"]


@pytest.mark.parametrize(
    "offsets",
    [
        "newest",
        "",
        "{",
        "[]",
        '{"flights":{"0":-3}}',
        '{"flights":{"-1":0}}',
        '{"flights":{"0":"x"}}',
        '{"flights":5}',
        '{"flights":{}}',
    ],
)
def test_starting_offsets_that_say_nothing_clear_are_refused(offsets: str) -> None:
    (line,) = refusal({**LEAST, "startingOffsets": offsets})

    assert "must be earliest, latest, or JSON" in line


def test_starting_offsets_name_the_subscribed_topics_and_no_others() -> None:
    (line,) = refusal({**LEAST, "subscribe": "a,b", "startingOffsets": '{"b":{"0":1},"c":{"0":1}}'})

    assert line == "startingOffsets names the topics b, c, but subscribe names a, b: they must be the same"


@pytest.mark.parametrize("name", sorted(NOT_YET["source"]))
def test_an_option_of_sparks_source_that_is_not_there_yet_says_so_and_what_to_use(name: str) -> None:
    (line,) = refusal({**LEAST, name.lower(): "x"})

    assert line.startswith(f"{name} is not supported yet: ")
    assert len(line) > len(f"{name} is not supported yet: ")


def test_an_option_of_the_sink_is_sent_there() -> None:
    assert refusal({**LEAST, "pipeline": "x"}) == ["pipeline is an option of the sink, not of the source"]


def test_a_misspelt_option_of_the_source_names_the_nearest_real_one() -> None:
    assert refusal({**LEAST, "startingOffset": "latest"}) == [
        "startingOffset is not a known option: did you mean startingOffsets?"
    ]


def test_an_auto_offset_reset_is_answered_with_starting_offsets() -> None:
    (line,) = refusal({**LEAST, "kafka.auto.offset.reset": "earliest"})

    assert "startingOffsets" in line


@pytest.mark.parametrize("value", ["0", "-5", "many"])
def test_a_limit_per_trigger_is_at_least_one(value: str) -> None:
    (line,) = refusal({**LEAST, "maxOffsetsPerTrigger": value})

    assert line.startswith(f"maxOffsetsPerTrigger is '{value}'")


def test_source_options_pickle_to_equal_ones() -> None:
    options = SourceOptions.parse({**LEAST, "startingOffsets": '{"flights":{"0":1}}'})

    assert pickle.loads(pickle.dumps(options)) == options


def test_the_documented_defaults_of_the_source_are_the_real_ones() -> None:
    documented = {name: default for name, default, _ in documented_options("source")}
    real = SourceOptions.parse(LEAST)

    assert documented["startingOffsets"] == real.starting_offsets
    assert documented["kafka.isolation.level"] == real.isolation_level
    assert documented["failOnDataLoss"] == str(real.fail_on_data_loss).lower()
    assert documented["includeHeaders"] == str(real.include_headers).lower()
