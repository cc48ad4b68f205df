"""Rounds with SIGKILL at random moments: the driver, a task or the broker, some restarts at once and some late.

    python -m tests.chaos --rounds 50 --seed 7      part of `make chaos`

Owns: drawing a round's faults from its seed, striking, watching meanwhile.
Does not know: how a job runs (`job`), what is right (`checker`).
Invariants: a round's plan depends on its seed alone, so any can be played again (the machine's pace still decides where
a strike lands); a strike counts as fired only where the process was there and is gone.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from embedded_kafka.real import LocalKafka
from tests.chaos import watch
from tests.chaos.checker import check
from tests.chaos.history import EntryKind, Fault, Isolation, OffsetsSeen, Read
from tests.chaos.job import Ended, Job, Run, start
from tests.chaos.matrix import Rung, job_for
from tests.conftest import topics_of

_BATCHES = 10
_LENGTH_S = 2.5
"""About what a job of so many batches takes; strikes are drawn from it."""

_TIMEOUT_MS = 6_000
_LATE_S = _TIMEOUT_MS / 1000 + 2.0
_MOST_RUNS = 8
_WATCH_EVERY_S = 0.05
_PARTITIONS = 4


@dataclass(frozen=True)
class Plan:
    """What a round does: (victim, seconds after the run's begin, seconds until things go on) of each strike."""

    seed: str
    pause_s: float
    strikes: tuple[tuple[str, float, float], ...]


def plan_of(seed: int, number: int) -> Plan:
    """The plan of a round."""
    text = f"{seed}/{number}"
    draw = random.Random(text)
    strikes = tuple(
        (
            draw.choice(("driver", "driver", "task", "broker")),
            draw.uniform(0.05, _LENGTH_S),
            draw.choice((0.0, 0.0, 0.0, _LATE_S)),
        )
        for _ in range(draw.choice((1, 1, 2, 3)))
    )
    return Plan(text, draw.uniform(0.01, 0.06), strikes)


@dataclass
class Round:
    """What happened in a round. `longest_hold_s`: the longest time that the last stable offset of a partition stood
    still behind its high watermark."""

    rung: str
    plan: Plan
    job: Job
    runs: list[Ended] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    offsets: list[OffsetsSeen] = field(default_factory=list)
    longest_hold_s: float = 0.0
    entries: Counter[EntryKind] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class _Holds:
    """Watches how far the last stable offset of a topic stays behind, and for how long."""

    def __init__(self, broker: LocalKafka, topic: str) -> None:
        self.longest_s = 0.0
        self._topic = topic
        self._stop = threading.Event()
        self._consumers = [
            Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "holds",
                    "isolation.level": isolation.value,
                    "log_level": 0,
                }
            )
            for isolation in (Isolation.COMMITTED, Isolation.UNCOMMITTED)
        ]
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Holds:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for consumer in self._consumers:
            consumer.close()

    def _watch(self) -> None:
        since: dict[int, tuple[int, float]] = {}
        while not self._stop.wait(_WATCH_EVERY_S):
            for number in range(_PARTITIONS):
                try:
                    stable, high = (
                        each.get_watermark_offsets(TopicPartition(self._topic, number), timeout=1.0)[1]
                        for each in self._consumers
                    )
                except Exception:  # noqa: BLE001 -- the broker is down; the hold, if one is on, goes on
                    continue
                now = time.monotonic()
                if stable >= high:
                    since.pop(number, None)
                elif since.get(number, (-1, 0.0))[0] != stable:
                    since[number] = (stable, now)
                else:
                    self.longest_s = max(self.longest_s, now - since[number][1])


def play(rung: Rung, numbers: Sequence[int], seed: int) -> list[Round]:
    """Rounds on one broker of the rung, one after the other, then judged together."""
    with rung.broker() as broker:
        source = topics_of(broker)()
        rounds = []
        for number in numbers:
            plan = plan_of(seed, number)
            job = job_for(broker, source, timeout_ms=_TIMEOUT_MS, batches=_BATCHES)
            one = Round(rung.name, plan, replace(job, pause_between_rows_s=plan.pause_s))
            _play_one(broker, one)
            rounds.append(one)
        _judge(broker, rounds)
    return rounds


def _play_one(broker: LocalKafka, one: Round) -> None:
    with _Holds(broker, one.job.options["topic"]) as holds:
        for victim, after_s, pause_s in one.plan.strikes:
            if not _behind(one.job):
                break
            run = start(one.job)
            time.sleep(after_s)
            fired = _strike(broker, run, victim, pause_s)
            one.faults.append(Fault(victim, f"{victim} after {after_s:.2f} s", fired))
            one.runs.append(run.finish())
            if victim == "driver":
                time.sleep(pause_s)
            one.reads.append(watch.look(broker, one.job))
            one.offsets.append(watch.look_at_offsets(broker, one.job))
        while not one.runs or one.runs[-1].exitcode != 0 or one.runs[-1].error or _behind(one.job):
            if len(one.runs) == _MOST_RUNS:
                one.problems.append(f"not done after {_MOST_RUNS} runs: {one.runs[-1].error}")
                break
            one.runs.append(start(one.job).finish())
    one.longest_hold_s = holds.longest_s


def _behind(job: Job) -> bool:
    return not (job.checkpoint / "commits" / str(len(job.batches) - 1)).exists()


def _strike(broker: LocalKafka, run: Run, victim: str, pause_s: float) -> bool:
    if victim == "broker":
        broker.kill()
        time.sleep(pause_s)
        broker.restart()
        return True
    if victim == "driver":
        there = run.process.is_alive()
        run.kill()
        return there
    # Between two batches there is no task: the next one is it.
    deadline = time.monotonic() + 10
    while run.process.is_alive() and time.monotonic() < deadline:
        assert run.process.pid is not None
        for task in _children(run.process.pid):
            try:
                os.kill(task, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        time.sleep(0.002)
    # The job was done before: a strike at nothing is no strike.
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except OSError:
            continue
    return found


def _judge(broker: LocalKafka, rounds: Sequence[Round]) -> None:
    witnesses = watch.Witnesses.of(broker, [each.job for each in rounds])
    for one in rounds:
        # Drawn moments may lie behind the job's end: those strikes are reported as not fired, not as wrong.
        fired = [fault for fault in one.faults if fault.fired]
        history = witnesses.history(one.job, faults=fired, reads=one.reads, offsets_seen=one.offsets)
        one.entries = Counter(entry.kind for entry in history.log)
        one.problems += [str(anomaly) for anomaly in check(history)]
