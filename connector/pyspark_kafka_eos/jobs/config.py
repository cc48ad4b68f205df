"""The configuration of a job: a YAML file, checked completely before Spark starts.

Owns: the file's form for each shape of job, ${NAME} in its values, and one message for all its problems.
Does not know: the options of source and sink (`pyspark_kafka_eos.options` checks those).
Invariants:
- No field is ignored.
- A message names the field and never shows a value (it may be a password).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from kafka_core.errors import OptionsError
from kafka_core.similar import did_you_mean
from pyspark_kafka_eos.options import OptionValue, SinkOptions, SourceOptions
from pyspark_kafka_eos.options.yaml_file import read_fields, replace_variables

Options = dict[str, OptionValue]

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
"""The types of an option in YAML. Strict, so true stays true and is not read as 1."""


class ConfigError(Exception):
    """The YAML file is invalid; the message has a line for every problem. Nothing was started."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Trigger(_Part):
    """When a micro-batch begins: `processing_time` ("0 seconds": directly after the previous one), or
    `available_now: true` (all present records, then the job ends)."""

    processing_time: str | None = Field(default=None, pattern=r"^\d+ (milli)?(second|minute|hour)s?$")
    available_now: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Trigger:
        if (self.processing_time is not None) == self.available_now:
            raise ValueError("set one of processing_time and available_now: true")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `DataStreamWriter.trigger`."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.processing_time}


class JobConfig(_Part):
    """The common fields of every job: checkpoint, trigger, connection to Kafka.

    `kafka`: settings of every Kafka side, without `kafka.`; the side's own fields override them.
    `spark_defaults`: a file of Spark settings, relative to the YAML file, for settings that spark-submit and
    the cluster leave open.
    """

    app_name: str = Field(min_length=1)
    spark_defaults: Path | None = None
    kafka: dict[str, Scalar] = Field(default_factory=dict)
    checkpoint_location: str = Field(min_length=1)
    trigger: Trigger = Trigger(processing_time="0 seconds")

    def problems(self) -> list[str]:
        """The problems that `pyspark_kafka_eos.options` finds in the options, a line each."""
        return []

    def _with_kafka(self, options: Mapping[str, OptionValue]) -> Options:
        return {**{f"kafka.{name}": value for name, value in self.kafka.items()}, **options}


class ReadsKafka(JobConfig):
    """A job whose source is Kafka."""

    source: dict[str, Scalar]

    @property
    def source_options(self) -> Options:
        """The options for `format("kafka_eos")`."""
        return self._with_kafka(self.source)

    def problems(self) -> list[str]:
        return [*_judged("source", SourceOptions.parse, self.source_options), *super().problems()]


class WritesKafka(JobConfig):
    """A job whose sink is Kafka."""

    sink: dict[str, Scalar]

    @property
    def sink_options(self) -> Options:
        """The options of the sink, `format("kafka_eos")`."""
        return self._with_kafka(self.sink)

    def problems(self) -> list[str]:
        return [*_judged("sink", SinkOptions.parse, self.sink_options), *super().problems()]


class KafkaToKafka(ReadsKafka, WritesKafka):
    """A job from Kafka to Kafka. What it does in between is its own."""


class AnySource(_Part):
    """A streaming source by its name in Spark. `schema` in SQL's form ("id long, name string") where the
    format needs one; `path` where it has one."""

    format: str = Field(min_length=1)
    # Named `columns`, because `schema` is a method of every pydantic model.
    columns: str | None = Field(default=None, alias="schema", min_length=1)
    path: str | None = Field(default=None, min_length=1)
    options: dict[str, Scalar] = Field(default_factory=dict)


class RecordExpressions(_Part):
    """A SQL expression over the source's columns for each column of a record."""

    value: str = Field(min_length=1)
    key: str | None = None
    headers: str | None = None
    topic: str | None = None
    partition: str | None = None
    timestamp: str | None = None

    @property
    def expressions(self) -> list[str]:
        """The arguments of `DataFrame.selectExpr`."""
        return [f"{text} AS {name}" for name, text in self if text is not None]


class ProduceConfig(WritesKafka):
    """Produce only: any streaming source to Kafka."""

    source: AnySource
    columns: RecordExpressions


class TransformConfig(KafkaToKafka):
    """Consume, transform, produce. `columns`: SQL expressions over the columns of the source."""

    columns: RecordExpressions


