"""A pytest plugin that writes down how each test ended, as it ends, and which code was tested.

Owns: the file of outcomes that `play` reads.
Does not know: breaches.
Invariants: one JSON object a line; what stands there survives the end of the process, however it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

VARIABLE = "RULES_OUTCOMES"
"""Names the file. Without it nothing is written."""


def _write(**fields: str) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


def pytest_sessionstart() -> None:
    """The editable install of the environment must not stand before the copy."""
    import pyspark_kafka_eos

    _write(kind="code", path=str(Path(pyspark_kafka_eos.__file__).resolve()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Phase (setup, call, teardown) and outcome of a test, without its parameters."""
    _write(kind="test", name=report.nodeid.partition("[")[0], when=report.when or "", outcome=report.outcome)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Tests that only Apache Kafka can pass."""
    for item in items:
        _write(kind="left out", name=item.nodeid.partition("[")[0])
