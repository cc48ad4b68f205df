"""Child processes that cannot outlive the process that started them.

Owns: starting a child under a guard (see guard.py), and ending it.
Does not know: what the child is.
Invariants: a child is signalled only while it is certainly still that child; every wait has an end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedded_kafka.child.errors import LocalError

# A broker writes its state in well under 2 s when asked to stop.  With half, a loaded machine kills brokers
# that were about to end cleanly; with double, Ctrl-C feels broken.
GRACE_MS = 10_000
# SIGKILL takes effect at once; only a process in an uninterruptible system call (a full disk) needs seconds.
KILLED_WITHIN_MS = 10_000
_GUARD = Path(__file__).with_name("guard.py")
_living: set[Child] = set()


class Child:
    """A running child process.

    `pid` is the child's own pid, which leads a session of its own: Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, guard: subprocess.Popen[bytes], control: int, status: int, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._guard = guard
        self._control = control
        self._status = status
        self._exit_code: int | None = None
        self._buffer = b""
        self._lock = threading.Lock()
        kind, _, rest = (self._read_line(KILLED_WITHIN_MS) or "failed the guard did not answer").partition(" ")
        if kind != "pid":
            self._close()
            raise LocalError(f"Could not start {command[0]}: {rest}")
        self.pid = int(rest)
        _living.add(self)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the child runs."""
        return self._collect(timeout_ms=0)

    def wait(self, timeout_ms: int) -> int:
        """The exit code; raises TimeoutError, and leaves the child alone, when it still runs after that time."""
        code = self._collect(timeout_ms)
        if code is None:
            raise TimeoutError(f"{self.command[0]} (pid {self.pid}) still runs after {timeout_ms} ms")
        return code

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        self._order(b"T")

    def stop(self, grace_ms: int = GRACE_MS) -> int:
        """SIGTERM, and SIGKILL to the child's whole session if that does not help; returns the exit code."""
        self.ask_to_stop()
        code = self._collect(grace_ms)
        return self.kill_tree() if code is None else code

    def kill(self) -> int:
        """SIGKILL; returns when the child is gone.  Its own child processes are killed after it."""
        self._order(b"K")
        return self.wait(KILLED_WITHIN_MS)

    def kill_tree(self) -> int:
        """SIGKILL to the child and, in the same moment, to everything in its session."""
        self._order(b"X")
        return self.wait(KILLED_WITHIN_MS)

    def _order(self, letter: bytes) -> None:
        with (
            self._lock,
            contextlib.suppress(BrokenPipeError),
        ):  # broken: it has ended already, and so has the guard
            if self._exit_code is None:
                os.write(self._control, letter)

    def _collect(self, timeout_ms: int) -> int | None:
        with self._lock:
            if self._exit_code is None:
                line = self._read_line(timeout_ms)
                if line is not None:
                    # An empty line is the guard's own death; Linux has then killed the child with SIGKILL.
                    self._exit_code = int(line.removeprefix("exit ")) if line else -9
                    self._close()
            return self._exit_code

    def _read_line(self, timeout_ms: int) -> str | None:
        """The guard's next line, "" when the guard is gone, None when the time is up."""
        deadline = time.monotonic() + timeout_ms / 1000
        # Not select(), which cannot watch descriptors above 1023.
        waiting = select.poll()
        waiting.register(self._status, select.POLLIN)
        while b"\n" not in self._buffer:
            if not waiting.poll(max(0, (deadline - time.monotonic()) * 1000)):
                return None
            read = os.read(self._status, 4096)
            if not read:
                return ""
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def _close(self) -> None:
        os.close(self._control)
        os.close(self._status)
        self._guard.wait()
        _living.discard(self)


def spawn(
    command: Sequence[str | Path],
    *,
    log_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    grace_ms: int = GRACE_MS,
    temporary: Path | None = None,
) -> Child:
    """Starts the command; it reads nothing, and writes to `log_path` (appending) or to where this process writes.

    Guarantee: when this process ends, in whatever way, the child is asked to end, is killed `grace_ms` later,
    and no process that it started in its session survives it. `temporary`: a directory that then goes with it.
    """
    words = [str(word) for word in command]
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    arguments = [
        sys.executable,
        "-I",
        "-S",
        str(_GUARD),
        str(control_read),
        str(status_write),
        str(grace_ms),
        "" if temporary is None else str(temporary),
        *words,
    ]
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, control_read)
        stack.callback(os.close, status_write)
        output = None if log_path is None else stack.enter_context(log_path.open("ab"))
        guard = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            pass_fds=(control_read, status_write),
            start_new_session=True,
        )
    return Child(guard, control_write, status_read, words)


@atexit.register
def _stop_all() -> None:
    for child in list(_living):
        with contextlib.suppress(OSError, TimeoutError):
            child.stop()
