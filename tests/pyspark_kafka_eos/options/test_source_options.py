"""The source's options: Spark's Kafka source's names and rules, and ours where they differ."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options import OptionValue, SourceOptions, documented_options
from pyspark_kafka_eos.options.source import Mode
from tests.support.logs import said_by

LEAST: Mapping[str, OptionValue] = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "flights"}


def refusal(options: Mapping[str, OptionValue]) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        SourceOptions.parse(options)
    return caught.value.problems()


def in_mode(options: Mapping[str, OptionValue], mode: Mode) -> list[str]:
    """The lines of the refusal in a stream or in a batch."""
    with pytest.raises(OptionsError) as caught:
        SourceOptions.parse({**LEAST, **options}, mode)
    return caught.value.problems()


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


def test_without_topics_the_three_ways_to_name_them_are_named() -> None:
    (line,) = refusal({"kafka.bootstrap.servers": "broker:9092"})

    assert "subscribe, subscribePattern, assign" in line


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

    in_batches = SourceOptions.parse(LEAST, "batch")
    assert documented["startingOffsets"] == f"{real.starting_offsets}; in a batch {in_batches.starting_offsets}"
    assert documented["endingOffsets"] == in_batches.ending_offsets
    assert documented["maxTriggerDelay"] == f"{real.max_trigger_delay_ms // 60_000}m"
    assert documented["kafka.isolation.level"] == real.isolation_level
    assert documented["failOnDataLoss"] == str(real.fail_on_data_loss).lower()
    assert documented["includeHeaders"] == str(real.include_headers).lower()


# ---- which topics


BROKERS: Mapping[str, OptionValue] = {"kafka.bootstrap.servers": "broker:9092"}


def test_partitions_are_assigned_by_topic_once_each_and_in_order() -> None:
    options = SourceOptions.parse({**BROKERS, "assign": '{"b":[1],"a":[2,0,2]}'})

    assert options.assign == {"b": (1,), "a": (0, 2)}
    assert options.subscribe == ()


def test_a_pattern_is_kept_as_java_spells_it() -> None:
    options = SourceOptions.parse({**BROKERS, "subscribePattern": r" (?<kind>a|b)\z "})

    assert options.subscribe_pattern == r"(?<kind>a|b)\z"


def test_a_pattern_that_has_no_equal_here_is_refused_with_the_reason_and_another_way() -> None:
    (line,) = refusal({**BROKERS, "subscribePattern": "[a-z&&[^b]]"})

    assert "an intersection && of classes cannot be used here" in line
    assert line.endswith("or list the topics in subscribe")


@pytest.mark.parametrize("pattern", ["x" * 1_000_000, "a{,3}" + "x" * 9_000])
def test_a_pattern_longer_than_all_names_of_topics_is_refused_in_a_short_line(pattern: str) -> None:
    (line,) = refusal({**BROKERS, "subscribePattern": pattern})

    assert line.startswith("subscribePattern is '") and ("10,000 characters" in line or "quantifier" in line)
    assert len(line) < 300


@pytest.mark.parametrize("second", [{"assign": '{"a":[0]}'}, {"subscribePattern": "a"}])
def test_two_ways_to_name_topics_are_refused(second: dict[str, OptionValue]) -> None:
    (line,) = refusal({**LEAST, **second})

    assert line.startswith("Only one of the following options can be specified for Kafka source")


@pytest.mark.parametrize("text", ["flights", "{}", '{"a":[]}', '{"a":[-1]}', '{"a":0}', '["a"]', '{"a b":[0]}'])
def test_partitions_that_say_nothing_clear_are_refused(text: str) -> None:
    assert len(refusal({**BROKERS, "assign": text})) == 1


def test_offsets_name_the_assigned_partitions_and_no_others() -> None:
    (line,) = refusal({**BROKERS, "assign": '{"a":[0,1]}', "startingOffsets": '{"a":{"0":5}}'})

    assert line == "startingOffsets names the partitions [0] of a, but assign names [0, 1]: they must be the same"


# ---- where reading begins and ends


def test_a_beginning_is_chosen_by_sparks_precedence() -> None:
    offsets = {"startingOffsets": "earliest"}
    by_partition = {"startingOffsetsByTimestamp": '{"flights":{"0":7}}'}

    assert SourceOptions.parse({**LEAST, **offsets}).starting_times is None
    assert SourceOptions.parse({**LEAST, **offsets, **by_partition}).starting_times == {"flights": {0: 7}}
    everything = {**LEAST, **offsets, **by_partition, "startingTimestamp": 0}
    assert SourceOptions.parse(everything).starting_times == 0


def test_an_end_is_chosen_by_sparks_precedence() -> None:
    offsets = {**LEAST, "endingOffsets": '{"flights":{"0":-1}}'}
    by_partition = {**offsets, "endingOffsetsByTimestamp": '{"flights":{"0":7}}'}

    assert SourceOptions.parse(offsets, "batch").ending_offsets == {"flights": {0: -1}}
    assert SourceOptions.parse(by_partition, "batch").ending_times == {"flights": {0: 7}}
    assert SourceOptions.parse({**by_partition, "endingTimestamp": 9}, "batch").ending_times == 9


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest() -> None:
    assert SourceOptions.parse(LEAST, "batch").starting_offsets == "earliest"
    assert SourceOptions.parse(LEAST, "stream").starting_offsets == "latest"


def test_what_becomes_of_times_without_a_record_is_said_in_any_case_of_letters() -> None:
    name = "startingOffsetsByTimestampStrategy"

    assert SourceOptions.parse(LEAST).fail_on_no_match is True
    assert SourceOptions.parse({**LEAST, name: "ERROR"}).fail_on_no_match is True
    assert SourceOptions.parse({**LEAST, name: "Latest"}).fail_on_no_match is False
    assert len(refusal({**LEAST, name: "earliest"})) == 1


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("value", ["noon", "-1", "1.5", ""])
def test_a_time_is_a_number_of_milliseconds(name: str, value: str) -> None:
    (line,) = refusal({**LEAST, name: value})

    assert line.startswith(f"{name} is {value!r}: must be a time in milliseconds")


@pytest.mark.parametrize("value", ["5", "{}", '{"flights":{"0":-1}}', '{"flights":{}}', '{"other":{"0":1}}'])
def test_times_by_partition_that_say_nothing_clear_are_refused(value: str) -> None:
    assert len(refusal({**LEAST, "startingOffsetsByTimestamp": value})) == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startingOffsets": '{"flights":{"0":0,"3":-1}}'}, "startingOffsets for flights-3 can't be latest"),
        ({"endingOffsets": '{"flights":{"0":0,"3":-2}}'}, "ending offset for flights-3 can't be earliest"),
        (
            {"startingOffsets": '{"flights":{"0":5}}', "endingOffsets": '{"flights":{"0":4}}'},
            "start offset 5 is greater than the end offset 4 for flights-0",
        ),
        (
            {"startingOffsets": '{"flights":{"0":5}}', "endingOffsets": '{"flights":{"1":5}}'},
            "should have the same topic-partitions",
        ),
        (
            {"startingTimestamp": 5, "endingTimestamp": 4},
            "start timestamp 5 is greater than the end timestamp 4",
        ),
    ],
)
def test_a_batch_that_could_read_nothing_is_refused(options: dict[str, OptionValue], complaint: str) -> None:
    (line,) = in_mode(options, "batch")

    assert complaint in line


def test_ends_that_a_partition_knows_are_not_compared_with_offsets() -> None:
    given = {"startingOffsets": '{"flights":{"0":5,"1":-2}}', "endingOffsets": '{"flights":{"0":-1,"1":5}}'}

    assert SourceOptions.parse({**LEAST, **given}, "batch").ending_offsets == {"flights": {0: -1, 1: 5}}


def test_offsets_that_times_go_before_are_not_judged() -> None:
    given = {"startingOffsets": "latest", "startingTimestamp": 5}

    assert SourceOptions.parse({**LEAST, **given}, "batch").starting_times == 5


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("endingOffsets", "latest", "ending offset not valid in streaming queries"),
        ("endingTimestamp", "5", "ending timestamp not valid in streaming queries"),
        (
            "endingOffsetsByTimestamp",
            '{"flights":{"0":5}}',
            "ending timestamp not valid in streaming queries",
        ),
    ],
)
def test_a_stream_has_no_end(name: str, value: str, complaint: str) -> None:
    (line,) = in_mode({name: value}, "stream")

    assert line.startswith(complaint)
    assert name in line


def test_what_is_asked_for_the_columns_is_judged_before_it_is_known_what_reads_them() -> None:
    given = {**LEAST, "endingOffsets": "earliest", "startingOffsets": "latest"}

    assert SourceOptions.parse(given).starting_offsets == "latest"


# ---- pace and tasks


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("2min", 120_000), ("30s", 30_000), ("250ms", 250), ("250", 250), ("1h", 3_600_000),
     ("1D", 86_400_000)],
)  # fmt: skip
def test_a_delay_is_said_in_sparks_units(text: str, milliseconds: int) -> None:
    assert SourceOptions.parse({**LEAST, "maxTriggerDelay": text}).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize("text", ["soon", "-1s", "1 fortnight", ""])
def test_a_delay_that_is_none_is_refused(text: str) -> None:
    assert len(refusal({**LEAST, "maxTriggerDelay": text})) == 1


def test_a_smallest_batch_above_the_largest_is_refused() -> None:
    (line,) = refusal({**LEAST, "minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 3})

    assert line.startswith("The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(3)")


def test_what_paces_streams_is_ignored_in_batches_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {**LEAST, "minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 9, "maxTriggerDelay": "1s"}

    assert SourceOptions.parse(given, "batch") == SourceOptions.parse(LEAST, "batch")
    assert [line.split()[0] for line in said_by(caplog, "pyspark_kafka_eos.options.source")] == [
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"]  # fmt: skip


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition", "minOffsetsPerTrigger"])
@pytest.mark.parametrize("value", ["0", "-3", "some"])
def test_numbers_of_tasks_and_offsets_are_at_least_one(name: str, value: str) -> None:
    (line,) = refusal({**LEAST, name: value})

    assert line.startswith(f"{name} is '{value}'")


def test_what_only_paces_sparks_consumer_is_accepted_and_changes_nothing() -> None:
    given = {
        "groupIdPrefix": "x",
        "kafkaConsumer.pollTimeoutMs": "512",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "10",
    }

    found = SourceOptions.parse({**LEAST, **given})

    assert replace(found, ignored=()) == SourceOptions.parse(LEAST)
    assert sorted(each.split()[0] for each in found.ignored) == sorted(given)
    for name in given:
        if name != "groupIdPrefix":
            assert refusal({**LEAST, name: "often"})[0].startswith(f"{name} is 'often'")


# ---- a group's offsets


@pytest.mark.parametrize("mode", ["stream", "batch", None])
def test_the_offsets_of_a_group_are_a_beginning_in_streams_and_batches(mode: Mode | None) -> None:
    found = SourceOptions.parse({**LEAST, "startingOffsets": "Group", "kafka.group.id": "g"}, mode)

    assert (found.starting_offsets, found.group_id, found.offset_reset, found.ignored) == (
        "group",
        "g",
        "none",
        (),
    )


def test_a_beginning_at_a_group_needs_the_groups_name() -> None:
    (line,) = refusal({**LEAST, "startingOffsets": "group"})

    assert line.startswith("startingOffsets is group, but kafka.group.id is missing")


def test_no_batch_ends_at_a_groups_offsets() -> None:
    (line,) = refusal({**LEAST, "endingOffsets": "group", "kafka.group.id": "g"})

    assert line.startswith("endingOffsets is 'group': must be earliest, latest, or JSON")


@pytest.mark.parametrize(
    "start", [{}, {"startingOffsets": "earliest"}, {"startingTimestamp": "5", "startingOffsets": "group"}]
)
def test_what_belongs_to_a_groups_offsets_has_no_meaning_without_them(start: dict[str, str]) -> None:
    (line,) = refusal({**LEAST, **start, "kafka.auto.offset.reset": "earliest"})
    (reported,) = SourceOptions.parse({**LEAST, **start, "kafka.group.id": "g"}).ignored

    assert line.startswith("kafka.auto.offset.reset has no meaning here: startingOffsets sets where")
    assert reported.startswith("kafka.group.id (")


def test_a_duration_as_reset_is_refused_with_what_there_is() -> None:
    given = {**LEAST, "startingOffsets": "group", "kafka.group.id": "g"}

    (line,) = refusal({**given, "kafka.auto.offset.reset": "by_duration:P1D"})

    assert "must be one of none, earliest, latest" in line
