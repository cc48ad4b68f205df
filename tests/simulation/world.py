"""One process that stands for many: virtual time, simulated processes and threads, and a queue of what happens next.

Owns: the order of all events, who runs, whose turn is over.
Does not know: Kafka, sockets, files.
Invariants:
- One thread runs at a time. A simulated thread is a real one that runs only while it holds the baton; it gives the
  baton back where it would wait.
- Everything that is drawn comes from the seed, so a seed means one trace.
- Nothing of a process that was killed goes on. Its threads are unwound when the world is closed, when every wait raises
  `Ended`.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Action = Callable[[], object]


PARTS = frozenset({"aimed", "swizzle", "transactional id expired", "producer expired"})
"""What is counted to prove that it happened, and is no fault of its own: how a strike came about, or what followed from
one.
"""


class Ended(BaseException):
    """The process is dead or the world is closed: this thread unwinds. No `except Exception` stops it."""


def _nobody_has_it() -> threading.Lock:
    """A baton to wait for. It is a lock, which one thread takes and another one releases: `threading.Semaphore` is
    written in Python, and took a tenth of a history's time.
    """
    baton = threading.Lock()
    baton.acquire()
    return baton


_process_numbers = itertools.count(10**9)
"""Unique over all worlds: modules keep state by it."""


class Process:
    """A simulated operating system process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.number = next(_process_numbers)
        self.alive = True
        self.frozen_until = 0.0
        self.clock_offset_ns = 0
        self.at_death: list[Action] = []
        self.write_at: Callable[[int, Sequence[Any], int], int] | None = None
        """`os.pwritev` on the disk of its machine; None: the real one."""

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


class SimThread:
    """A thread of a simulated process; `threading.Thread` as far as the product and kafka-python use it."""

    daemon = True

    def __init__(self, world: World, process: Process, target: Callable[[], object], name: str) -> None:
        self.world, self.process, self.name = world, process, name
        self.error: BaseException | None = None
        self.value: object = None
        self.done = False
        self.ident: int | None = None
        self._target = target
        self._baton = _nobody_has_it()
        self._real: threading.Thread | None = None
        self._ticket: object = None
        self._woken = False
        self._waiters: list[tuple[SimThread, object]] = []

    def start(self) -> None:
        """Run from the next event on."""
        self.ident = next(self.world.numbers)
        self.world.threads.append(self)
        self.world.schedule(0.0, self.resume, self.process)

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self.ident is not None and not self.done

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if self.ident is None or self.done:
            return
        me = self.world.running()
        self._waiters.append((me, me.ticket()))
        me.park(timeout)

    # ---- the baton

    def resume(self) -> None:
        """Give it the baton, and have it back where the thread waits or ends. Called by the world alone."""
        if self.done:
            return
        world = self.world
        before, world.thread = world.thread, self
        if self._real is None:
            self._real = threading.Thread(target=self._run, name=f"sim-{self.name}", daemon=True)
            self._real.start()
        self._baton.release()
        world.baton.acquire()
        world.thread = before

    def _run(self) -> None:
        self._baton.acquire()
        try:
            if not self.world.closed and self.process.alive:
                self.value = self._target()
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001 -- whoever joins it sees the error
            self.error = error
        self.done = True
        for thread, ticket in self._waiters:
            thread.wake(ticket)
        self.world.baton.release()

    def ticket(self) -> object:
        """What a wake-up has to name: one for an earlier wait has no effect."""
        self._ticket = object()
        return self._ticket

    def park(self, timeout: float | None = None) -> bool:
        """Wait for the ticket's wake-up, `timeout` seconds at most; whether it came."""
        world, ticket = self.world, self._ticket
        if world.closed or not self.process.alive:
            raise Ended
        self._woken = False
        if timeout is not None:
            # Rounding must not end a wait before its time: the waiter would wait again, for nothing, for ever.
            world.schedule(timeout + 1e-9, lambda: self._continue(ticket, woken=False), self.process)
        world.baton.release()
        self._baton.acquire()
        if world.closed or not self.process.alive:
            raise Ended
        return self._woken

    def wake(self, ticket: object) -> None:
        """End the wait that has this ticket."""
        if self._ticket is ticket and ticket is not None:
            self.world.schedule(0.0, lambda: self._continue(ticket, woken=True), self.process)

    def _continue(self, ticket: object, *, woken: bool) -> None:
        if self._ticket is ticket:
            self._ticket, self._woken = None, woken
            self.resume()


