"""Child processes of a benchmark, and the CPU time and memory that a tree of processes has used so far.

Owns: one line of JSON to a child, one back; counting CPU time and memory in /proc.
Does not know: the measured work.
Invariants:
- A child ends when its parent does, in any way: its stdin closes.
- Numbers are the kernel's, in ticks of 10 ms, so a measurement has to last a second or more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_ENDS_WITHIN_S = 30

# Fields of /proc/<pid>/stat counted from the one after the command's name (proc(5)): state, ppid, ...
PARENT = 1
_OWN = slice(11, 13)  # utime, stime
_WAITED = slice(13, 15)  # and those of the children that were waited for


class ChildFailed(Exception):
    """A child process reported a failure, or ended; the message contains its output."""


class Child:
    """A Python module run as a process of its own that answers requests: `serve` is its side. Use it as a context."""

    def __init__(
        self, python: str, module: str, *arguments: str, log: Path, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.name = f"{module} {' '.join(arguments)}"
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                # Spark's Python workers have to find this package too.
                env={**environ, "PYTHONPATH": str(ROOT)},
                text=True,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; ChildFailed where there is none."""
        self.tell(action, **arguments)
        return self.answer()

    def tell(self, action: str, **arguments: Any) -> None:
        """Send a request; a call of `answer` must follow."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"action": action, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("it has ended") from None

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest unanswered request."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("it has ended")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise self._failure(answer["failure"])
        return answer

    def close(self) -> None:
        """End the process; kills it if it does not end by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _failure(self, why: str) -> ChildFailed:
        tail = self._log.read_text(errors="replace")[-3000:]
        return ChildFailed(f"{self.name}: {why}\n{tail}")


def serve(actions: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """The child's side: carry out requests until the parent closes the pipe. Answers go to the original
    standard output."""
    # Whatever prints (Spark's launcher does) must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = dict(actions[request.pop("action")](**request))
        except Exception:  # noqa: BLE001  the parent has to hear of every failure
            answer = {"failure": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def serve_application(make: Callable[[str, str], Any], actions: Sequence[str]) -> None:
    """The child's side where the command line names the broker and the JVM's jars: `make` gets both, and these methods
    of what it makes answer until the parent exits.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("--jars", default="", help="for the JVM, separated by commas")
    arguments = parser.parse_args()
    application = make(arguments.bootstrap_servers, arguments.jars)
    serve({name: getattr(application, name) for name in actions})


def processes_under(root: int) -> dict[int, list[str]]:
    """Process id -> the fields of its /proc/<pid>/stat after the name, and last the name, for `root` and its
    descendants.
    """
    found: dict[int, list[str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue  # it ended while we looked
            # The name stands in parentheses and may contain anything.
            found[int(entry)] = text[text.rindex(")") + 2 :].split()
            found[int(entry)].append(text[text.index("(") + 1 : text.rindex(")")])
    tree: dict[int, list[str]] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in found and pid not in tree:
            tree[pid] = found[pid]
            waiting.extend(child for child, fields in found.items() if int(fields[PARENT]) == pid)
    return tree


def cpu_seconds(root: int) -> float:
    """CPU time, user and system, that `root` and its descendants have used, including children that have
    ended."""
    return sum(each.own + each.waited for each in usage(root).values())


JAVA, PYTHON = "java", "python"


@dataclass(frozen=True)
class Used:
    """What a process has used so far, in seconds: itself, and its children that have ended and were waited for."""

    kind: str
    parent: int
    own: float
    waited: float


def usage(root: int) -> dict[int, Used]:
    """Process id -> what it has used, for `root` and its descendants. Of a Spark application, all that is not Java is
    Python.
    """
    found = {}
    for pid, fields in processes_under(root).items():
        own, waited = (sum(map(int, fields[part])) * _TICK_S for part in (_OWN, _WAITED))
        found[pid] = Used(JAVA if fields[-1] == JAVA else PYTHON, int(fields[PARENT]), own, waited)
    return found


def between(before: Mapping[int, Used], after: Mapping[int, Used]) -> dict[str, float]:
    """Seconds of CPU by kind between two moments. A process that has ended takes nothing with it that it had used
    before.
    """
    found = {JAVA: 0.0, PYTHON: 0.0}
    nothing = Used(PYTHON, 0, 0.0, 0.0)
    for pid, now in after.items():
        then = before.get(pid, nothing)
        ended = sum(
            each.own + each.waited for child, each in before.items() if each.parent == pid and child not in after
        )
        found[now.kind] += now.own - then.own + max(0.0, now.waited - then.waited - ended)
    return found


def python_peaks(root: int) -> Iterator[tuple[int, str, float]]:
    """(pid, command line, peak resident MB) of the Python processes of the tree that are alive."""
    for pid in processes_under(root):
        try:
            command = Path("/proc", str(pid), "cmdline").read_text().replace("\0", " ").strip()
            status = Path("/proc", str(pid), "status").read_text()
        except OSError:
            continue
        peaks = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        if "python" in command.split(" ")[0] and peaks:
            yield pid, command, int(peaks[0].split()[1]) / 1024


@dataclass(frozen=True)
class Holds:
    """What one process holds: MB of resident memory, MB with only its share of pages that others have too, threads,
    open files.
    `runs`: the last word of its command.
    """

    runs: str
    resident_mb: float
    share_mb: float
    threads: int
    files: int


def holds(pid: int) -> Holds | None:
    """None where the process has ended."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        files = len(os.listdir(f"/proc/{pid}/fd"))
        share = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
        command = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        return Holds(
            command[-1],
            int(status["VmRSS"].split()[0]) / 1024,
            int(share.split()[1]) / 1024,
            int(status["Threads"]),
            files,
        )
    except (OSError, KeyError, StopIteration):
        return None
