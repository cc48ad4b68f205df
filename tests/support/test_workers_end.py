"""A process of xdist that ends too early is reported with how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ends_its_process() -> None:
    """A test under the name by which the other one asks for it."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.processes
def test_the_signal_that_ended_a_worker_is_shown() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "1",
        "--max-worker-restart",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-o", f"python_functions={ends_its_process.__name__}", str(Path(__file__).relative_to(ROOT))],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode != 0
    assert f"ended with {-signal.SIGKILL} " in done.stderr + done.stdout
