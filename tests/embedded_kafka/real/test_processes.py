"""The process guard: no child outlives whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded_kafka.child.errors import LocalError
from embedded_kafka.child.processes import Child, spawn

# A child that ignores SIGTERM, tells its pid and that of a helper in a process group of its own, and waits for ever.
STUBBORN = """\
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], preexec_fn=lambda: os.setpgid(0, 0))
print(os.getpid(), helper.pid, flush=True)
signal.pause()
"""
# The owner of such a child.  It is itself a process, so that it can be killed.
OWNER = """\
import sys, time
from pathlib import Path
from embedded_kafka.child.processes import spawn
child = spawn([sys.executable, "-c", sys.argv[1]], log_path=Path(sys.argv[2]), grace_ms=100)
{then}
"""
WITHIN_S = 20


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended but was not yet collected by its parent does not."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() != "" and not answer.stdout.strip().startswith("Z")


def eventually(fact: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if fact():
            return True
        time.sleep(0.02)
    return fact()


def pids_in(log: Path) -> list[int]:
    assert eventually(lambda: log.exists() and log.read_text().endswith("\n")), "the child never said its pid"
    return [int(word) for word in log.read_text().split()]


def start_owner(log: Path, then: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", OWNER.format(then=then), STUBBORN, str(log)])


def stubborn(log: Path) -> Child:
    return spawn([sys.executable, "-c", STUBBORN], log_path=log)


def test_a_child_and_its_helpers_end_when_their_owner_is_killed_by_sigkill(tmp_path: Path) -> None:
    owner = start_owner(tmp_path / "log", then="time.sleep(600)")
    child, helper = pids_in(tmp_path / "log")
    assert alive(child)
    assert alive(helper)

    owner.kill()
    owner.wait()

    assert eventually(lambda: not alive(child) and not alive(helper))


def test_a_child_ends_when_its_owner_ends_without_stopping_it(tmp_path: Path) -> None:
    then = "import os\nwhile not Path(sys.argv[2]).read_text(): time.sleep(0.01)\nos._exit(0)"
    owner = start_owner(tmp_path / "log", then)
    owner.wait(WITHIN_S)

    child, helper = pids_in(tmp_path / "log")

    assert eventually(lambda: not alive(child) and not alive(helper))


def test_a_child_ends_though_a_forked_copy_of_its_owner_lives_on(tmp_path: Path) -> None:
    # The copy inherits the control pipe and so keeps it open: the pipe alone would tell the guard nothing.
    copy_pid = tmp_path / "copy"
    then = f"import os\ncopy = os.fork()\nif copy: Path({str(copy_pid)!r}).write_text(str(copy))\ntime.sleep(600)"
    owner = start_owner(tmp_path / "log", then)
    child, _ = pids_in(tmp_path / "log")
    assert eventually(lambda: copy_pid.exists() and copy_pid.read_text() != "")
    copy = int(copy_pid.read_text())
    try:
        owner.kill()
        owner.wait()

        assert eventually(lambda: not alive(child))
        assert alive(copy), "the copy has to live on for the test to mean anything"
    finally:
        os.kill(copy, signal.SIGKILL)


def test_ctrl_c_in_the_terminal_does_not_reach_a_child(tmp_path: Path) -> None:
    child = stubborn(tmp_path / "log")
    pids_in(tmp_path / "log")
    try:
        assert os.getsid(child.pid) == child.pid
        assert os.getsid(child.pid) != os.getsid(0)
    finally:
        child.kill_tree()


def test_stop_kills_what_does_not_heed_sigterm(tmp_path: Path) -> None:
    child = stubborn(tmp_path / "log")
    pid, helper = pids_in(tmp_path / "log")

    code = child.stop(grace_ms=100)

    assert code == -signal.SIGKILL
    assert not alive(pid)
    assert not alive(helper)


def test_a_heeded_sigterm_ends_a_child_before_the_grace_is_over(tmp_path: Path) -> None:
    child = spawn(
        [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"],
        log_path=tmp_path / "log",
    )
    pids_in(tmp_path / "log")

    assert child.stop(grace_ms=WITHIN_S * 1000) == -signal.SIGTERM


def test_kill_takes_the_helpers_with_the_child(tmp_path: Path) -> None:
    child = stubborn(tmp_path / "log")
    pid, helper = pids_in(tmp_path / "log")

    assert child.kill() == -signal.SIGKILL

    assert not alive(pid)
    assert not alive(helper)


def test_a_child_that_has_ended_keeps_its_exit_code_and_takes_no_more_orders(tmp_path: Path) -> None:
    child = spawn([sys.executable, "-c", "raise SystemExit(7)"], log_path=tmp_path / "log")

    assert child.wait(WITHIN_S * 1000) == 7
    assert child.stop() == 7
    assert child.kill() == 7
    assert child.poll() == 7


def test_waiting_has_an_end_and_leaves_the_child_alone(tmp_path: Path) -> None:
    child = stubborn(tmp_path / "log")
    try:
        with pytest.raises(TimeoutError, match=str(child.pid)):
            child.wait(timeout_ms=10)
        assert child.poll() is None
        assert alive(child.pid)
    finally:
        child.kill_tree()


def test_a_command_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(LocalError, match="/no/such/program"):
        spawn(["/no/such/program"])
