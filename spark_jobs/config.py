"""The configuration of a job: a YAML file, checked whole before Spark starts.

Owns: the file's form, ${NAME} in its values, and one message for all that is wrong with it.
Does not know: what the options of source and sink mean; `connector.options` judges those.
Invariants: no field is ignored; a message names the field and never shows a value (it may be a password).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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

from connector.conf_file import read_fields, replace_variables
from connector.errors import OptionsError
from connector.options import SinkOptions, SourceOptions

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
"""What an option may be in YAML. Strict, so that true stays true and is not read as 1."""


class ConfigError(Exception):
    """The YAML file cannot be used; the message has a line for every problem. Nothing was started."""


class Trigger(BaseModel):
    """When a micro-batch begins: `processing_time` ("0 seconds": at once after the one before), or `available_now: true`
    (everything that is there now, then the job ends)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    processing_time: str | None = Field(default=None, pattern=r"^\d+ (milli)?(second|minute|hour)s?$")
    available_now: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Trigger:
        if (self.processing_time is not None) == self.available_now:
            raise ValueError("set one of processing_time and available_now: true")
        return self


class JobConfig(BaseModel):
    """One job: where it reads, where it writes, where it remembers how far it is.

    `kafka`: settings of both sides, without `kafka.`; `source` and `sink` win over it. `spark_defaults`: a file of Spark
    settings, relative to the YAML file, for what spark-submit and the cluster leave open.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    app_name: str = Field(min_length=1)
    spark_defaults: Path | None = None
    kafka: dict[str, Scalar] = Field(default_factory=dict)
    source: dict[str, Scalar]
    sink: dict[str, Scalar]
    checkpoint_location: str = Field(min_length=1)
    trigger: Trigger = Trigger(processing_time="0 seconds")

    @property
    def source_options(self) -> dict[str, str | int | bool | float]:
        """The options for `format("kafka_eos")`."""
        return {**self._shared(), **self.source}

    @property
    def sink_options(self) -> dict[str, str | int | bool | float]:
        """The options for `ExactlyOnceWriter`."""
        return {**self._shared(), **self.sink}

    def _shared(self) -> dict[str, str | int | bool | float]:
        return {f"kafka.{name}": value for name, value in self.kafka.items()}


def load_config(path: Path, environ: Mapping[str, str] = os.environ) -> JobConfig:
    """Read and check a job's YAML file; ConfigError naming every wrong field. Talks to no broker.

    ${NAME} in a value is replaced from the environment, ${NAME:-text} by the text where NAME is not set: passwords and
    addresses need not be in the file.
    """
    problems: list[str] = []
    body = replace_variables(_read(path), environ, problems)
    if problems:
        raise _error(path, problems)
    try:
        config = JobConfig.model_validate(body)
    except ValidationError as error:
        problems = [_line(each) for each in error.errors(include_input=False, include_context=False)]
    if problems:
        # Raised outside of the handler: the original error carries the values.
        raise _error(path, problems)
    problems = [*_judge("source", config), *_judge("sink", config)]
    if problems:
        raise _error(path, problems)
    if config.spark_defaults is not None:
        resolved = path.parent / config.spark_defaults
        if not resolved.is_file():
            raise _error(path, [f"spark_defaults: there is no file {resolved}"])
        config = config.model_copy(update={"spark_defaults": resolved})
    return config


def read_spark_defaults(path: Path) -> dict[str, str]:
    """The settings of a file in the form of Spark's own spark-defaults.conf: a name, blanks, a value."""
    settings: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, value = line.strip().partition(" ")
        if not name.startswith("spark.") or not value.strip():
            raise ConfigError(f"{path}, line {number}: expected a name that begins with spark. and a value")
        settings[name] = value.strip()
    return settings


def _read(path: Path) -> Any:
    try:
        return read_fields(path)
    except OptionsError as error:
        raise ConfigError(error.message) from None


def _judge(side: str, config: JobConfig) -> list[str]:
    """What connector.options has to say of one side, a line each."""
    try:
        if side == "source":
            SourceOptions.parse(config.source_options)
        else:
            SinkOptions.parse(config.sink_options)
    except OptionsError as error:
        return [f"{side}: {line}" for line in error.message.splitlines()[1:]]
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
    return ConfigError(
        "\n".join([f"{path} cannot be used; nothing was started:", *(f"  {each}" for each in lines)])
    )
