"""The parent of one child process: ends it when its owner, the process that asked for it, is gone.

Run as a script by `embedded_kafka.child.processes`, never imported: it has to start fast and must not load the product.

Owns: one child in a session of its own, and the only right to signal it.  As the child's parent the guard can
tell whether the pid is still the child's, so no signal can reach another process that got the same number.
Does not know: what the child does.
Invariants:
- The child ends when the control pipe closes, for whatever reason.  The kernel closes it even after SIGKILL.
- A pipe that a forked copy of the owner still holds open is not enough to keep the child: the guard also
  checks its own parent, which changes when the owner dies.

Arguments: control fd, status fd, grace in milliseconds, a directory that is removed when the owner is gone ("": none),
then the child's command.
Control, one letter each: T = SIGTERM, K = SIGKILL to the child, X = SIGKILL to everything in the child's session.
Status, one line each: "pid N" after the start, "exit CODE" after the end (negative = signal).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# How often the guard checks its own parent.  Only the rare case of a forked copy depends on it: half gains
# nothing; with a minute, a killed test run would leave brokers behind long enough to disturb the next one.
PARENT_CHECK_S = 1.0
PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Runs the command until it ends or its owner is gone; returns 0, or 1 when it cannot be started."""
    control, status, grace_ms = int(argv[0]), int(argv[1]), int(argv[2])
    owner = os.getppid()
    woken_read, woken_write = os.pipe()
    os.set_blocking(woken_write, False)
    signal.set_wakeup_fd(woken_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C goes to the owner, which decides.  After SIGTERM the guard ends the child, then itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))

    try:
        child = subprocess.Popen(argv[4:], start_new_session=True, preexec_fn=_die_with_guard)
    except OSError as error:
        _report(status, f"failed {error}")
        return 1
    _report(status, f"pid {child.pid}")
    abandoned = False
    while child.poll() is None:
        ready, _, _ = select.select([control, woken_read], [], [], PARENT_CHECK_S)
        if woken_read in ready:
            os.read(woken_read, 512)
        orders = os.read(control, 512) if control in ready else None
        abandoned = orders == b"" or os.getppid() != owner
        if abandoned or terminated:
            _end(child, grace_ms)
        elif orders:
            _obey(child, orders)
    _kill_session(child.pid)
    if abandoned and argv[3]:
        # Nobody else is left who could: the owner has no chance to clean up when it is killed.
        shutil.rmtree(argv[3], ignore_errors=True)
    _report(status, f"exit {child.returncode}")
    return 0


def _die_with_guard() -> None:
    """Between fork and exec: asks Linux to kill the child if the guard itself is killed.

    Safe here and nowhere else in the package: the guard has one thread.  (The request is tied to the thread that
    forked, so in an owner with threads the child would die with the thread.)
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _obey(child: subprocess.Popen[bytes], orders: bytes) -> None:
    for order in orders:
        if order == ord("T"):
            child.terminate()
        elif order == ord("K"):
            child.kill()
        elif order == ord("X"):
            _kill_session(child.pid)


def _end(child: subprocess.Popen[bytes], grace_ms: int) -> None:
    """SIGTERM, a bounded wait, SIGKILL; afterwards the child is gone."""
    child.terminate()
    deadline = time.monotonic() + grace_ms / 1000
    while child.poll() is None and time.monotonic() < deadline:
        select.select([], [], [], 0.02)
    if child.poll() is None:
        _kill_session(child.pid)
        child.wait()


def _kill_session(session: int) -> None:
    """SIGKILL to every process of the session; helpers that made process groups of their own are still in it.

    Without /proc (macOS) only the child's own process group is reached.
    """
    if not Path("/proc/self/stat").exists():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        return
    while True:
        members = [pid for pid in _processes() if _session_of(pid) == session]
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], 0.005)


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _session_of(pid: int) -> int | None:
    """The session of a living process; None for one that has ended, even if it is still a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may itself contain blanks and parentheses: state, ppid, pgrp, session follow the last
    # one.
    state, _, _, session = text[text.rindex(")") + 2 :].split()[:4]
    return None if state in "ZX" else int(session)


def _report(status: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(status, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
