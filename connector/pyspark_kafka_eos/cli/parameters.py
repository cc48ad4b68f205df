"""The options that several commands share.

Owns: their names, their help.
Does not know: what a command does with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", envvar="KAFKA_BOOTSTRAP_SERVERS", help="host:port,... of the brokers"
    ),
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
