"""Time, threads, identity and the disk come from one module, so that a simulation can have its own."""

from __future__ import annotations

import ast
import multiprocessing
import pickle
import threading
from pathlib import Path

import pytest

from kafka_core import runtime

CODE = Path(runtime.__file__).parent
HELD = ("broker", "client", "commit", "operations", "producer_ids", "slot")
FORBIDDEN_MODULES = {"concurrent", "random", "sched", "threading", "time"}
FORBIDDEN_CALLS = {"fork", "getpid", "kill", "pwrite", "pwritev", "uuid1", "uuid4", "urandom"}
ALLOWED = {
    # The owner's number in a lock file is read by people only.
    "broker/storage.py": {"pwrite"},
}


def taken(path: Path) -> set[str]:
    """What a module takes from the operating system by itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.split(".")[0] in FORBIDDEN_MODULES}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                found.add(node.module or "")
            found |= {each.name for each in node.names if each.name in FORBIDDEN_CALLS} - {"kill"}
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("os", "uuid")
            and node.attr in FORBIDDEN_CALLS
        ):
            found.add(node.attr)
    return found


@pytest.mark.parametrize("package", HELD)
def test_time_threads_and_identity_are_taken_from_the_runtime_alone(package: str) -> None:
    astray = {
        name: own
        for path in sorted((CODE / package).rglob("*.py"))
        if (own := taken(path) - ALLOWED.get(name := path.relative_to(CODE).as_posix(), set()))
    }
    assert astray == {}


def test_the_search_finds_each_way_of_taking_it(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import time\nfrom threading import Lock\nfrom concurrent.futures import Executor\nimport os, uuid\n"
        "from uuid import uuid4\nos.getpid()\nos.pwritev(1, [], 0)\nuuid.uuid1()\n"
    )
    assert taken(module) == {
        "time", "threading", "concurrent.futures", "uuid4", "getpid", "pwritev", "uuid1"
    }  # fmt: skip


class Frozen(runtime.Runtime):
    """A clock that stands, and another process."""

    def monotonic(self) -> float:
        return 17.0

    def time_ns(self) -> int:
        return 5_500_000_000

    def process_id(self) -> int:
        return 4


def _end_within_another() -> None:
    with runtime.replaced(runtime.Runtime()):
        assert runtime.process_id() != 4
        raise KeyError


def test_another_runtime_is_in_force_for_the_time_of_its_context_alone() -> None:
    with runtime.replaced(Frozen()):
        assert (runtime.monotonic(), runtime.time(), runtime.time_ns(), runtime.process_id()) == (
            17.0, 5.5, 5_500_000_000, 4
        )  # fmt: skip
        with pytest.raises(KeyError):
            _end_within_another()
        assert runtime.process_id() == 4
    assert runtime.monotonic() != 17.0


def test_state_of_a_process_is_made_once_and_is_another_one_in_another_process() -> None:
    state = runtime.PerProcess(lambda: [0])
    state().append(1)
    with runtime.replaced(Frozen()):
        assert state() == [0]
    assert state() == [0, 1]


def test_threads_that_ask_at_once_get_the_same_state() -> None:
    barrier = threading.Barrier(8)
    state = runtime.PerProcess(object)
    found: list[object] = []

    def ask() -> None:
        barrier.wait(10)
        found.append(state())

    threads = [runtime.thread(ask, "asks") for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert len(set(map(id, found))) == 1
    assert len(found) == 8


def held_by_a_thread(state: runtime.PerProcess[runtime.Lock], answer: multiprocessing.SimpleQueue[bool]) -> None:
    answer.put(state().acquire(timeout=5))


def test_a_forked_child_does_not_wait_for_a_lock_that_its_parent_held() -> None:
    state = runtime.PerProcess(runtime.lock)
    fork = multiprocessing.get_context("fork")
    answer = fork.SimpleQueue()
    with state():
        child = fork.Process(target=held_by_a_thread, args=(state, answer))
        child.start()
        assert answer.get() is True
        child.join(10)
    assert child.exitcode == 0


def test_a_function_of_the_runtime_is_pickled_by_its_name() -> None:
    for name in ("sleep", "monotonic", "process_id"):
        function = getattr(runtime, name)
        assert pickle.loads(pickle.dumps(function)) is function
