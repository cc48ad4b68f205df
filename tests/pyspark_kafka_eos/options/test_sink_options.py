"""The sink's options: what is accepted, with which defaults, and what is refused with which words."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options import (
    OptionValue,
    SinkOptions,
    SourceOptions,
    documented_options,
    parse_ledger,
    refuse_async_progress,
    refuse_speculation,
)
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter

LEAST: Mapping[str, OptionValue] = {"kafka.bootstrap.servers": "broker:9092", "pipeline": "flights"}


def refusal(options: Mapping[str, OptionValue]) -> list[str]:
    """The lines of the refusal, without its heading."""
    with pytest.raises(OptionsError) as caught:
        SinkOptions.parse(options)
    return caught.value.problems()


def test_brokers_and_pipeline_are_enough_and_the_rest_has_defaults() -> None:
    options = SinkOptions.parse(LEAST)

    assert options == SinkOptions(
        pipeline="flights",
        topic=None,
        ledger_topic="exactly-once-ledger",
        offsets_group="flights",
        adopt_checkpoint=False,
        checkpoint_location=None,
        transaction_timeout_ms=None,
        transaction_margin_ms=10_000,
        compression="none",
        batch_bytes=1_048_576,
        max_request_bytes=None,
        delivery_timeout_ms=120_000,
        max_block_ms=60_000,
        client=ClientSettings(bootstrap_servers=("broker:9092",)),
    )


def test_every_option_of_the_sink_reaches_its_field() -> None:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "a:1, [::1]:2 ,SASL_SSL://c.example:3",
            "pipeline": "flights",
            "topic": "out",
            "ledger.topic": "decisions",
            "offsets.group": "lag tools",
            "adopt.checkpoint": True,
            "checkpointLocation": "s3://bucket/checkpoint",
            "transaction.margin.ms": 2_000,
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
            "kafka.delivery.timeout.ms": "60000",
            "kafka.transaction.timeout.ms": "300000",
            "kafka.max.in.flight.requests.per.connection": "2",
            "kafka.metadata.max.age.ms": "1000",
            "kafka.max.block.ms": "7000",
            "kafka.compression.type": "ZSTD",
            "kafka.batch.size": "65536",
            "kafka.max.request.size": "2000000",
        }
    )

    assert options == SinkOptions(
        pipeline="flights",
        topic="out",
        ledger_topic="decisions",
        offsets_group="lag tools",
        adopt_checkpoint=True,
        checkpoint_location="s3://bucket/checkpoint",
        transaction_margin_ms=2_000,
        transaction_timeout_ms=300_000,
        compression="zstd",
        batch_bytes=65_536,
        max_request_bytes=2_000_000,
        delivery_timeout_ms=60_000,
        max_block_ms=7_000,
        client=ClientSettings(
            bootstrap_servers=("a:1", "[::1]:2", "c.example:3"),
            client_id="me",
            request_timeout_ms=5_000,
            delivery_timeout_ms=60_000,
            max_in_flight=2,
            metadata_max_age_ms=1_000,
        ),
    )


def test_names_may_come_in_any_case_as_spark_sends_them() -> None:
    mixed = SinkOptions.parse({**LEAST, "Topic": "out", "CHECKPOINTLOCATION": "/c", "Adopt.Checkpoint": "True"})
    lower = SinkOptions.parse({**LEAST, "topic": "out", "checkpointlocation": "/c", "adopt.checkpoint": "true"})

    assert mixed == lower


def test_java_names_are_exact_but_their_prefix_is_not() -> None:
    assert SinkOptions.parse({**LEAST, "KAFKA.compression.type": "lz4"}).compression == "lz4"
    assert refusal({**LEAST, "kafka.Compression.Type": "lz4"}) == [
        "kafka.Compression.Type is not a known option: did you mean kafka.compression.type?"
    ]


def test_the_same_option_twice_with_different_values_is_refused() -> None:
    (line,) = refusal({**LEAST, "topic": "a", "Topic": "b"})

    assert "given twice" in line


def test_a_missing_pipeline_and_missing_brokers_are_named_with_their_meaning() -> None:
    lines = refusal({})

    assert [line.split(":")[0] for line in lines] == [
        "kafka.bootstrap.servers is missing",
        "pipeline is missing",
    ]


def test_all_problems_come_in_one_message_one_per_line() -> None:
    lines = refusal(
        {"piepline": "x", "topic": "a b", "kafka.acks": "1", "kafka.interceptor.classes": "x", "kafka.x": ""}
    )

    assert [line.split()[0] for line in lines] == [
        "piepline",
        "topic",
        "kafka.acks",
        "kafka.interceptor.classes",
        "kafka.x",
        "kafka.bootstrap.servers",
        "pipeline",
    ]


@pytest.mark.parametrize(
    ("misspelt", "real"),
    [
        ("topik", "topic"),
        ("ledgertopic", "ledger.topic"),
        ("checkpoint.location", "checkpointLocation"),
        ("kafka.compresion.type", "kafka.compression.type"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.sasl.mechanim", "kafka.sasl.mechanism"),
    ],
)
def test_a_misspelt_option_names_the_nearest_real_one(misspelt: str, real: str) -> None:
    assert refusal({**LEAST, misspelt: "x"}) == [f"{misspelt} is not a known option: did you mean {real}?"]


def test_a_name_like_nothing_known_gets_the_list_of_options() -> None:
    (line,) = refusal({**LEAST, "zzz": "x"})

    assert "zzz is not a known option" in line
    assert "ledger.topic" in line


@pytest.mark.parametrize("name", ["subscribe", "startingOffsets", "maxOffsetsPerTrigger", "minPartitions"])
def test_an_option_of_the_source_is_sent_there(name: str) -> None:
    assert refusal({**LEAST, name: "x"}) == [f"{name} is an option of the source, not of the sink"]


def test_async_progress_tracking_is_refused_with_its_reason() -> None:
    (line,) = refusal({**LEAST, "asyncProgressTrackingEnabled": "true"})

    assert "no longer logs each micro-batch's source offsets before the batch runs" in line
    assert "it cannot be determined which of them Kafka has already" in line


def test_async_progress_tracking_that_is_off_is_what_the_sink_needs() -> None:
    off = {"asyncProgressTrackingEnabled": "false", "asyncProgressTrackingCheckpointIntervalMs": "1000"}

    found = SinkOptions.parse({**LEAST, **off})

    assert replace(found, ignored=()) == SinkOptions.parse(LEAST)
    assert found.ignored == ("asyncProgressTrackingCheckpointIntervalMs (progress is never tracked asynchronously)",)


def test_a_query_that_runs_with_async_progress_tracking_is_refused_in_whatever_way_it_was_switched_on() -> None:
    package = "org.apache.spark.sql.execution.streaming.runtime"

    with pytest.raises(
        OptionsError,
        match=r"it cannot be determined which of them Kafka has already.*Nothing was written",
    ):
        refuse_async_progress(f"{package}.AsyncProgressTrackingMicroBatchExecution")
    refuse_async_progress(f"{package}.MicroBatchExecution")


def test_an_empty_group_switches_the_commit_of_source_offsets_off() -> None:
    assert SinkOptions.parse({**LEAST, "offsets.group": ""}).offsets_group == ""
    assert SinkOptions.parse({**LEAST, "offsets.group": "  "}).offsets_group == ""
    assert SinkOptions.parse(LEAST).offsets_group == SinkOptions.parse(LEAST).pipeline != ""


def test_include_headers_true_is_accepted_because_headers_are_always_written() -> None:
    assert SinkOptions.parse({**LEAST, "includeHeaders": "true"}) == SinkOptions.parse(LEAST)


def test_include_headers_false_is_refused_because_spark_would_write_them_all_the_same() -> None:
    (line,) = refusal({**LEAST, "includeHeaders": "false"})

    assert "drop the column" in line


@pytest.mark.parametrize("pipeline", ["", "a b", "a/b", "é", ".", "..", "x" * 201, "a\nb"])
def test_a_pipeline_that_is_no_kafka_name_is_refused(pipeline: str) -> None:
    (line,) = refusal({**LEAST, "pipeline": pipeline})

    assert "must be 1 to 200 of the characters" in line


def test_a_pipeline_of_200_legal_characters_is_accepted() -> None:
    assert SinkOptions.parse({**LEAST, "pipeline": "aZ9._-" + "x" * 194}).pipeline.endswith("x")


@pytest.mark.parametrize("name", ["topic", "ledger.topic"])
def test_a_topic_name_that_kafka_refuses_is_refused_here_first(name: str) -> None:
    (line,) = refusal({**LEAST, name: "x" * 250})

    assert line.startswith(f"{name} is 'xxx")
    assert len(line) < 300


def test_the_ledger_cannot_be_the_output() -> None:
    (line,) = refusal({**LEAST, "topic": "exactly-once-ledger"})

    assert "topic of its own" in line


@pytest.mark.parametrize("servers", ["", ",", "broker", "broker:", "broker:0", "broker:65536", "::1:9092", "a b:1"])
def test_brokers_without_a_host_and_a_port_are_refused(servers: str) -> None:
    (line,) = refusal({**LEAST, "kafka.bootstrap.servers": servers})

    assert "must be host:port" in line


@pytest.mark.parametrize("word", ["yes", "1", "", "on"])
def test_only_true_and_false_are_flags_as_in_spark(word: str) -> None:
    (line,) = refusal({**LEAST, "adopt.checkpoint": word})

    assert line.endswith("must be true or false")


def test_an_option_without_a_value_is_named() -> None:
    (line,) = refusal({**LEAST, "topic": None})  # type: ignore[dict-item]

    assert line.startswith("topic has no value")


@pytest.mark.parametrize("value", [["a", "b"], ("a",), {"a"}, {"a": "b"}, b"a", bytearray(b"a")])
def test_a_value_of_a_type_that_spark_has_no_text_for_is_named_without_its_content(value: object) -> None:
    (line,) = refusal({**LEAST, "kafka.sasl.password": value})  # type: ignore[dict-item]

    assert line == (f"kafka.sasl.password is of type {type(value).__name__}: must be text, a number or true/false")


def test_a_path_is_read_as_its_text() -> None:
    options = SinkOptions.parse({**LEAST, "checkpointLocation": Path("/tmp/c")})  # type: ignore[dict-item]

    assert options.checkpoint_location == "/tmp/c"


@pytest.mark.parametrize("options", [None, "topic=out", [("topic", "out")], 3])
@pytest.mark.parametrize("use", [SinkOptions.parse, SourceOptions.parse, parse_ledger, ExactlyOnceWriter])
def test_options_that_are_no_mapping_are_refused(use: Callable[[Any], object], options: object) -> None:
    with pytest.raises(OptionsError, match=f"^the options are of type {type(options).__name__};"):
        use(options)


@pytest.mark.parametrize("use", [SinkOptions.parse, SourceOptions.parse, parse_ledger, ExactlyOnceWriter])
def test_a_name_that_is_no_text_is_refused_and_not_shown(use: Callable[[Any], object]) -> None:
    with pytest.raises(OptionsError, match=r"^the name of an option is of type bytes;") as refused:
        use({**LEAST, b"hunter2": "x"})

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("use", [SinkOptions.parse, SourceOptions.parse, parse_ledger, ExactlyOnceWriter])
def test_a_name_that_no_option_can_have_is_refused_without_all_of_it(use: Callable[[Any], object]) -> None:
    with pytest.raises(OptionsError, match=r"^the name of an option has 5000 characters;") as refused:
        use({**LEAST, "x" * 5_000: "x"})

    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", ["0", "-1", "2147483648", "30s", "1.5"])
def test_a_time_that_is_no_positive_java_int_is_refused(value: str) -> None:
    (line,) = refusal({**LEAST, "kafka.request.timeout.ms": value})

    assert line.startswith(f"kafka.request.timeout.ms is '{value}': must be a whole number of milliseconds")


def test_an_answer_is_waited_for_as_long_as_one_request_at_least() -> None:
    """KIP-533's name; Java's rule."""
    (line,) = refusal({**LEAST, "kafka.request.timeout.ms": "2000", "kafka.default.api.timeout.ms": "1999"})
    assert line.startswith("kafka.default.api.timeout.ms (1999) is less than kafka.request.timeout.ms (2000)")

    plain, long_request, short_answer = (
        SinkOptions.parse({**LEAST, **given}).client
        for given in ({}, {"kafka.request.timeout.ms": "90000"}, {"kafka.default.api.timeout.ms": "3000"})
    )
    assert (plain.request_timeout_ms, plain.api_timeout_ms) == (30_000, 60_000)
    assert (long_request.request_timeout_ms, long_request.api_timeout_ms) == (90_000, 90_000)
    assert (short_answer.request_timeout_ms, short_answer.api_timeout_ms) == (3_000, 3_000)


def test_a_delivery_shorter_than_one_request_is_refused() -> None:
    (line,) = refusal({**LEAST, "kafka.request.timeout.ms": "2000", "kafka.delivery.timeout.ms": "1999"})

    assert "delivery.timeout.ms (1999) is less than" in line


def test_a_default_time_gives_way_to_the_one_that_the_user_set() -> None:
    long_request = SinkOptions.parse({**LEAST, "kafka.request.timeout.ms": "200000"})
    short_delivery = SinkOptions.parse({**LEAST, "kafka.delivery.timeout.ms": "3000"})

    assert long_request.delivery_timeout_ms == long_request.client.delivery_timeout_ms == 200_000
    assert short_delivery.client.request_timeout_ms == 3_000


def test_a_margin_that_leaves_a_transaction_no_time_is_refused() -> None:
    (line,) = refusal({**LEAST, "kafka.transaction.timeout.ms": "10000"})

    assert "kafka.transaction.timeout.ms (10000) leaves no time" in line
    assert SinkOptions.parse({**LEAST, "kafka.transaction.timeout.ms": "10001"}).transaction_timeout_ms == 10_001


def test_a_margin_beyond_kafkas_default_cap_is_refused_when_no_timeout_is_set() -> None:
    (line,) = refusal({**LEAST, "transaction.margin.ms": "900000"})

    assert "not set, at most 900000" in line


def test_a_batch_larger_than_the_largest_request_is_refused_and_a_default_batch_shrinks() -> None:
    (line,) = refusal({**LEAST, "kafka.batch.size": "4097", "kafka.max.request.size": "4096"})

    assert "kafka.batch.size (4097)" in line
    assert SinkOptions.parse({**LEAST, "kafka.max.request.size": "4096"}).batch_bytes == 4_096


def test_a_batch_below_one_kibibyte_is_refused() -> None:
    assert refusal({**LEAST, "kafka.batch.size": "1023"})
    assert SinkOptions.parse({**LEAST, "kafka.batch.size": "1024"}).batch_bytes == 1_024


def test_options_cannot_be_changed_and_pickle_to_equal_ones() -> None:
    options = SinkOptions.parse({**LEAST, "topic": "out"})

    with pytest.raises(Exception, match="cannot assign to field"):
        options.topic = "other"
    assert options.topic == "out"
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_refusal_itself_pickles() -> None:
    with pytest.raises(OptionsError) as caught:
        SinkOptions.parse({})

    assert pickle.loads(pickle.dumps(caught.value)) == caught.value


def test_speculation_is_refused_and_the_setting_named() -> None:
    with pytest.raises(OptionsError, match=r"spark\.speculation=false"):
        refuse_speculation({"spark.speculation": "True"})


@pytest.mark.parametrize("conf", [{}, {"spark.speculation": "false"}, {"spark.speculation.quantile": "true"}])
def test_without_speculation_nothing_is_refused(conf: dict[str, str]) -> None:
    refuse_speculation(conf)


def test_the_documented_defaults_of_the_sink_are_the_real_ones() -> None:
    documented = {name: default for name, default, _ in documented_options("sink")}
    real = SinkOptions.parse(LEAST)

    assert documented["ledger.topic"] == real.ledger_topic
    assert documented["transaction.margin.ms"] == str(real.transaction_margin_ms)
    assert documented["kafka.batch.size"] == str(real.batch_bytes)
    assert documented["kafka.compression.type"] == real.compression
    assert documented["kafka.delivery.timeout.ms"] == str(real.delivery_timeout_ms)
    assert documented["kafka.max.block.ms"] == str(real.max_block_ms)
    assert documented["kafka.client.id"] == real.client.client_id


def test_a_dead_letter_topic_sets_what_becomes_of_bad_records() -> None:
    assert SinkOptions.parse({**LEAST, "dead.letter.topic": "dead"}).on_bad_record == "dead-letter"
    assert SinkOptions.parse(LEAST).on_bad_record == "fail"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on.bad.record": "dead-letter"}, "on.bad.record=dead-letter needs dead.letter.topic"),
        ({"on.bad.record": "fail", "dead.letter.topic": "d"}, "contradicts dead.letter.topic"),
        ({"topic": "t", "dead.letter.topic": "t"}, "dead.letter.topic and topic are both t"),
        ({"dead.letter.topic": "exactly-once-ledger"}, "dead.letter.topic and ledger.topic are both"),
        ({"dead.letter.topic": "d", "kafka.max.request.size": "10000"}, "too small for dead letters"),
    ],
)
def test_dead_letters_that_cannot_work_are_refused(options: Mapping[str, OptionValue], said: str) -> None:
    (line,) = refusal({**LEAST, **options})

    assert said in line


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_the_weaker_guarantees_need_no_pipeline(guarantee: str) -> None:
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "delivery.guarantee": guarantee})

    assert (options.pipeline, options.offsets_group, options.transactional) == ("", "", False)
    assert SinkOptions.parse(LEAST).transactional


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger.topic", "l"),
        ("adopt.checkpoint", "true"),
        ("transaction.margin.ms", "1000"),
        ("transaction.scope", "task"),
        ("kafka.transaction.timeout.ms", "60000"),
        ("kafka.transaction.two.phase.commit.enable", "true"),
    ],
)
def test_an_option_of_transactions_is_refused_without_them(guarantee: str, name: str, value: str) -> None:
    (line,) = refusal({**LEAST, "delivery.guarantee": guarantee, name: value})

    assert line.startswith(f"{name} has no meaning with delivery.guarantee={guarantee}: ")


def test_a_batch_write_needs_no_pipeline_but_for_a_batch_id_and_a_stream_has_no_batch_id() -> None:
    brokers = {"kafka.bootstrap.servers": "b:1"}

    assert SinkOptions.parse(brokers, "batch").pipeline == ""
    assert SinkOptions.parse({**LEAST, "batch.id": "7"}, "batch").batch_id == 7
    with pytest.raises(OptionsError, match=r"batch\.id needs pipeline"):
        SinkOptions.parse({**brokers, "batch.id": "7"}, "batch")
    (line,) = refusal({**LEAST, "batch.id": "7"})
    assert "a stream has Spark's own batch ids" in line


@pytest.mark.parametrize(("name", "value"), [("checkpointLocation", "/c"), ("offsets.group", "g")])
def test_an_option_of_streams_is_refused_in_a_batch_write(name: str, value: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SinkOptions.parse({**LEAST, name: value}, "batch")

    assert caught.value.problems()[0].startswith(name)
