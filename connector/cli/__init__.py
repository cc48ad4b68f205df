"""The command line, `kafka-eos`: looks before a query starts, shows what the ledger says, proves the output, ends leftovers.

Owns: starting a command, also where the extra `cli` (typer, rich) is not installed.
Invariants: executors never import this package; `kafka-eos broker` needs no extra.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code: 0 fine, 1 something is wrong, 2 wrong usage, 3 it could not be known."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["broker"]:
        from connector.broker.__main__ import main as broker

        return broker(words[1:])
    try:
        from connector.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"kafka-eos: {error.name} is missing: install the command line with "
            "pip install 'pyspark-kafka-eos[cli]' (kafka-eos broker works without it)\n"
        )
        return 2
    try:
        app(args=words, prog_name="kafka-eos")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


__all__ = ["main"]
