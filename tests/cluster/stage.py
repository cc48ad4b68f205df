"""One cluster with everything that runs on it: troubles are played here, one after another, and each gives a row.

Owns: the writers' processes, the source's rows, the thread that keeps queries running, the judges, what must hold at
the end.
Does not know: which troubles are to be played.
Invariants:
- A row is judged when the cluster is whole again and every writer has gone on: by then what the trouble did has shown.
- A query that ended is started again, as an operator would do it, so the run goes on; the row says that it ended.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer

from benchmarks.children import ROOT
from tests.cluster.brokers import Cluster
from tests.cluster.job import Plan
from tests.cluster.judge import KEYS, PARTITIONS, Judge, Reader
from tests.cluster.plan import OURS, ROWS_PER_BATCH, SOURCE, SPARKS, TRIGGER_S
from tests.cluster.troubles import TROUBLES, Scene
from tests.cluster.writers import JAVA, Batches, JavaProducer, Job, Span, Spark

_LOOK_EVERY_S = 0.2
_GOES_ON_WITHIN_S = 180.0
"""After the cluster is whole. A query that was ended waits for a producer's 120 s at most; half would call a slow one
dead.
"""
_BATCHES_AFTER = 2
_ACKS_AFTER = 60
_READ_WITHIN_S = 120.0
_CALM_S = 4.0
"""Before a trouble: what it is compared with, and some batches to know that all is well."""
_DRIVER_EVERY_S = (5.0, 25.0)
"""With drivers killed on top: how long until the next one."""
_VERIFIED = 50


@dataclass
class Row:
    """What one trouble did. `stalls`: writer -> seconds; `ended`: our queries that ended by themselves, `others`: that
    with Spark's own sink; `problems`: what does not hold.
    """

    event: str
    seconds: float
    seed: int
    text: str
    versions: str
    stalls: dict[str, float] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    killed: int = 0


@dataclass
class _Judged:
    reader: Reader
    judge: Judge = field(default_factory=Judge)


class Stage:
    """See the module. Use it as a context."""

    def __init__(self, cluster: Cluster, directory: Path, ways: Sequence[tuple[str, str]], *, with_spark: bool) -> None:
        self.cluster = cluster
        self._directory = directory
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._keep_running, name="watch", daemon=True)
        self._fed = 0
        self._kill_at = float("inf")
        self._chance = random.Random(0)
        self._failed: Exception | None = None
        self.jobs = [
            Job(Plan(f"{way}-{scope}", way, scope, cluster.bootstrap_servers, str(directory / f"{way}-{scope}")))
            for way, scope in ways
        ]
        self.java: JavaProducer | None = None
        self.spark: Spark | None = None
        self._with_spark = with_spark
        self._judged: dict[str, _Judged] = {}

    def __enter__(self) -> Stage:
        try:
            sparks = (OURS, SPARKS) if self._with_spark else ()
            for topic in (SOURCE, JAVA, *sparks, *(job.plan.name for job in self.jobs)):
                self.cluster.create(topic, PARTITIONS)
            self.cluster.await_in_sync()
            self.java = JavaProducer(self.cluster.bootstrap_servers, self._directory, self.cluster.versions[0])
            for topic in (*sparks[:1], *(job.plan.name for job in self.jobs)):
                self._judged[topic] = _Judged(Reader(self.cluster.bootstrap_servers, topic))
            if self._with_spark:
                self.spark = Spark(self.cluster.bootstrap_servers, self._directory)
            self._feed(60.0)
            if self.spark is not None:
                self.spark.start()
            for job in self.jobs:
                job.start()
            self._watch.start()
            problems = self._await_going_on(time.time())
            if problems:
                raise RuntimeError(f"nothing has happened yet, and {'; '.join(problems)}: {self._directory}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing goes on running."""
        self._over.set()
        if self._watch.is_alive():
            self._watch.join()
        for job in self.jobs:
            job.close()
        for writer in (self.java, self.spark):
            if writer is not None:
                writer.close()
        for judged in self._judged.values():
            judged.reader.__exit__()

    # ---- one trouble

    def play(self, event: str, seconds: float, seed: int, *, drivers: bool, other: str = "") -> Row:
        """Play a trouble. `drivers`: kill drivers at random on top. `other`: the version of an upgrade."""
        chance = random.Random(f"{event} {seconds} {seed}")
        before = self.cluster.versions[0]
        text = TROUBLES[event].text.format(seconds, before, other)
        row = Row(event, seconds, seed, text, f"{before} -> {other}" if other else before)
        self.cluster.spread_leaders()
        self._feed(seconds + 150.0)
        self._hold(_CALM_S)
        span_began = time.time()
        with self._lock:
            self._chance = random.Random(f"drivers {event} {seconds} {seed}")
            self._kill_at = time.time() + self._chance.uniform(*_DRIVER_EVERY_S) if drivers else float("inf")
        try:
            TROUBLES[event].play(Scene(self.cluster, chance, seconds, self._hold, self._kill_a_driver, other))
        finally:
            with self._lock:
                self._kill_at = float("inf")
            self.cluster.heal()
        row.problems += self._await_going_on(time.time())
        self._measure(row, Span(span_began, time.time()))
        self._judge(row)
        return row

    def _measure(self, row: Row, span: Span) -> None:
        with self._lock:
            for job in self.jobs:
                row.stalls[job.plan.name] = job.batches.longest(span)
                row.ended += [f"{job.plan.name}: {why}" for at, why in job.batches.errors if span.has(at)]
                row.killed += sum(span.has(at) for at in job.batches.kills)
            for name, batches in self.spark.batches.items() if self.spark is not None else ():
                row.stalls[name] = batches.longest(span)
                row.ended += [f"{name}: {why}" for at, why in batches.errors if span.has(at) and name == OURS]
                row.others += [f"{name}: {why}" for at, why in batches.errors if span.has(at) and name != OURS]
            if self.java is not None:
                row.stalls[JAVA] = self.java.longest(span)
                row.problems += [f"{JAVA}: {why}" for at, why in self.java.errors if span.has(at)]

    def _judge(self, row: Row) -> None:
        for name, each in self._judged.items():
            before = len(each.judge.lost()), len(each.judge.doubled)
            each.reader.read(each.judge, _READ_WITHIN_S)
            row.problems += [f"{name}: {problem}" for problem in each.judge.problems()]
            row.lost += len(each.judge.lost()) - before[0]
            row.doubled += len(each.judge.doubled) - before[1]

    def _hold(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _await_going_on(self, since: float) -> list[str]:
        """Until each writer has gone on since then; who has not."""
        deadline = time.monotonic() + _GOES_ON_WITHIN_S
        while waited_for := self._standing(since):
            if time.monotonic() > deadline:
                return [f"{name} did not go on within {_GOES_ON_WITHIN_S:.0f} s" for name in waited_for]
            if self._failed is not None:
                raise self._failed
            self._hold(_LOOK_EVERY_S)
        return []

    def _standing(self, since: float) -> list[str]:
        with self._lock:
            found = [name for name, batches in self._queries.items() if batches.newer(since) < _BATCHES_AFTER]
            return found + ([JAVA] if self.java is not None and self.java.newer(since) < _ACKS_AFTER else [])

    @property
    def _queries(self) -> dict[str, Batches]:
        return {job.plan.name: job.batches for job in self.jobs} | (self.spark.batches if self.spark else {})

    # ---- beside it

    def _keep_running(self) -> None:
        try:
            self._look_and_look()
        except Exception as error:  # noqa: BLE001 -- of a thread: whoever waits for the writers has to hear of it
            self._failed = error

    def _look_and_look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            with self._lock:
                for job in self.jobs:
                    job.look()
                if self.java is not None:
                    self.java.look()
                if self.spark is not None:
                    self.spark.look()
                kill = time.time() >= self._kill_at
                if kill:
                    self._kill_at = time.time() + self._chance.uniform(*_DRIVER_EVERY_S)
            if kill:
                self._kill_a_driver()

    def _kill_a_driver(self) -> None:
        with self._lock:
            self._chance.choice(self.jobs).kill()

    def _feed(self, seconds: float) -> None:
        """Rows for so many seconds beyond what has been read, while the cluster is whole."""
        with self._lock:
            read = max(max(batches.ended, default=-1) + 1 for batches in self._queries.values()) * ROWS_PER_BATCH
        wanted = read + round(seconds / TRIGGER_S) * ROWS_PER_BATCH
        producer = Producer({
            "bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0,
            "queue.buffering.max.messages": 1_000_000,
        })  # fmt: skip
        for number in range(self._fed, max(wanted, self._fed)):
            producer.produce(SOURCE, str(number), str(number % KEYS), partition=number % PARTITIONS)
            producer.poll(0)
        if producer.flush(_READ_WITHIN_S):
            raise RuntimeError("the source could not be fed")
        self._fed = max(wanted, self._fed)

    # ---- the end

    def finish(self, row: Row) -> None:
        """End every query behind a batch, and judge the whole: rows, the groups' offsets, `verify`. What does not hold
        is added to the row.
        """
        self._over.set()
        self._watch.join()
        checkpoints = {job.plan.name: job.plan.checkpoint for job in self.jobs}
        for job in self.jobs:
            code = job.finish()
            if code != 0:
                row.ended.append(f"{job.plan.name}: {job.batches.errors[-1:] or code}")
        if self.spark is not None:
            self.spark.finish()
            checkpoints[OURS] = self.spark.checkpoint(OURS)
        self._judge(row)
        for name, checkpoint in checkpoints.items():
            judge, group = self._judged[name].judge, self._group_offsets(name)
            # Spark stops a query anywhere: a batch that is decided may not be in its commit log yet.
            ends = next((each for each in _ends(checkpoint) if each == group), None)
            if ends is None:
                row.problems.append(f"{name}: the group is at {group}, the checkpoint at {_ends(checkpoint)}")
                continue
            row.problems += [f"{name}, at the end: {problem}" for problem in judge.problems(ends)]
            row.lost += len(judge.lost(ends)) - len(judge.lost())
            row.problems += self._verify(name)

    def _group_offsets(self, group: str) -> dict[int, int]:
        asked = self.cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(_READ_WITHIN_S).topic_partitions
        return {each.partition: each.offset for each in found if each.topic == SOURCE}

    def _verify(self, name: str) -> list[str]:
        answer = subprocess.run(
            [Path(sys.executable).with_name("kafka-eos"), "verify", name, "-n", str(_VERIFIED), "--json",
             "-b", self.cluster.bootstrap_servers],
            capture_output=True, text=True, timeout=_READ_WITHIN_S, check=False, cwd=ROOT,
        )  # fmt: skip
        if answer.returncode == 0:
            return []
        return [f"{name}: verify ended with {answer.returncode}: {answer.stdout[-400:]}{answer.stderr[-400:]}"]


def _ends(checkpoint: Path) -> list[dict[int, int]]:
    """Where the newest committed batch ends in the source, and where one ends that was logged behind it."""
    logged, committed = (
        {int(each.name) for each in (checkpoint / log).iterdir() if each.name.isdigit()} for log in _LOGS
    )
    newest = max(committed, default=-1)
    found = []
    for batch in (newest, newest + 1):
        if batch in logged:
            offsets = json.loads((checkpoint / _LOGS[0] / str(batch)).read_text().splitlines()[-1])[SOURCE]
            found.append({int(number): end for number, end in offsets.items()})
    return found


_LOGS = ("offsets", "commits")


@contextlib.contextmanager
def staged(cluster: Cluster, directory: Path, ways: Sequence[tuple[str, str]], *, with_spark: bool) -> Iterator[Stage]:
    """A stage on which all goes well so far."""
    with Stage(cluster, directory, ways, with_spark=with_spark) as stage:
        yield stage


def as_json(row: Row) -> str:
    """For the file of a run's rows."""
    return json.dumps(row.__dict__)


def from_file(path: Path) -> list[Row]:
    """The rows of a run."""
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]
