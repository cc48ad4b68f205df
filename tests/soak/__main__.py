"""`make soak`: small batches for an hour, a fault every 20 s, on Apache Kafka and on the embedded broker.

    .venv/bin/python -m tests.soak [--minutes 60] [--broker both] [--form foreachBatch] [--write]

Owns: the brokers, the faults, the samples, the proof in the end, the table.
Does not know: the query (`application`), how a trend is judged (`trend`).
Invariants:
- Trends are taken from the second half: in the first one code is loaded and segments fill.
- The broker is killed and started again in the first half only; in the second one it is frozen, and its memory is one
  process's.
- The query is started again in the first half only: each start of any `foreachBatch` query leaves PySpark a thread with
  its connection to Java (docs/design/lessons.md), which would be the only thing to see.
- Growth of Apache Kafka's own process is shown and not judged.
- The proof reads the output from its first record to its last with another client.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.children import PARENT, ROOT, Child, holds, processes_under
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from pyspark_kafka_eos.commit.ledger.topic import SETTINGS
from tests.soak.page import with_section
from tests.soak.plan import LEDGER, PARTITIONS, ROWS_PER_BATCH, TOPIC
from tests.soak.trend import Trend, trend
from tests.soak.workers import forks_of_the_daemon
from tests.support.committed import committed
from tests.support.made import today

PAGE = ROOT / "evidence" / "soak.md"
FAULT_EVERY_S = 20.0
WARM_BATCHES = 10
SAMPLE_EVERY_S = 5.0
HEAP_EVERY_S = 60.0
FROZEN_S = 2.0

_SEGMENT = 1024 * 1024
# Small segments, so that the state that compaction keeps is reached within minutes.
CLEANER = {"log.cleaner.backoff.ms": "2000", "log.cleaner.min.cleanable.ratio": "0.1"}
SEGMENTS = {
    "kafka": {
        "transaction.state.log.segment.bytes": str(_SEGMENT),
        "offsets.topic.segment.bytes": str(_SEGMENT),
    },
    # It seals the segments of its own topics early by itself.
    "embedded": {},
}
_WITHIN_S = 120.0

TOLERATED = {"MB": 30.0, "": 5.0}
"""Growth in an hour that counts as none, by unit: allocators' rounding, a thread that a pool adds."""


@dataclass
class Samples:
    """Figure -> (seconds since the start, value). Its unit is the word in brackets."""

    of: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, at: float, values: dict[str, float]) -> None:
        """Values of one moment."""
        for name, value in values.items():
            self.of.setdefault(name, []).append((at, value))

    def trends(self, since: float) -> dict[str, Trend]:
        """Of the samples from that second on."""
        late = {name: [each for each in found if each[0] >= since] for name, found in self.of.items()}
        return {name: trend([at for at, _ in found], [value for _, value in found]) for name, found in late.items()}


