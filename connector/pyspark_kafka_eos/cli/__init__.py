"""The command line, `kafka-eos`: checks before a query starts, shows the ledger, proves the output, ends
leftovers.

Owns: starting a command, also where the extra `cli` (typer, rich) is not installed.
Invariants:
- Executors never import this package.
- `kafka-eos broker`, `job` and `warm` do not need the extra `cli`.
"""

from __future__ import annotations

import json
import sys

_INTERRUPTED = 130
_INTERRUPTED_DOCUMENT = {
    "command": "", "format": 1, "exit_code": _INTERRUPTED,
    "error": {"class": "Interrupted", "message": "interrupted: nothing was changed", "facts": {},
              "who_acts": "the one who interrupted it"},
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Exit code: 0 fine, 1 something is wrong, 2 wrong usage, 3 outcome unknown, 130
    interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["broker"]:
        from embedded_kafka.__main__ import main as broker

        return broker(words[1:])
    if words[:1] == ["job"]:
        from pyspark_kafka_eos.jobs.__main__ import main as job

        return job(words[1:])
    if words[:1] == ["warm"]:
        from pyspark_kafka_eos.records.warm import main as warm

        return warm(words[1:])
    try:
        from pyspark_kafka_eos.cli.answering import USAGE_ERROR, wrong_usage
        from pyspark_kafka_eos.cli.app import app
    except KeyboardInterrupt:
        return _interrupted_at_once(words)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "rich"):
            raise
        return _without_extra(missing, words)
    try:
        if "--json" in words:
            ended = app(args=words, prog_name="kafka-eos", standalone_mode=False)
            return ended if isinstance(ended, int) else 0
        app(args=words, prog_name="kafka-eos")
    except USAGE_ERROR as error:
        return wrong_usage(error, words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        # The command has printed its state, or was about to.
        sys.stderr.write("kafka-eos: interrupted\n")
        return _INTERRUPTED
    return 0


def _interrupted_at_once(words: list[str]) -> int:
    """Interrupted before the modules that print answers were loaded."""
    if "--json" in words:
        sys.stdout.write(json.dumps(_INTERRUPTED_DOCUMENT, indent=2) + "\n")
    else:
        sys.stderr.write("kafka-eos: interrupted: nothing was changed\n")
    return _INTERRUPTED


def _without_extra(missing: str, words: list[str]) -> int:
    text = (
        f"{missing} is missing: install the command line with pip install 'pyspark-kafka-eos[cli]' (kafka-eos "
        "broker, job and warm work without it)"
    )
    if "--json" in words:
        from kafka_core.errors import OptionsError
        from pyspark_kafka_eos.cli import documents

        sys.stdout.write(json.dumps(documents.failed("", OptionsError(text)), indent=2) + "\n")
    else:
        sys.stderr.write(f"kafka-eos: {text}\n")
    return 2


__all__ = ["main"]
