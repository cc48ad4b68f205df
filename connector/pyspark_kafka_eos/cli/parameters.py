"""The options that several commands share.

Owns: their names, their help, their place among a command's own.
Does not know: what a command does with them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pyspark_kafka_eos.cli.given import GivenOptions, gather

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", envvar="KAFKA_BOOTSTRAP_SERVERS", help="host:port,... of the brokers"),
]
Conf = Annotated[
    Path | None,
    typer.Option("--conf-file", "-c", help="a job's YAML file: its fields kafka, sink and source are used"),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="an option of the sink, as in the job; wins over the file",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on standard output, and nothing else")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask before a change")]
OnePipeline = Annotated[str | None, typer.Argument(help="the pipeline; default: the one of the options")]


@dataclass(frozen=True)
class ClusterParameters:
    """What every command that asks a cluster is given: where it is and how to log in, and whether the answer is for a program."""

    bootstrap: str | None
    conf: Path | None
    option: list[str] | None
    as_json: bool

    def given(self) -> GivenOptions:
        """The options; OptionsError where the file or a pair cannot be read."""
        return gather(self.conf, self.option or [], self.bootstrap)


def _parameter(name: str, kind: Any, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_CLUSTER = (_parameter("bootstrap", Bootstrap), _parameter("conf", Conf), _parameter("option", Options))
_AS_JSON = _parameter("as_json", Json, False)


def asking(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: in place of its parameter `asked` it has the options of the cluster, and --json behind all others."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())
    at = next(number for number, each in enumerate(own) if each.name == "asked")
    parameters = [*own[:at], *_CLUSTER, *own[at + 1 :], _AS_JSON]

    @functools.wraps(function)
    def command(**values: Any) -> None:
        shared = {each.name: values.pop(each.name) for each in (*_CLUSTER, _AS_JSON)}
        function(asked=ClusterParameters(**shared), **values)

    vars(command)["__signature__"] = signature.replace(parameters=parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
