"""Spark's offset log in every form that Spark writes, read without Spark; and the forms that nobody knows."""

from __future__ import annotations

import json

import pytest

from kafka_core.errors import PipelineConflict
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.model import GroupOffset
from pyspark_kafka_eos.spark.offset_json import Position
from pyspark_kafka_eos.spark.offset_log import begins_elsewhere, kafka_sources, lower_offsets, parse_offsets

ORDERS = {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): 5}
TEXT = '{"orders": {"0": 23, "1": 5}}'


@pytest.mark.parametrize("name", ["0", "1", "17", "orders_of_today", "A1"])
def test_a_source_of_the_second_form_is_found_under_its_number_or_its_name(name: str) -> None:
    # As Spark 4.3 writes it with spark.sql.streaming.offsetLog.formatVersion=2.
    text = f'v2\n{{"batchWatermarkMs":0,"sourceMetadataInfo":{{}}}}\n9:-\n{name}:{TEXT}'

    lines = parse_offsets(text, "offsets/4")

    assert lines == ("9:-", f"{name}:{TEXT}")
    assert kafka_sources(lines) == (Position(ORDERS),)


def test_a_source_of_the_first_form_is_found_by_its_line() -> None:
    lines = parse_offsets(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":3}}\n{TEXT}\n-\n7', "offsets/4")

    assert kafka_sources(lines) == (Position(ORDERS),)


def test_where_two_sources_read_one_partition_the_lower_offset_counts() -> None:
    lines = ('{"t": {"0": 9, "1": 4}}', '1:{"t": {"0": 7}}')

    assert lower_offsets(kafka_sources(lines)) == {
        TopicPartition("t", 0): GroupOffset(7),
        TopicPartition("t", 1): GroupOffset(4),
    }


def log_line(offsets: str, topic_id: str = "an-id", began: str = "") -> str:
    """A line of `format("kafka_eos")`."""
    entries = ['"version:1": {}', '"cluster:C": {}', f'"topic:t:{topic_id}:0": {{}}']
    if began:
        nested = json.dumps({"t": json.loads(began), "version:1": {}, f"topic:t:{topic_id}:0": {}})
        entries.append(f"{json.dumps('began:' + nested)}: {{}}")
    return f'{{"t": {offsets}, {", ".join(entries)}}}'


def test_where_a_batch_begins_elsewhere_than_another_ended_is_said_for_each_partition_of_the_same_topic() -> None:
    ended = (log_line('{"0": 20, "1": 7}'),)
    end = '{"0": 30, "1": 9}'

    found = begins_elsewhere(ended, (log_line(end, began='{"0": 0, "1": 7}'),), None)

    assert found == ["t-0 at offset 0 instead of 20"]
    assert begins_elsewhere(ended, (log_line(end),), (log_line('{"0": 25, "1": 7}'),)) == [
        "t-0 at offset 25 instead of 20"
    ]
    assert begins_elsewhere(ended, (log_line(end),), (log_line('{"0": 20, "1": 7}'),)) == []
    # A first batch that is empty has no beginning beside its end.
    assert begins_elsewhere(ended, (log_line(end),), None) == [
        "t-0 at offset 30 instead of 20",
        "t-1 at offset 9 instead of 7",
    ]
    assert begins_elsewhere(ended, ended, None) == []
    # Another topic of the name, Spark's own source, files.
    assert begins_elsewhere(ended, (log_line(end, "another", '{"0": 0, "1": 7}'),), None) == []
    assert begins_elsewhere(('{"t":{"0":20}}',), (log_line(end, began='{"0": 0, "1": 7}'),), None) == []
    assert begins_elsewhere(('{"logOffset":1}',), ('{"logOffset":0}',), None) == []


@pytest.mark.parametrize(
    ("line", "planned"),
    [
        (TEXT, None),
        ("-", None),
        (f"orders:{TEXT}", None),
        ("9:-", None),
        ('{"logOffset":3}', 1_700),
        ("7", 1_700),
    ],
)
def test_the_time_of_a_batchs_plan_counts_where_its_sources_do_not_tell_their_rows(
    line: str, planned: int | None
) -> None:
    form = "v2" if ":" in line.partition("{")[0] else "v1"

    assert parse_offsets(f'{form}\n{{"batchTimestampMs":1700}}\n{line}', "offsets/4").planned_ms == planned
    assert parse_offsets(f'{form}\n{{"batchTimestampMs":"x"}}\n{line}', "offsets/4").planned_ms is None


def test_a_source_that_says_its_cluster_is_read_with_it() -> None:
    line = '{"orders": {"0": 23, "1": 5}, "version:1": {}, "cluster:MkU3OEVBNTcwNTJENDM2Qg": {}, "topic:orders:an-id:4,5": {}}'

    logs = {
        TopicPartition("orders", 0): LogMark("an-id", 4),
        TopicPartition("orders", 1): LogMark("an-id", 5),
    }
    assert kafka_sources((line,)) == (Position(ORDERS, "MkU3OEVBNTcwNTJENDM2Qg", logs),)


def test_a_source_of_another_version_of_the_format_is_an_error_that_names_both() -> None:
    line = '1:{"orders": {"0": 23, "1": 5}, "version:2": {}, "cluster:MkU3OEVBNTcwNTJENDM2Qg": {}}'

    with pytest.raises(PipelineConflict, match=r"nothing was written: .* in format 2, .* reads format 1"):
        kafka_sources((line,))


@pytest.mark.parametrize(
    "line", ["-", "0:-", "7", "0:7", '{"logOffset":3}', '0:{"logOffset":3}', "a,b:c", '{"t":{"0":-1}}']
)
def test_a_source_that_is_not_kafka_has_no_kafka_offsets(line: str) -> None:
    assert kafka_sources((line,)) == ()


@pytest.mark.parametrize("line", ['{"orders":{"0":17,"1":', '0:{"orders":{"0":17,"1":', 'orders:{"orders":'])
def test_a_line_that_is_cut_off_is_an_error_and_not_no_offsets(line: str) -> None:
    with pytest.raises(PipelineConflict, match="nothing was written; restore the checkpoint"):
        kafka_sources((line,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"v3\n{{}}\n0:{TEXT}", "its format is 'v3', and this connector reads v1 and v2"),
        (f"{{}}\n{TEXT}\n{TEXT}", "this connector reads v1 and v2"),
        ("", "its format is ''"),
        ("v1\n{}", "it ends before the first source's offsets"),
        ("v2\n{}", "it ends before the first source's offsets"),
        (f"v2\n{{}}\n{TEXT}", "has no number or name"),
    ],
)
def test_a_form_that_is_not_known_is_refused_with_what_it_is_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(PipelineConflict) as raised:
        parse_offsets(text, "/c/offsets/4")

    message = str(raised.value)
    assert said in message
    assert "/c/offsets/4 has an unknown format" in message
    assert "nothing was written" in message and "use a version of this connector that supports that Spark" in message


def test_an_offset_with_separators_that_spark_does_not_divide_lines_by_stays_whole() -> None:
    text = 'v1\n{}\n{"file": "a\u2028b\x0bc\x85d"}'

    assert parse_offsets(text, "offsets/0") == ('{"file": "a\u2028b\x0bc\x85d"}',)