class Files(_Part):
    """Where and how Spark's file sink writes. `partition_by`: columns that become directories."""

    path: str = Field(min_length=1)
    format: str = Field(default="parquet", min_length=1)
    partition_by: list[str] = Field(default_factory=list)
    options: dict[str, Scalar] = Field(default_factory=dict)


class ConsumeConfig(ReadsKafka):
    """Consume only: from Kafka to files. `columns`: a SQL expression over the source's columns for each
    column of the files; by default the source's own columns."""

    columns: dict[str, str] = Field(default_factory=dict)
    files: Files

    @property
    def expressions(self) -> list[str]:
        """The arguments of `DataFrame.selectExpr`."""
        return [f"{text} AS `{name}`" for name, text in self.columns.items()] or ["*"]


AnyConfig = TypeVar("AnyConfig", bound=JobConfig)


def load_config(path: Path, form: type[AnyConfig], environ: Mapping[str, str] = os.environ) -> AnyConfig:
    """Read and check a job's YAML file; ConfigError naming every wrong field. Contacts no broker.

    ${NAME} in a value is replaced from the environment, ${NAME:-text} by the text where NAME is not set, so
    passwords and addresses need not be in the file.
    """
    problems: list[str] = []
    body = replace_variables(_read(path), environ, problems)
    if problems:
        raise _error(path, problems)
    try:
        config = form.model_validate(body)
    except ValidationError as error:
        problems = [_line(each) for each in error.errors(include_input=False, include_context=False)]
    if problems:
        # Raised outside the handler: the original error contains the values.
        raise _error(path, problems)
    problems = config.problems()
    if problems:
        raise _error(path, problems)
    if config.spark_defaults is not None:
        resolved = path.parent / config.spark_defaults
        if not _is_file(resolved):
            raise _error(path, [f"spark_defaults: there is no file {str(resolved)[:200]}"])
        config = config.model_copy(update={"spark_defaults": resolved})
    return config


def wrong_fields(body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """(what every job refuses in a file's fields, the fields that no job of this package has), a line each. A job
    of one's own may have the latter, unless the name is almost one of ours. Sides' options are not judged."""
    forms = (ProduceConfig, TransformConfig, ConsumeConfig)
    ours = {each.alias or name for form in forms for name, each in form.model_fields.items()}
    refused: list[str] = []
    unknown: list[str] = []
    for name in sorted(map(str, body.keys() - ours)):
        hint = did_you_mean(name, ours, alike=0.7)
        (refused if hint else unknown).append(f"{name}: there is no such field{hint}")
    common = JobConfig.model_fields.keys()
    if body.keys() & (common - {"kafka"}):
        try:
            JobConfig.model_validate({name: each for name, each in body.items() if name in common})
        except ValidationError as error:
            refused += dict.fromkeys(_line(each) for each in error.errors(include_input=False, include_context=False))
    return refused, unknown


def read_spark_defaults(path: Path) -> dict[str, str]:
    """The settings of a file in the form of Spark's own spark-defaults.conf: a name, blanks, a value. ConfigError where
    it is none.
    """
    settings: dict[str, str] = {}
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8: save the file as UTF-8") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, value = line.strip().partition(" ")
        if not name.startswith("spark.") or not value.strip():
            raise ConfigError(f"{path}, line {number}: expected a name that begins with spark. and a value")
        settings[name] = value.strip()
    return settings


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a directory that may not be read
        return False


def _read(path: Path) -> Any:
    try:
        return read_fields(path)
    except OptionsError as error:
        raise ConfigError(error.message) from None


def _judged(side: str, parse: Callable[[Options], object], options: Options) -> list[str]:
    """The problems that pyspark_kafka_eos.options finds in one side's options, a line each."""
    try:
        parse(options)
    except OptionsError as error:
        return [f"{side}: {line}" for line in error.problems()]
    return []


def _line(error: Any) -> str:
    # A value of several possible types is reported once for each type, with the type's name as the last step.
    steps = [str(step) for step in error["loc"] if step not in ("str", "int", "bool", "float")]
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "there is no such field"
    elif error["type"] == "missing":
        message = "this field is missing"
    return f"{'.'.join(steps) or 'the file'}: {message}"


def _error(path: Path, problems: list[str]) -> ConfigError:
    lines = dict.fromkeys(problems)
    return ConfigError("\n".join([f"{path} cannot be used; nothing was started:", *(f"  {each}" for each in lines)]))