class World:
    """Time and order. Everything runs within `run`."""

    unwinding = False
    """Whether the threads of a world are being unwound, in this Python process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.closed = False
        self.numbers = itertools.count(1)
        self.threads: list[SimThread] = []
        self.processes: list[Process] = []
        self.thread: SimThread | None = None
        self.baton = _nobody_has_it()
        self.fired: Counter[str] = Counter()
        """Faults by kind, counted where they take effect; see `PARTS`."""
        self.story: list[tuple[float, tuple[object, ...]]] = []
        """What was noted, with its time, except for the messages."""
        self.victims: list[str] = []
        """The processes that were killed, by name; not those that ended themselves."""
        self.before_step: Action | None = None
        self._queue: list[tuple[float, int, Process | None, Action]] = []
        self._sequence = itertools.count()
        self._trace = hashlib.blake2b(digest_size=8)
        self._acting: Process | None = None

    # ---- who

    def process(self, name: str) -> Process:
        """A new process, without a thread yet."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    @property
    def current(self) -> Process | None:
        """The process that acts now; None outside of the world."""
        return self.thread.process if self.thread is not None else self._acting

    def running(self) -> SimThread:
        """The thread that runs now. Waiting is for threads alone."""
        if self.thread is None:
            raise RuntimeError("a simulated wait outside of a simulated thread")
        return self.thread

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> SimThread:
        """A thread that runs from the next event on."""
        thread = SimThread(self, process, target, name)
        thread.start()
        return thread

    # ---- when

    def schedule(self, delay_s: float, action: Action, process: Process | None = None) -> None:
        """Have `action` happen later. With `process`: only while that lives, and not while it is frozen."""
        self.at(self.now + max(0.0, delay_s), action, process)

    def at(self, when: float, action: Action, process: Process | None = None) -> None:
        """The same at a moment, in seconds of the world."""
        if not self.closed:
            heapq.heappush(self._queue, (when, next(self._sequence), process, action))

    def run(self, done: Callable[[], bool], *, seconds: float, steps: int = 10**9) -> bool:
        """Let things happen until `done`; False where `seconds` or `steps` were over first, or nothing is left to
        happen.
        """
        until, last = self.now + seconds, self.steps + steps
        while not done():
            if not self._queue or self._queue[0][0] > until or self.steps >= last:
                self.now = max(self.now, until) if self.steps < last else self.now
                return done()
            when, _, process, action = heapq.heappop(self._queue)
            if process is not None:
                if not process.alive:
                    continue
                if process.frozen_until > when:
                    heapq.heappush(self._queue, (process.frozen_until, next(self._sequence), process, action))
                    continue
            self.now = max(self.now, when)
            self.steps += 1
            if self.before_step is not None:
                self.before_step()
                if process is not None and not process.alive:
                    continue
            self._acting = process
            action()
            self._acting = None
        return True

    # ---- what happened

    def note(self, *what: object) -> None:
        """Make it a part of the trace."""
        self._trace.update(repr((round(self.now, 9), *what)).encode())
        if what[0] != "send":
            self.story.append((self.now, what))

    @property
    def trace(self) -> str:
        """A digest of everything that was noted so far."""
        return f"{self.steps}:{self._trace.hexdigest()}"

    # ---- faults

    def kill(self, process: Process, *, struck: bool = True) -> None:
        """SIGKILL: none of its threads goes on, its sockets and files are closed by the system. Not `struck`: it ends
        itself, or another fault ends it, which is counted.
        """
        if process.alive:
            process.alive = False
            self.note("kill", process.name)
            if struck:
                self.fired["kill"] += 1
                self.victims.append(process.name)
            for action in process.at_death:
                action()

    def goes_on(self, kind: str, *, first: bool) -> None:
        """A fault that lasts takes effect, now and maybe many times. It is counted the `first` time; each time is noted
        as its newest.
        """
        self.fired[kind] += first

    def freeze(self, process: Process, seconds: float, *, struck: bool = True) -> None:
        """SIGSTOP, and SIGCONT after some time. Not `struck`: a part of another fault."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        self.note("freeze", process.name, seconds)
        if struck:
            self.fired["freeze"] += 1

    def close(self) -> None:
        """Unwind every thread that still waits. Each wait raises `Ended`, so none of it has an effect."""
        self.closed = World.unwinding = True
        self._queue.clear()
        for thread in self.threads:
            while not thread.done and thread._real is not None:
                thread.resume()
        World.unwinding = False
        for thread in self.threads:
            if thread._real is not None:
                thread._real.join()
