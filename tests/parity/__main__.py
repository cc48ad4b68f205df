"""`make judged`: foreign clients against the embedded broker and, unchanged, against real Kafka; a table of it.

    .venv/bin/python -m tests.parity [--write] [--json FILE] [further arguments of pytest, such as -k embedded]

Exits as pytest does: with 1 where a test failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.parity import report

TESTS = Path(__file__).resolve().parents[1]
# What is played to both kinds of broker, and foreign clients on the embedded one alone: through kills, on its cluster.
MARKED = "parity or (judged and embedded and not long)"
# A file's tests stay together: each has brokers of its own. They wait for their brokers most of the time.
FOUR_AT_A_TIME = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")


def main() -> int:
    """Run, print the table, write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/embedded-broker.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the outcomes")
    arguments, further = parser.parse_known_args()
    recorder = report.Recorder()
    code = pytest.main([str(TESTS), "-m", MARKED, "--durations=20", *FOUR_AT_A_TIME, *further], plugins=[recorder])
    print(report.table(recorder.outcomes))  # noqa: T201  a command's output
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(each) for each in recorder.outcomes], indent=1))
    if arguments.write:
        report.write_into(report.PAGE, recorder.outcomes)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
