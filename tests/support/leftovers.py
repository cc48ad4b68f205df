"""What a file of tests leaves behind: threads, sockets and processes that it has opened and not closed.

Such things disturb the tests of other files: a client whose broker is gone logs for as long as the process lives, and a
process that nobody ends keeps its port and its memory. So a file that leaves something behind fails, by its name.

Owns: who opened what; the comparison at the end of each file; closing the connections that the product keeps for the
process.
Does not know: brokers, Spark's own life.
Invariants: what a fixture of the whole session opened is not the file's; nor are the connections and threads that
PySpark keeps for its one gateway; a file with a failed test is not judged, because the failure's traceback keeps alive
what the test had.

A pytest plugin (tests/conftest.py loads it). Sockets and processes are seen on Linux only, threads everywhere.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import stat
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

ENDS_WITHIN_S = 10.0
"""What was told to end is waited for: a guard looks at its parent once a second, and on a busy machine a thread needs a
while to end after its loop was stopped. Half of it is too little for a loaded machine; double only delays the failure.
"""

LOOK_AGAIN_AFTER_S = 0.02
MARK = "KAFKA_EOS_TESTS"
"""A variable by which processes of this run are known after their parent has ended. A run inside of a run adds to
it.
"""

_FRAMES = 6
_COMMAND_CHARS = 200
_LIBRARY = (sysconfig.get_path("stdlib"), "<frozen", __file__)
_PYTHONS_OWN = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""Python keeps one of each for as long as the process lives. What the first has forked is not one of them."""

_IN_A_THREAD = "in a thread that was started by"
_PYTEST = f"{os.sep}_pytest{os.sep}"
_SPARKS = (f"{os.sep}pyspark{os.sep}", f"{os.sep}py4j{os.sep}")


class Leftover(NamedTuple):
    """One thing that is open: what kind of thing, and a number that no other of its kind has had."""

    kind: str
    number: tuple[int, ...]


class _Opener(NamedTuple):
    test: str
    frames: tuple[str, ...]

    def __str__(self) -> str:
        return "".join([f", opened by {self.test}", *(f"\n      {frame}" for frame in self.frames)])

    @property
    def is_spark(self) -> bool:
        """PySpark opened it for itself: ours does not stand below it."""
        nearest = next((frame for frame in self.frames if frame != _IN_A_THREAD), "")
        return any(part in nearest for part in _SPARKS)


_opened_by: weakref.WeakKeyDictionary[Any, _Opener] = weakref.WeakKeyDictionary()
_of_the_session: set[Leftover] = set()
_ending: list[pytest.Function] = []
_mark = ""


def open_now() -> dict[Leftover, str]:
    """Everything that is open in this process or was started by it, each with what there is to say of it."""
    return {**_threads(), **_sockets(), **_processes()}


