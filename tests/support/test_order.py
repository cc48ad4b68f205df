"""The order of the files can be shuffled; a file's tests stay together, in their order.

That a seed means one order is not asked here: xdist refuses to run where its processes have collected differently.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def order(*options: str) -> list[str]:
    """The tests of one directory, in the order in which they would run."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/embedded_kafka/producer_ids",
    ]
    # Without what the caller's shell gives every pytest: a second -q prints no names.
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def by_file(tests: list[str]) -> list[list[str]]:
    """Neighbours of one file together."""
    return [list(group) for _, group in itertools.groupby(tests, lambda test: test.split("::")[0])]


def test_a_seed_moves_files_as_a_whole() -> None:
    plain, shuffled = by_file(order()), by_file(order("--shuffle-files", "1"))

    assert len(plain) > 5
    assert shuffled != plain
    assert sorted(shuffled) == sorted(plain)
