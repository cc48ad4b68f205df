"""Time, threads, identity and the disk, as the commit, the client, the slots and the broker use them.

Owns: the one place from which these four take the time, a thread, a lock, a fresh id, the number of their process, and
where a log is written. A simulation puts its own `Runtime` in place of the operating system's, and the same code then
runs in virtual time.
Does not know: who waits for what.
Invariants:
- Nothing is cached: each call asks the runtime that is in force at that moment.
- A lock, a condition or an event belongs to the runtime that made it. State of a module that outlives a runtime is
  `PerProcess`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time as _time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Lock(Protocol):
    """`threading.Lock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Whether it is held now. `timeout`: seconds."""

    def release(self) -> None:
        """Let the next one have it."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *_: object) -> None: ...


class Event(Protocol):
    """`threading.Event`."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def set(self) -> None:
        """Wake all that wait."""

    def clear(self) -> None:
        """It has not happened."""

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has happened after at most `timeout` seconds."""


class Condition(Lock, Protocol):
    """`threading.Condition`."""

    def wait(self, timeout: float | None = None) -> bool:
        """False where `timeout` seconds went by."""

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """The predicate's last value."""

    def notify(self, n: int = 1) -> None:
        """Wake `n` that wait."""

    def notify_all(self) -> None:
        """Wake all that wait."""


class Thread(Protocol):
    """`threading.Thread`."""

    @property
    def ident(self) -> int | None:
        """Its number, None before it was started."""

    def start(self) -> None:
        """Begin."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, `timeout` seconds at most."""

    def is_alive(self) -> bool:
        """Whether it runs."""


class Runtime:
    """The operating system's. A simulation inherits it and has its own of each."""

    def monotonic(self) -> float:
        """Seconds, never going back."""
        return _time.monotonic()

    def time_ns(self) -> int:
        """Nanoseconds since the epoch of Unix, as the machine's clock has them; it may go back."""
        return _time.time_ns()

    def perf_counter(self) -> float:
        """Seconds for a measurement."""
        return _time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        _time.sleep(seconds)

    def lock(self) -> Lock:
        """A lock that its holder may not take again."""
        return threading.Lock()  # type: ignore[return-value]

    def condition(self) -> Condition:
        """A condition whose lock may be taken again by its holder."""
        return threading.Condition()  # type: ignore[return-value]

    def event(self) -> Event:
        """An event that has not happened."""
        return threading.Event()

    def thread(self, target: Callable[..., object], name: str, args: Sequence[Any] = ()) -> Thread:
        """A thread that does not keep its process alive, not started."""
        return threading.Thread(target=target, args=tuple(args), name=name, daemon=True)

    def workers(self, threads: int) -> contextlib.AbstractContextManager[Executor]:
        """So many threads for work beside the caller's; all of it is done when the context ends."""
        return ThreadPoolExecutor(threads)

    def uuid4(self) -> uuid.UUID:
        """An id that nothing else has."""
        return uuid.uuid4()

    def process_id(self) -> int:
        """The number of this process; a forked child has another."""
        return os.getpid()

    def host_name(self) -> str:
        """By which its operator knows this machine."""
        return os.uname().nodename

    def kill(self) -> None:
        """End this process at once, as SIGKILL does: nothing is cleaned up."""
        os.kill(os.getpid(), signal.SIGKILL)

    def write_at(self, descriptor: int, buffers: Sequence[Any], at: int) -> int:
        """Write into a file at an offset; gives how many bytes were taken. OSError."""
        return os.pwritev(descriptor, buffers, at)


_in_force = Runtime()


def _of_the_one_in_force(method: Callable[Concatenate[Runtime, P], T]) -> Callable[P, T]:
    """A method of `Runtime` as a function, which asks the runtime that is in force when it is called."""
    name = method.__name__

    @functools.wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(_in_force, name)(*args, **kwargs)
        return found

    # By this name it is found again where it is pickled.
    function.__qualname__ = name
    return function


monotonic = _of_the_one_in_force(Runtime.monotonic)
time_ns = _of_the_one_in_force(Runtime.time_ns)
perf_counter = _of_the_one_in_force(Runtime.perf_counter)
sleep = _of_the_one_in_force(Runtime.sleep)
lock = _of_the_one_in_force(Runtime.lock)
condition = _of_the_one_in_force(Runtime.condition)
event = _of_the_one_in_force(Runtime.event)
thread = _of_the_one_in_force(Runtime.thread)
workers = _of_the_one_in_force(Runtime.workers)
uuid4 = _of_the_one_in_force(Runtime.uuid4)
process_id = _of_the_one_in_force(Runtime.process_id)
host_name = _of_the_one_in_force(Runtime.host_name)
kill = _of_the_one_in_force(Runtime.kill)
write_at = _of_the_one_in_force(Runtime.write_at)


def time() -> float:
    """Seconds since the epoch of Unix, as the machine's clock has them; it may go back."""
    return _in_force.time_ns() / 1e9


@contextlib.contextmanager
def replaced(by: Runtime) -> Iterator[None]:
    """Another runtime for all of this process, for the time of the context."""
    global _in_force
    before, _in_force = _in_force, by
    try:
        yield
    finally:
        _in_force = before


_all_state: list[PerProcess[Any]] = []


def forget(process: int) -> None:
    """Drop what modules kept for a process that is gone, which a simulation has thousands of."""
    for each in _all_state:
        each.drop(process)


class PerProcess(Generic[T]):
    """State that a module keeps for its process: made at the first use, and anew in a forked child, which must use
    neither its parent's sockets nor a lock that a thread of the parent held at the fork.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # What was the parent's is kept, so that nothing of it is closed in the child.
        self._values: dict[int, T] = {}
        _all_state.append(self)

    def drop(self, process: int) -> None:
        """Forget a process."""
        self._values.pop(process, None)

    def __call__(self) -> T:
        """This process's."""
        process = process_id()
        found = self._values.get(process)
        return self._values.setdefault(process, self._make()) if found is None else found
