"""What a simulated process gets from its operating system: time, locks, threads, ids. All waits are the world's.

Owns: `Simulated`, the runtime of the product's own code; the same as modules `time`, `threading` and `random` for
kafka-python.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from kafka_core import runtime
from tests.simulation.world import Ended, SimThread, World

T = TypeVar("T")

EPOCH_NS = 1_700_000_000 * 10**9
START_S = 1_000.0
"""What `monotonic` says when the world begins."""


class Lock:
    """`threading.Lock`; with `reentrant` an RLock."""

    def __init__(self, world: World, *, reentrant: bool = False) -> None:
        self._world = world
        self._reentrant = reentrant
        self._holder: object = None
        self._count = 0
        self._queue: deque[tuple[SimThread, object]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Whether it is held now."""
        world = self._world
        if world.closed:
            # Threads that unwind pass through every lock.
            return True
        me: object = world.thread or world
        if self._reentrant and self._holder is me:
            self._count += 1
            return True
        until = None if timeout < 0 else world.now + timeout
        while self._holder is not None:
            if not blocking or (until is not None and world.now >= until):
                return False
            thread = world.running()
            self._queue.append((thread, thread.ticket()))
            thread.park(None if until is None else until - world.now)
        self._holder, self._count = me, 1
        return True

    def release(self) -> None:
        """Let the next one have it."""
        if self._world.closed:
            return
        self._count -= 1
        if self._count == 0:
            self._holder = None
            while self._queue:
                thread, ticket = self._queue.popleft()
                # Of a killed process nobody goes on, and its locks are nobody else's.
                if thread.process.alive:
                    thread.wake(ticket)
                    break

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What a condition needs around its wait.

    def give_up(self) -> int:
        """Release it however often it is held; how often that was."""
        count, self._count = self._count, 1
        self.release()
        return count

    def take_back(self, count: int) -> None:
        """Hold it as often as before."""
        self.acquire()
        self._count = count


class Condition:
    """`threading.Condition`."""

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world = world
        self._lock = lock or Lock(world, reentrant=True)
        self._waiting: list[tuple[SimThread, object]] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """False where `timeout` seconds went by."""
        me = self._world.running()
        entry = (me, me.ticket())
        self._waiting.append(entry)
        count = self._lock.give_up()
        woken = me.park(timeout)
        if entry in self._waiting:
            self._waiting.remove(entry)
        self._lock.take_back(count)
        return woken

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """The predicate's last value."""
        until = None if timeout is None else self._world.now + timeout
        while not (found := predicate()):
            left = None if until is None else until - self._world.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        """Wake `n` that wait."""
        for thread, ticket in self._waiting[:n]:
            thread.wake(ticket)
        del self._waiting[:n]

    def notify_all(self) -> None:
        """Wake all that wait."""
        self.notify(len(self._waiting))


class Event:
    """`threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[tuple[SimThread, object]] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    def set(self) -> None:
        """Wake all that wait."""
        self._set = True
        for thread, ticket in self._waiting:
            thread.wake(ticket)
        self._waiting.clear()

    def clear(self) -> None:
        """It has not happened."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has happened after at most `timeout` seconds."""
        if not self._set:
            me = self._world.running()
            self._waiting.append((me, me.ticket()))
            me.park(timeout)
        return self._set


class Workers(Executor):
    """Threads of the process that makes it; all is done when the context ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._threads: list[SimThread] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The future's `result` waits in virtual time."""
        process = self._world.running().process
        thread = self._world.spawn(process, lambda: fn(*args, **kwargs), "worker")
        self._threads.append(thread)
        return _Result(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for all."""
        for thread in self._threads if wait else ():
            thread.join()


class _Result(Future[Any]):
    def __init__(self, thread: SimThread) -> None:
        super().__init__()
        self._thread = thread

    def result(self, timeout: float | None = None) -> Any:
        self._thread.join(timeout)
        if self._thread.error is not None:
            raise self._thread.error
        return self._thread.value


class Simulated(runtime.Runtime):
    """The runtime of every simulated process; which one is asked is the world's to tell."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ids = world.random.__class__(world.seed ^ 0x1D)

    def monotonic(self) -> float:
        return START_S + self.world.now

    def perf_counter(self) -> float:
        return START_S + self.world.now

    def time_ns(self) -> int:
        process = self.world.current
        return EPOCH_NS + round(self.world.now * 1e9) + (process.clock_offset_ns if process else 0)

    def sleep(self, seconds: float) -> None:
        me = self.world.running()
        me.ticket()
        me.park(max(0.0, seconds))

    def lock(self) -> runtime.Lock:
        return Lock(self.world)

    def condition(self) -> runtime.Condition:
        return Condition(self.world)

    def event(self) -> runtime.Event:
        return Event(self.world)

    def thread(self, target: Callable[..., object], name: str, args: Sequence[Any] = ()) -> runtime.Thread:
        return SimThread(self.world, self.world.running().process, lambda: target(*args), name)

    def workers(self, threads: int) -> contextlib.AbstractContextManager[Executor]:
        return Workers(self.world)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._ids.getrandbits(128), version=4)

    def process_id(self) -> int:
        process = self.world.current
        return process.number if process else 0

    def kill(self) -> None:
        me = self.world.running()
        self.world.kill(me.process, struck=False)
        raise Ended

    def write_at(self, descriptor: int, buffers: Sequence[Any], at: int) -> int:
        process = self.world.current
        if process is None or process.write_at is None:
            return super().write_at(descriptor, buffers, at)
        return process.write_at(descriptor, buffers, at)


class Threading:
    """The module `threading` for a library."""

    local = threading.local

    def __init__(self, world: World) -> None:
        self._world = world

    def Lock(self) -> Lock:  # noqa: N802 -- the module's own name
        return Lock(self._world)

    def RLock(self) -> Lock:  # noqa: N802
        return Lock(self._world, reentrant=True)

    def Condition(self, lock: Lock | None = None) -> Condition:  # noqa: N802
        return Condition(self._world, lock)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._world)

    def Thread(  # noqa: N802
        self,
        target: Callable[..., object],
        name: str = "",
        args: Sequence[Any] = (),
        daemon: bool | None = None,
    ) -> SimThread:
        return SimThread(self._world, self._world.running().process, lambda: target(*args), name)

    def current_thread(self) -> object:
        return self._world.thread or self._world

    def get_ident(self) -> int:
        thread = self._world.thread
        return thread.ident or 0 if thread else 0


class Time:
    """The module `time` for a library."""

    def __init__(self, simulated: Simulated) -> None:
        self.monotonic = self.perf_counter = simulated.monotonic
        self.time_ns = simulated.time_ns
        self.sleep = simulated.sleep
        self._simulated = simulated

    def time(self) -> float:
        return self._simulated.time_ns() / 1e9


@contextlib.contextmanager
def in_place_of(modules: Iterator[Any] | Sequence[Any], names: dict[str, tuple[object, object]]) -> Iterator[None]:
    """In every module that has `name` bound to the first of its pair: the second, for the time of the context."""
    changed = [
        (module, name, real)
        for module in modules
        for name, (real, _) in names.items()
        if vars(module).get(name) is real
    ]
    for module, name, _ in changed:
        setattr(module, name, names[name][1])
    try:
        yield
    finally:
        for module, name, real in changed:
            setattr(module, name, real)
