"""A test run that is interrupted or killed leaves no broker and no Spark behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support import leftovers

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0
"""Ended in a second or two; a stop that nobody hurries may take a broker 10 s."""

WAITS = """
import time

def test_that_waits({fixture}):
    print("it runs", flush=True)
    # In pieces: a signal that comes on the way into a wait is looked at when the wait is over.
    while True:
        time.sleep(0.05)
"""


# Who starts the tests in the background has them, and all that they start, ignore Ctrl-C.
RUN = """
import signal, sys
import pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def waiting_run(directory: Path, fixture: str) -> subprocess.Popen[str]:
    """A test run of its own whose one test has this fixture, and waits for ever."""
    (directory / "test_waiting.py").write_text(WAITS.format(fixture=fixture))
    alone = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(directory)]
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "-s", *alone, str(directory)],
        # A killed run cannot remove its temporary files; so they go with its directory.
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("fixture", "how"),
    [
        pytest.param("kafka", signal.SIGINT, marks=pytest.mark.kafka),
        pytest.param("kafka", signal.SIGKILL, marks=pytest.mark.kafka),
        pytest.param("spark", signal.SIGKILL, marks=pytest.mark.spark),
    ],
)
def test_a_run_that_is_ended_takes_what_it_started_with_it(fixture: str, how: signal.Signals) -> None:
    before = leftovers.open_now()

    def running() -> list[str]:
        now = leftovers.open_now()
        return [text for each, text in now.items() if each.kind == "process" and each not in before]

    # Not tmp_path: the names of sockets in it would be longer than the system allows.
    with tempfile.TemporaryDirectory() as directory, waiting_run(Path(directory), fixture) as run:
        try:
            assert run.stdout is not None
            assert any("it runs" in line for line in run.stdout), "the test never began"
            assert len(running()) > 1, "only the run itself was there"

            run.send_signal(how)

            assert run.wait(WITHIN_S) == (-how if how == signal.SIGKILL else pytest.ExitCode.INTERRUPTED)
            deadline = time.monotonic() + WITHIN_S
            while left := running():
                assert time.monotonic() < deadline, left
                time.sleep(leftovers.LOOK_AGAIN_AFTER_S)
        finally:
            run.kill()
