"""What the user gave a command: options one by one, a job's YAML file, or both.

Owns: putting them together into the sink's options and the topics that the query reads.
Does not know: what is done with them.
Invariants: what is given by name wins over the file; values are never shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connector.conf_file import read_fields, replace_variables
from connector.errors import OptionsError
from connector.options import OptionValue, SinkOptions

ANY_PIPELINE = "any"
"""Stands for the pipeline where all are meant: the options need one, and nothing is done under its name."""

_MAX_BLOCK_MS = "15000"
"""How long a command waits for a broker to answer at all. A query waits a minute; a person who mistyped a port should not."""


@dataclass(frozen=True)
class Given:
    """The sink's and the source's options as the user wrote them."""

    sink: dict[str, OptionValue] = field(default_factory=dict)
    source: dict[str, OptionValue] = field(default_factory=dict)

    def options(self, pipeline: str | None) -> SinkOptions:
        """The sink's options, checked; `pipeline` wins over the one of the file. OptionsError for what is wrong."""
        named = {"pipeline": pipeline} if pipeline is not None else {}
        return SinkOptions.parse({"kafka.max.block.ms": _MAX_BLOCK_MS, **self.sink, **named})

    @property
    def pipeline(self) -> str | None:
        """The pipeline that the options name."""
        name = self.sink.get("pipeline")
        return None if name is None else str(name)

    @property
    def source_topics(self) -> list[str]:
        """The topics that the query names as its source; those of a pattern are not known here."""
        assign = self.source.get("assign")
        if assign is not None:
            try:
                return sorted(map(str, json.loads(str(assign))))
            except ValueError:
                raise OptionsError(
                    "source: assign is no JSON object of topics and their partitions"
                ) from None
        names = str(self.source.get("subscribe") or "").split(",")
        return sorted({name.strip() for name in names if name.strip()})


def gather(
    conf_file: Path | None,
    pairs: Sequence[str],
    bootstrap_servers: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Given:
    """The options of a YAML file (its fields kafka, sink and source), of NAME=VALUE pairs, and of the address."""
    kafka: dict[str, OptionValue] = {}
    sink: dict[str, OptionValue] = {}
    source: dict[str, OptionValue] = {}
    if conf_file is not None:
        problems: list[str] = []
        body = replace_variables(read_fields(conf_file), environ, problems)
        if problems:
            raise OptionsError("\n".join([f"{conf_file} cannot be used:", *problems]))
        kafka, sink, source = (_mapping(conf_file, body, name) for name in ("kafka", "sink", "source"))
    shared = {f"kafka.{name}": value for name, value in kafka.items()}
    sink, source = {**shared, **sink}, {**shared, **source}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise OptionsError("-o wants NAME=VALUE, as in -o topic=flights")
        sink[name.strip()] = value
    if bootstrap_servers is not None:
        sink["kafka.bootstrap.servers"] = bootstrap_servers
    return Given(sink, source)


def _mapping(path: Path, body: Mapping[str, object], name: str) -> dict[str, OptionValue]:
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise OptionsError(f"{path}: {name}: expected names and values")
    strange = [str(key) for key, value in found.items() if not isinstance(value, (str, int, float, bool))]
    if strange:
        raise OptionsError(f"{path}: {name}.{strange[0]}: expected one value")
    return {str(key): value for key, value in found.items()}