class Soak:
    """One broker, one application, until the time is over."""

    def __init__(
        self, broker: LocalKafka | EmbeddedKafka, child: Child, form: str, directory: Path, minutes: float
    ) -> None:
        self.broker, self.child, self.form = broker, child, form
        self.checkpoint = str(directory / "checkpoint")
        self.minutes = minutes
        self.samples = Samples()
        self.faults: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self.threads: list[Counter[str]] = []
        self.batch = -1
        self._chance = random.Random(7)

    def run(self) -> None:
        """Start, strike, sample."""
        self._create_topics()
        self._start()
        self._await_batch(WARM_BATCHES, "of the start")
        began, length = time.monotonic(), self.minutes * 60
        next_fault, early = (
            began + FAULT_EVERY_S,
            itertools.cycle([self.freeze, self.kill_worker, self.kill_broker, self.restart_query]),
        )
        late = itertools.cycle([self.freeze, self.kill_worker])
        next_heap = began
        while (at := time.monotonic() - began) < length:
            time.sleep(SAMPLE_EVERY_S)
            self._keep_running()
            self.samples.add(at, self._sample())
            if time.monotonic() >= next_heap:
                self.samples.add(at, {"driver's JVM: live heap [MB]": self.child.ask("heap")["mb"]})
                self.threads.append(Counter(self.child.ask("threads")))
                next_heap += HEAP_EVERY_S
            if time.monotonic() >= next_fault:
                fault: Callable[[], bool] = next(early if at < length / 2 else late)
                name = fault.__name__ if fault() else f"no {fault.__name__}"
                self.faults[name] = self.faults.get(name, 0) + 1
                next_fault += FAULT_EVERY_S
        self._await_batch(self.batch + 2, "after the last fault")
        self.child.ask("stop")

    def pools(self) -> list[str]:
        """The JVM's threads whose number changed in the second half: at its beginning, and at the end, by name."""
        first, last = self.threads[len(self.threads) // 2], self.threads[-1]
        return [f"{name} {first[name]} -> {last[name]}" for name in sorted(first | last) if first[name] != last[name]]

    # ---- the query

    def _create_topics(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        new = [
            NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1),
            NewTopic(
                LEDGER,
                num_partitions=8,
                replication_factor=1,
                config=SETTINGS | {"segment.bytes": str(_SEGMENT)},
            ),
        ]
        for answer in admin.create_topics(new).values():
            answer.result(30)

    def _start(self) -> None:
        self.child.ask("start", form=self.form, checkpoint=self.checkpoint)

    def _keep_running(self) -> None:
        found = self.child.ask("check")
        self.batch = max(self.batch, found["batch"])
        if not found["active"]:
            why = found["error"].split(":")[0] or "stopped"
            self.restarts[why] = self.restarts.get(why, 0) + 1
            self._start()

    def _await_batch(self, batch: int, what: str) -> None:
        deadline = time.monotonic() + _WITHIN_S
        while self.batch < batch:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no batch {what} within {_WITHIN_S:.0f} s: {self.child.ask('check')}")
            time.sleep(1)
            self._keep_running()

    # ---- faults; each returns whether it struck

    def freeze(self) -> bool:
        """The broker answers nothing for a while."""
        os.kill(self._broker_pid(), signal.SIGSTOP)
        time.sleep(FROZEN_S)
        os.kill(self._broker_pid(), signal.SIGCONT)
        return True

    def kill_broker(self) -> bool:
        """SIGKILL, and a start on the same data."""
        self.broker.kill()
        self.broker.restart()
        return True

    def kill_worker(self) -> bool:
        """SIGKILL to one of the tasks' Python workers; Spark tries its task again."""
        workers = forks_of_the_daemon(self._processes())
        if not workers:
            return False
        try:
            os.kill(self._chance.choice(sorted(workers)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def restart_query(self) -> bool:
        """The query is stopped wherever it is, and started again on its checkpoint."""
        self.child.ask("stop")
        self._start()
        return True

    # ---- samples

    def _broker_pid(self) -> int:
        return self.broker.pid if isinstance(self.broker, EmbeddedKafka) else self.broker.pid()

    def _processes(self) -> dict[int, tuple[int, str]]:
        """Process id -> (its parent, its command line), of the application."""
        found = {}
        for pid, fields in processes_under(self.child.pid).items():
            with contextlib.suppress(OSError):
                command = Path("/proc", str(pid), "cmdline").read_text().replace("\0", " ")
                found[pid] = (int(fields[PARENT]), command)
        return found

    def _sample(self) -> dict[str, float]:
        values: dict[str, float] = {}
        processes = self._processes()
        named = {
            "driver": [self.child.pid],
            "driver's JVM": [pid for pid, (_, command) in processes.items() if "/java " in command],
            "a worker": forks_of_the_daemon(processes),
            "broker": [self._broker_pid()],
        }
        for name, pids in named.items():
            # Spark decides how many workers there are, so theirs are means.
            found = [each for each in map(holds, pids) if each is not None]
            if found:
                values[f"{name}: resident [MB]"] = fmean(each.resident_mb for each in found)
                values[f"{name}: descriptors"] = fmean(each.files for each in found)
                values[f"{name}: threads"] = fmean(each.threads for each in found)
        for topic in (LEDGER, "__transaction_state"):
            files = [
                path for path in Path(self.broker.data_dir).rglob("*.log") if path.parent.name.startswith(f"{topic}-")
            ]
            values[f"{topic} [MB]"] = sum(_size(path) for path in files) / 1024**2
        return values

    # ---- the proof

    def prove(self) -> tuple[int, int, int]:
        """(rows of committed batches, rows that are missing, copies too many), by another client's reading of the
        output.
        """
        servers = {"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0}
        values = [int(value) for value in committed(servers, TOPIC, PARTITIONS, _WITHIN_S)]
        copies = np.bincount(np.array(values, np.int64), minlength=1)
        assert len(copies) % ROWS_PER_BATCH == 0, "a batch is visible in part"
        return len(copies), int((copies == 0).sum()), int((copies[copies > 1] - 1).sum())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextlib.contextmanager
def broker_of(kind: str, data_dir: Path) -> Iterator[LocalKafka | EmbeddedKafka]:
    """A broker with small internal segments."""
    config = CLEANER | SEGMENTS[kind]
    with (
        LocalKafka(data_dir=data_dir, config=config)
        if kind == "kafka"
        else EmbeddedKafka(data_dir=data_dir, config=config) as broker
    ):
        yield broker


def soak(kind: str, form: str, minutes: float) -> tuple[list[str], list[str]]:
    """One soak; returns its part of the page and what is wrong."""
    label = f"Apache Kafka {NEWEST_KAFKA}" if kind == "kafka" else "the embedded broker"
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    with broker_of(kind, directory / "broker") as broker:
        with Child(
            sys.executable,
            "tests.soak.application",
            broker.bootstrap_servers,
            log=directory / "application.log",
        ) as child:
            running = Soak(broker, child, form, directory, minutes)
            running.run()
        rows, missing, repeated = running.prove()
    trends = running.samples.trends(minutes * 30)
    growing = [
        f"{name} grows by {each.slope:.1f} in an hour"
        for name, each in trends.items()
        if each.grows(TOLERATED["MB" if "[MB]" in name else ""])
        and not (kind == "kafka" and name.startswith("broker:"))
    ]
    if any("JVM: threads" in each for each in growing):
        growing.append(f"threads of the JVM, by name: {', '.join(running.pools())}")
    wrong = growing + ([f"{missing} rows are missing, {repeated} are there again"] if missing or repeated else [])
    batches = rows // ROWS_PER_BATCH
    faults = ", ".join(f"{count} x {name.replace('_', ' ')}" for name, count in sorted(running.faults.items()))
    restarts = ", ".join(f"{count} x {name}" for name, count in sorted(running.restarts.items())) or "none"
    lines = [
        f"## {label}, {form}",
        "",
        f"{minutes:g} minutes, ended on {today()}, {batches} batches ({batches / minutes / 60:.1f} a second) of {ROWS_PER_BATCH} rows. Faults: {faults}. "
        f"Queries that failed and were started again: {restarts}. Rows missing: {missing}; rows there again: {repeated}.",
        "",
        "| | mean of the second half | slope for an hour | its standard error |",
        "|---|---|---|---|",
        *(f"| {name} | {each.mean:.1f} | {each.slope:+.1f} | {each.error:.1f} |" for name, each in trends.items()),
        "",
    ]
    if not wrong:
        shutil.rmtree(directory)
    return lines, [f"{label}: {each} (logs: {directory})" for each in wrong]


def main() -> int:
    """Run, print, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of each broker (60)")
    parser.add_argument("--broker", choices=("kafka", "embedded", "both"), default="both")
    parser.add_argument("--form", choices=("foreachBatch", "format"), default="foreachBatch")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    wrong: list[str] = []
    for kind in ("kafka", "embedded") if arguments.broker == "both" else (arguments.broker,):
        lines, found = soak(kind, arguments.form, arguments.minutes)
        print("\n".join(lines), flush=True)
        wrong += found
        if arguments.write:
            before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
            PAGE.write_text(with_section(before, lines), encoding="utf-8")
    for each in wrong:
        print(f"WRONG: {each}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
