"""A job's YAML file: what is wrong with it is said with the field's name, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pyspark_kafka_eos.jobs.config import (
    ConfigError,
    ConsumeConfig,
    JobConfig,
    KafkaToKafka,
    ProduceConfig,
    load_config,
    read_spark_defaults,
)

SHIPPED = Path(__file__).parents[3] / "conf" / "enrich_flights.yaml"
PASSWORD = "correct-horse-battery"


def body(**changes: Any) -> dict[str, Any]:
    """A sound configuration, with fields changed; None takes one away."""
    whole = {
        "app_name": "a job",
        "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
        "source": {"subscribe": "given"},
        "sink": {"topic": "written", "pipeline": "a-pipeline"},
        "checkpoint_location": "/tmp/checkpoint",
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


@pytest.fixture
def refusal(tmp_path: Path) -> Any:
    """The message with which a configuration is refused."""

    def refuse(config: Any, form: type[JobConfig] = KafkaToKafka) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        with pytest.raises(ConfigError) as caught:
            load_config(path, form, environ={})
        message = str(caught.value)
        assert str(path) in message
        return message

    return refuse


def test_the_shipped_file_is_sound_and_needs_no_environment() -> None:
    config = load_config(SHIPPED, KafkaToKafka, environ={})

    assert config.source_options["kafka.bootstrap.servers"] == "127.0.0.1:9092"
    assert config.sink_options["pipeline"] == "enrich-flights"
    assert config.trigger.processing_time == "0 seconds"


def test_a_variable_of_the_environment_replaces_the_default() -> None:
    config = load_config(SHIPPED, KafkaToKafka, environ={"KAFKA_BOOTSTRAP_SERVERS": "broker:1234"})

    assert config.sink_options["kafka.bootstrap.servers"] == "broker:1234"


def test_a_variable_without_value_or_default_is_refused_with_its_field_and_name(refusal: Any) -> None:
    message = refusal(body(kafka={"bootstrap.servers": "${BROKERS_OF_NOBODY}"}))

    assert "kafka.bootstrap.servers: " in message
    assert "BROKERS_OF_NOBODY" in message


@pytest.mark.parametrize("field", ["app_name", "source", "sink", "checkpoint_location"])
def test_a_missing_field_is_named(refusal: Any, field: str) -> None:
    assert f"{field}: this field is missing" in refusal(body(**{field: None}))


def test_an_unknown_field_is_named(refusal: Any) -> None:
    assert "sinc: there is no such field" in refusal(body(sinc={}))


def test_an_unknown_field_inside_another_is_named_with_its_path(refusal: Any) -> None:
    assert "trigger.every: there is no such field" in refusal(body(trigger={"every": "1 second"}))


def test_a_field_of_the_wrong_type_is_named_once(refusal: Any) -> None:
    message = refusal(body(source={"subscribe": ["a", "b"]}))

    assert "source.subscribe: " in message


@pytest.mark.parametrize(
    "trigger",
    [
        {},
        {"available_now": False},
        {"processing_time": "1 second", "available_now": True},
        {"processing_time": "soon"},
    ],
)
def test_a_trigger_that_is_none_or_two_is_refused(refusal: Any, trigger: dict[str, Any]) -> None:
    assert "trigger" in refusal(body(trigger=trigger))


def test_a_misspelt_option_is_named_with_its_side_and_the_nearest_real_one(refusal: Any) -> None:
    message = refusal(body(sink={"topic": "written", "pipelin": "p", "pipeline": "p"}))

    assert "sink: pipelin is not a known option: did you mean pipeline?" in message


def test_problems_of_both_sides_are_in_one_message(refusal: Any) -> None:
    message = refusal(body(source={"startingOffsets": "earliest"}, sink={"topic": "written"}))

    assert "subscribe, subscribePattern, assign; none of them is given" in message
    assert "sink: pipeline is missing" in message


def test_no_value_is_shown_because_it_may_be_a_password(refusal: Any) -> None:
    kafka = {"bootstrap.servers": "b:1", "sasl.password": PASSWORD, "sasl.pasword": PASSWORD}

    assert PASSWORD not in refusal(body(kafka=kafka, checkpoint_location=[PASSWORD]))
    assert PASSWORD not in refusal(body(kafka=kafka))


def test_what_is_no_yaml_is_refused_with_line_and_column(refusal: Any) -> None:
    assert "line 2, column" in refusal("app_name: a\nsink: }\n")


def test_a_file_of_something_else_than_fields_is_refused(refusal: Any) -> None:
    assert "expected fields" in refusal("just words")


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read"):
        load_config(Path("absent.yaml"), KafkaToKafka)


@pytest.mark.parametrize("name", ["absent.conf", "x" * 3_000, "a\0b"])
def test_a_missing_file_of_spark_defaults_is_named(refusal: Any, name: str) -> None:
    assert "spark_defaults: there is no file" in refusal(body(spark_defaults=name))


def test_a_side_wins_over_the_shared_settings(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body(source={"subscribe": "given", "kafka.bootstrap.servers": "other:1"})))

    config = load_config(path, KafkaToKafka)

    assert config.source_options["kafka.bootstrap.servers"] == "other:1"
    assert config.sink_options["kafka.bootstrap.servers"] == "127.0.0.1:9092"


def test_the_shipped_spark_defaults_forbid_speculation_and_bound_arrow_batches() -> None:
    settings = read_spark_defaults(SHIPPED.with_name("spark-defaults.conf"))

    assert settings["spark.speculation"] == "false"
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    # Spark adds a name of 42 bytes, and the path of a socket has 107 at most: 104 on macOS.
    assert 0 < len(settings["spark.python.unix.domain.socket.dir"]) < 60
    assert int(settings["spark.sql.execution.arrow.maxBytesPerBatch"]) > 0
    assert int(settings["spark.sql.execution.arrow.maxRecordsPerBatch"]) > 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("spark.x größe".encode("latin-1"), "is not UTF-8: save the file as UTF-8"),
        ("spark.x 1".encode("utf-16"), "is not UTF-8: save the file as UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_file_of_spark_defaults_that_is_no_text_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "spark-defaults.conf"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=said):
        read_spark_defaults(path)


def test_a_line_of_spark_defaults_without_a_value_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    path.write_text("# why\nspark.speculation\n")

    with pytest.raises(ConfigError, match="line 2"):
        read_spark_defaults(path)


# ---- produce only, consume only


def produced(**changes: Any) -> dict[str, Any]:
    """A sound configuration of a job from any source to Kafka."""
    return body(source={"format": "rate"}, columns={"value": "cast(value AS string)"}) | changes


def consumed(**changes: Any) -> dict[str, Any]:
    """A sound configuration of a job from Kafka to files."""
    return body(sink=None, files={"path": "/tmp/files"}) | changes


@pytest.mark.parametrize(("name", "form"), [("produce", ProduceConfig), ("consume", ConsumeConfig)])
def test_the_other_shipped_files_are_sound_and_need_no_environment(name: str, form: type[JobConfig]) -> None:
    config = load_config(SHIPPED.with_name(f"{name}.yaml"), form, environ={})

    assert config.app_name == name
    assert config.trigger.arguments == {"availableNow": True}


def test_the_columns_of_a_record_become_expressions_and_those_left_out_are_none(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(produced(columns={"value": "to_json(struct(*))", "key": "id"})))

    config = load_config(path, ProduceConfig)

    assert sorted(config.columns.expressions) == ["id AS key", "to_json(struct(*)) AS value"]


def test_a_column_that_no_record_has_is_named(refusal: Any) -> None:
    message = refusal(produced(columns={"value": "v", "offset": "1"}), ProduceConfig)

    assert "columns.offset: there is no such field" in message


def test_a_record_without_value_is_refused(refusal: Any) -> None:
    assert "columns.value: this field is missing" in refusal(produced(columns={"key": "id"}), ProduceConfig)


def test_a_source_without_format_is_refused(refusal: Any) -> None:
    assert "source.format: this field is missing" in refusal(produced(source={"path": "/x"}), ProduceConfig)


def test_the_sink_of_a_job_that_only_produces_is_judged(refusal: Any) -> None:
    assert "sink: pipeline is missing" in refusal(produced(sink={"topic": "t"}), ProduceConfig)


def test_the_source_of_a_job_that_only_consumes_is_judged(refusal: Any) -> None:
    assert "subscribe, subscribePattern, assign; none of them is given" in refusal(consumed(source={}), ConsumeConfig)


def test_a_job_that_only_consumes_has_no_sink(refusal: Any) -> None:
    message = refusal(consumed(sink={"topic": "t", "pipeline": "p"}), ConsumeConfig)

    assert "sink: there is no such field" in message


def test_without_columns_the_files_get_those_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(consumed()))

    config = load_config(path, ConsumeConfig)

    assert config.expressions == ["*"]
    assert config.files.format == "parquet"