def left_since(before: Mapping[Leftover, str]) -> list[str]:
    """What was opened since and is still open, after waiting for what is about to end; a text for each."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    left = _new(before)
    if left:
        # Libraries leave some of their sockets to the garbage collector.
        _let_failures_go()
        gc.collect()
        left = _new(before)
    while left and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_AFTER_S)
        left = _new(before)
    return list(left.values())


def _let_failures_go() -> None:
    """Make log records plain text: pytest keeps the records of a test for a moment longer than the test, an error in
    one keeps the frames that it went through, and a frame its clients."""
    for each in gc.get_objects():
        if type(each) is logging.LogRecord:
            each.msg, each.args, each.exc_info = each.getMessage(), None, None


def _new(before: Mapping[Leftover, str]) -> dict[Leftover, str]:
    known = before.keys() | _of_the_session
    return {each: text for each, text in open_now().items() if each not in known}


# ---- pytest's side


def pytest_configure(config: pytest.Config) -> None:
    """From here on it is known who opened what."""
    global _mark
    # pytest holds on to a plugin by its name, so this runs once in a process.
    _mark = f"{os.environ.get(MARK, '')}/{os.getpid()}-{time.time_ns()}"
    os.environ[MARK] = _mark
    sys.addaudithook(_audit)
    threading.Thread.start = _start_and_note  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """What is opened for the whole session is not left by the file whose test was the first to want it."""
    if fixturedef.scope not in ("session", "package"):
        return (yield)
    before = open_now()
    try:
        return (yield)
    finally:
        _of_the_session.update(open_now().keys() - before.keys())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Which test is the last of its file is known by its teardown only."""
    if isinstance(item, pytest.Function):
        _ending.append(item)
    try:
        return (yield)
    finally:
        _ending.clear()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a file that leaves behind what it has opened."""
    before, failed = open_now(), request.session.testsfailed
    yield
    # pytest holds on to the values of a test's fixtures until all is torn down; clients end when nobody holds them.
    for item in _ending:
        item.funcargs.clear()
    close_shared()
    if request.session.testsfailed == failed and not _beside_real_brokers(request):
        left = left_since(before)
        if left:
            what = "\n".join(f"  - {text}" for text in left)
            pytest.fail(f"{request.path.name} leaves open what it has opened:\n{what}", pytrace=False)


def _beside_real_brokers(request: pytest.FixtureRequest) -> bool:
    """The harness of real brokers is not what users get. What it keeps for the whole run is ended with that."""
    if request.config.getoption("--brokers", "embedded") == "real":
        return True
    return any(item.path == request.path and item.get_closest_marker("parity") for item in request.session.items)


def close_shared() -> None:
    """Close the connections that the product keeps for as long as a process lives."""
    # Files without a cluster need not load it.
    if "pyspark_kafka_eos.client.cluster" in sys.modules:
        sys.modules["pyspark_kafka_eos.client.cluster"].Cluster.close_shared()
    if "pyspark_kafka_eos.spark.sink.attempt_answers" in sys.modules:
        sys.modules["pyspark_kafka_eos.spark.sink.attempt_answers"].close()


# ---- who opened it


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.__new__" and isinstance(arguments[0], socket.socket):
        _opened_by[arguments[0]] = _opener()


_start = threading.Thread.start


def _start_and_note(thread: threading.Thread) -> None:
    """Thread.start; Python 3.11 has no audit event for it."""
    _opened_by[thread] = _opener()
    _start(thread)


def _opener() -> _Opener:
    frames: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(frames) < _FRAMES and _PYTEST not in frame.f_code.co_filename:
        code = frame.f_code
        if "site-packages" in code.co_filename or not code.co_filename.startswith(_LIBRARY):
            frames.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    before = _opened_by.get(threading.current_thread())
    if before is not None:
        frames += [_IN_A_THREAD, *before.frames]
    return _Opener(os.environ.get("PYTEST_CURRENT_TEST", "no test"), tuple(frames))


# ---- threads


def _threads() -> dict[Leftover, str]:
    found: dict[Leftover, str] = {}
    for thread in threading.enumerate():
        # Nobody started the threads that libraries made without Python, which come to be here when they log.
        opener = _opened_by.get(thread)
        if opener is not None and not opener.is_spark and thread.native_id is not None:
            found[Leftover("thread", (thread.native_id,))] = f"thread {thread.name!r}{opener}"
    return found


# ---- sockets


def _sockets() -> dict[Leftover, str]:
    numbers = Path("/proc/self/fd")
    if not numbers.exists():
        return {}
    # keyrefs() is one step: other threads open sockets at the same time.
    opened = [each for reference in _opened_by.keyrefs() if isinstance(each := reference(), socket.socket)]
    openers = {each.fileno(): _opened_by.get(each) for each in opened}
    found: dict[Leftover, str] = {}
    for number in map(int, os.listdir(numbers)):
        try:
            status = os.fstat(number)
        except OSError:
            continue  # the listing itself
        opener = openers.get(number)
        if stat.S_ISSOCK(status.st_mode) and not (opener and opener.is_spark):
            ends = _ends_of(number)
            if ends is not None:
                text = f"socket {ends}{opener or ', opened by a library that is not Python'}"
                found[Leftover("socket", (status.st_ino,))] = text
    return found


def _ends_of(number: int) -> str | None:
    """Between whom it is; None for one that reaches nobody. kafka-python leaves those to the garbage collector when
    nobody listens where it wants to connect, and a captured log record may keep the failure, and so the socket, for as
    long as its test.
    """
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            ours = copy.getsockname()
            try:
                return f"{ours} to {copy.getpeername()}"
            except OSError:
                listens = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                return f"{ours} that listens" if listens or copy.type != socket.SOCK_STREAM else None
    except OSError:
        return None  # closed a moment ago by another thread


# ---- processes


def _processes() -> dict[Leftover, str]:
    """Children of this process, their children, and what once was one of them."""
    if not Path("/proc/self/stat").exists():
        return {}
    parents = {pid: parent for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if (parent := _parent(pid))}
    found: dict[Leftover, str] = {}
    for pid, (_, began) in parents.items():
        above = list(_ancestors(pid, parents))[1:]
        test = _mark_of(pid)
        if os.getpid() not in above and (test is None or pid == os.getpid()):
            continue
        # What a process of the session starts (a worker of Spark's, a broker under its guard) is the session's.
        if any(Leftover("process", (each, parents[each][1])) in _of_the_session for each in above):
            continue
        command = _command(pid)
        if not any(each in command for each in _PYTHONS_OWN):
            who = f", started by {test}" if test else ""
            found[Leftover("process", (pid, began))] = f"process {pid}: {command}{who}"
    return found


def _parent(pid: int) -> tuple[int, int] | None:
    """The parent of a living process, and when it began; None for one that has ended, even if nobody has collected it
    yet.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may itself contain blanks and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def _ancestors(pid: int, parents: Mapping[int, tuple[int, int]]) -> Iterator[int]:
    while pid in parents:
        yield pid
        pid, _ = parents[pid]


def _mark_of(pid: int) -> str | None:
    """The test that was running when a process of this run was started, "" where it does not say; None for others."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    environment = dict(pair.partition("=")[::2] for pair in pairs)
    if not f"{environment.get(MARK)}/".startswith(f"{_mark}/"):
        return None
    return environment.get("PYTEST_CURRENT_TEST", "")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")[:_COMMAND_CHARS]
    except OSError:
        return "ended"
