"""The user's input to a command: options one by one, a job's YAML file, or both.

Owns: combining them into the sink's options and, where the query reads Kafka, those of its source.
Does not know: the use of the options.
Invariants:
- An option given by name overrides the file.
- Values are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.jobs.config import wrong_fields
from pyspark_kafka_eos.model.references import names_a_secret
from pyspark_kafka_eos.operations.topic_checks import Check
from pyspark_kafka_eos.options import OptionValue, SinkOptions, SourceOptions
from pyspark_kafka_eos.options.login.security import SECRET_NAMES
from pyspark_kafka_eos.options.yaml_file import read_fields, replace_variables

ANY_PIPELINE = "any"
"""Placeholder for the pipeline where all are meant: the options need one, and no operation uses the name."""

MAX_BLOCK_MS = 15_000
"""How long a command waits for the first answer of a broker. A query waits a minute; after a mistyped port
that is too long."""

_OUR_FORMAT = "kafka_eos"
"""The source of a job that reads Kafka. A source of another format (files, tables) has no Kafka options."""


@dataclass(frozen=True)
class GivenOptions:
    """The sink's and the source's options as the user wrote them, without those of a source that is not
    Kafka. `writes`: the input names something to write to Kafka. `refused`, `unknown`: of the file's fields,
    what a job refuses, and what no job of this package has."""

    sink: dict[str, OptionValue] = field(default_factory=dict)
    source: dict[str, OptionValue] = field(default_factory=dict)
    writes: bool = True
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def options(self, pipeline: str | None, shape: Literal["stream", "batch"] = "stream") -> SinkOptions:
        """The sink's options, checked for a stream or for a write of a DataFrame; `pipeline` overrides the file's. OptionsError
        naming every problem."""
        named = {"pipeline": pipeline} if pipeline is not None else {}
        return SinkOptions.parse({"kafka.max.block.ms": MAX_BLOCK_MS, **self.sink, **named}, shape)

    @property
    def pipeline(self) -> str | None:
        """The pipeline that the options name."""
        name = self.sink.get("pipeline")
        return None if name is None else str(name)

    @property
    def source_options(self) -> SourceOptions | None:
        """The source's options, checked; None where the query does not read Kafka. OptionsError naming every
        problem."""
        return SourceOptions.parse(self.source) if self.source else None


def gather(
    conf_file: Path | None,
    pairs: Sequence[str],
    bootstrap_servers: str | None,
    environ: Mapping[str, str] = os.environ,
) -> GivenOptions:
    """The options of a YAML file (its fields kafka, sink and source), of NAME=VALUE pairs, and of the address."""
    kafka: dict[str, OptionValue] = {}
    sink: dict[str, OptionValue] = {}
    source: dict[str, OptionValue] = {}
    writes = True
    refused: list[str] = []
    unknown: list[str] = []
    if conf_file is not None:
        problems: list[str] = []
        body = replace_variables(read_fields(conf_file), environ, problems)
        if problems:
            raise OptionsError.listing(f"{conf_file} cannot be used", problems)
        refused, unknown = wrong_fields(body)
        kafka, sink = (_mapping(conf_file, body, name) for name in ("kafka", "sink"))
        source = _source(conf_file, body)
        writes = "sink" in body or "source" not in body
    shared = {f"kafka.{name}": value for name, value in kafka.items()}
    if bootstrap_servers is not None:
        shared["kafka.bootstrap.servers"] = bootstrap_servers
    sink, source = {**shared, **sink}, {**shared, **source} if source else {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise OptionsError("-o needs NAME=VALUE, as in -o topic=flights")
        _refuse_visible(name.strip(), value)
        sink[name.strip()] = value
        if name.strip().startswith("kafka.") and not writes:
            source[name.strip()] = value
        else:
            writes = True
    if bootstrap_servers is not None:
        sink["kafka.bootstrap.servers"] = bootstrap_servers
    return GivenOptions(sink, source, writes, tuple(refused), tuple(unknown))


def field_checks(given: GivenOptions) -> list[Check]:
    """What is wrong with the fields of the job's file, beside the sides' options, whose problems are errors."""
    refused = Check("file", "fail", "; ".join(given.refused), "correct the fields: a job refuses the file")
    unknown = Check(
        "file",
        "warn",
        "; ".join(given.unknown),
        "correct the names, unless they are fields of a job of your own",
    )
    return [*([refused] if given.refused else []), *([unknown] if given.unknown else [])]


def _refuse_visible(name: str, value: str) -> None:
    """A secret on the command line stands in the machine's list of processes, for all of its users."""
    is_secret = name.lower().removeprefix("kafka.") in SECRET_NAMES and name.lower().startswith("kafka.")
    if is_secret and not names_a_secret(value):
        raise OptionsError(
            f"-o {name}: a secret on the command line is visible to every user of this machine; name its place instead, as "
            f"in -o '{name}=${{env:NAME}}' or -o '{name}=${{file:/path}}', or give the job's file with -c"
        )


def _source(path: Path, body: Mapping[str, object]) -> dict[str, OptionValue]:
    """The source's options: the field's own values or, where it names a format, those of its field
    `options`."""
    found = body.get("source")
    if not isinstance(found, dict) or "format" not in found:
        return _mapping(path, body, "source")
    if found["format"] != _OUR_FORMAT:
        return {}
    return _mapping(path, found, "options", "source.options")


def _mapping(path: Path, body: Mapping[str, object], name: str, shown: str | None = None) -> dict[str, OptionValue]:
    found, shown = body.get(name) or {}, shown or name
    if not isinstance(found, dict):
        raise OptionsError(f"{path}: {shown}: expected names and values")
    strange = [str(key) for key, value in found.items() if not isinstance(value, (str, int, float, bool))]
    if strange:
        raise OptionsError(f"{path}: {shown}.{strange[0]}: expected one value")
    return {str(key): value for key, value in found.items()}
