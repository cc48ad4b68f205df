"""How long a record takes through a micro-batch, from Kafka to Kafka, as a reader of committed records sees it.

    .venv/bin/python -m benchmarks.latency [--rounds 3] [--rate 1000] [--only jvm,format] ...

Owns: the feeder, the reader, the order of the runs, the table.
Does not know: how a query is built (`streams`).
Invariants:
- A record's value is the moment at which it was handed to the producer. The reader's clock is the same machine's.
- Every run has a topic, a checkpoint and a query of its own. Records of its first seconds and batches do not count.
- The first rounds of all variants do not count: a process runs for minutes until its batches are no longer getting
  faster.
- The variants of a round run in a new order each time, all beside the same feeder and on the same broker.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.catalogue import NEWEST, PEER
from benchmarks.children import ROOT, Child
from benchmarks.peer import PEER_PYTHON, PEER_SPARK, jvm_sink_jars, logs_in_memory
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka

RESULTS = ROOT / "benchmarks" / "latency.json"
SOURCE = "latency-in"
PARTITIONS = 4

_ADMIN_TIMEOUT_S = 30
_FEED_EVERY_S = 0.01
_FIRST_RECORD_WITHIN_S = 120
_WARM_BATCHES = 20
_CATCH_UP_S = 2.0
_LEAST_RECORDS = 100
"""Fewer have no 99th percentile."""


@dataclass(frozen=True)
class Variant:
    """A query in one of the applications."""

    name: str
    label: str
    application: str
    form: str
    options: dict[str, str] = field(default_factory=dict)


_BATCH = {"transaction.scope": "batch"}

VARIANTS = (
    Variant("jvm", f"Spark's source and sink, at least once, {PEER_SPARK}", PEER, "kafka"),
    Variant("format", f"ours by format, {PEER_SPARK}", PEER, "kafka_eos"),
    Variant("foreach", f"ours by foreachBatch, {PEER_SPARK}", PEER, "foreachBatch"),
    Variant("format-newest", "ours by format, newest pyspark", NEWEST, "kafka_eos"),
    Variant("foreach-newest", "ours by foreachBatch, newest pyspark", NEWEST, "foreachBatch"),
    Variant("batch-newest", "ours, scope=batch by format, newest pyspark", NEWEST, "kafka_eos", _BATCH),
)


@dataclass(frozen=True)
class Run:
    """One run: milliseconds from end to end; of a micro-batch, by phase of Spark's progress."""

    variant: str
    round: int
    records: int
    p50_ms: float
    p99_ms: float
    batches: int
    phases_ms: dict[str, float]


class Feeder:
    """Produces at an even rate until it is closed."""

    def __init__(self, bootstrap_servers: str, rate: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1, "log_level": 0})
        self._rate = rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(_ADMIN_TIMEOUT_S)

    def _feed(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._over.wait(_FEED_EVERY_S):
            due = int((time.monotonic() - began) * self._rate)
            for _ in range(due - sent):
                self._producer.produce(SOURCE, str(time.time()).encode())
            sent = due
            self._producer.poll(0)


class Bench:
    """The broker, the applications, and the reader of one run after another."""

    def __init__(self, bootstrap_servers: str, children: dict[str, Child], warm_s: float, counted_s: float) -> None:
        from confluent_kafka.admin import AdminClient

        self._servers = bootstrap_servers
        self._children = children
        self._warm_s, self._counted_s = warm_s, counted_s
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._topics = 0

    def create(self, name: str) -> str:
        """A topic that every client finds."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
        self._admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[name].result(_ADMIN_TIMEOUT_S)
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while name not in self._admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not know the new topic {name}")
            time.sleep(0.05)
        return name

    def run(self, variant: Variant, number: int) -> Run:
        """One query, warmed and measured."""
        self._topics += 1
        topic = self.create(f"latency-out-{self._topics}")
        child = self._children[variant.application]
        with self._reader(topic) as reader:
            child.ask("start", form=variant.form, source=SOURCE, topic=topic, options=variant.options)
            deadline = time.monotonic() + _FIRST_RECORD_WITHIN_S
            while not self._taken(reader, 0.5):
                child.ask("check")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{variant.name}: no record within {_FIRST_RECORD_WITHIN_S} s")
            self._taken(reader, self._warm_s)
            # What came while the first batches loaded their code is through after some more of them.
            while (since := child.ask("check")["batches"]) < _WARM_BATCHES:
                self._taken(reader, 0.5)
            # pyspark 4.0 takes seconds for that question. What came meanwhile is read late, and no batch is to blame.
            self._taken(reader, _CATCH_UP_S)
            found = sorted(self._taken(reader, self._counted_s))
            answer = child.ask("stop", since=since)
        self._admin.delete_topics([topic], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)
        if len(found) < _LEAST_RECORDS:
            raise RuntimeError(f"{variant.name}: {len(found)} records in {self._counted_s} s")
        cuts = statistics.quantiles(found, n=100)
        return Run(variant.name, number, len(found), round(cuts[49], 1), round(cuts[98], 1), **answer)

    @contextlib.contextmanager
    def _reader(self, topic: str) -> Iterator[Any]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        reader = Consumer({
            "bootstrap.servers": self._servers, "group.id": "latency", "isolation.level": "read_committed",
            "enable.auto.commit": False, "fetch.wait.max.ms": 100, "log_level": 0,
        })  # fmt: skip
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        try:
            yield reader
        finally:
            reader.close()

    @staticmethod
    def _taken(reader: Any, seconds: float) -> list[float]:
        """Milliseconds of every record that is read in that time."""
        found, until = [], time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            messages = reader.consume(500, timeout=min(left, 0.02))
            now = time.time()
            found += [(now - float(each.value())) * 1000 for each in messages if each.error() is None]
        return found


def summary(runs: list[Run]) -> list[dict[str, Any]]:
    """Of each variant the medians over its rounds, the lowest and highest p50 beside them, and the ratios to the
    JVM's.
    """
    found = []
    by_name = {each.name: [run for run in runs if run.variant == each.name] for each in VARIANTS}
    peer = by_name["jvm"]
    for variant in VARIANTS:
        mine = by_name[variant.name]
        if not mine:
            continue
        line: dict[str, Any] = {
            "variant": variant.name,
            "label": variant.label,
            "rounds": len(mine),
            "p50_ms": statistics.median(run.p50_ms for run in mine),
            "p50_range_ms": [min(run.p50_ms for run in mine), max(run.p50_ms for run in mine)],
            "p99_ms": statistics.median(run.p99_ms for run in mine),
            "phases_ms": {
                phase: statistics.median(run.phases_ms[phase] for run in mine) for phase in mine[0].phases_ms
            },
        }
        if peer:
            for which in ("p50_ms", "p99_ms"):
                theirs = statistics.median(getattr(run, which) for run in peer)
                line[f"{which} / jvm"] = round(line[which] / theirs, 2)
        found.append(line)
    return found


def table(lines: list[dict[str, Any]]) -> str:
    """The summary as a table."""
    head = [
        "",
        "p50 ms (lowest, highest)",
        "p99 ms",
        "p50 / JVM",
        "p99 / JVM",
        "plan",
        "log offsets",
        "add batch",
        "log commit",
        "trigger",
    ]
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in lines:
        low, high = line["p50_range_ms"]
        phases = line["phases_ms"]
        cells = [
            line["label"],
            f"{line['p50_ms']:.0f} ({low:.0f}, {high:.0f})",
            f"{line['p99_ms']:.0f}",
            str(line.get("p50_ms / jvm", "")),
            str(line.get("p99_ms / jvm", "")),
            *(
                f"{phases[phase]:.0f}"
                for phase in ("queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
            ),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> int:
    """Run, print, write the results."""
    arguments = parse()
    wanted = [each for each in VARIANTS if not arguments.only or each.name in arguments.only.split(",")]
    runs: list[Run] = []
    logs = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    with contextlib.ExitStack() as stack:
        memory = logs_in_memory()
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-data-", dir=memory)))
        broker = stack.enter_context(LocalKafka(arguments.kafka, data_dir=data / "kafka"))
        children = {}
        for name, python, options in (
            (PEER, arguments.peer_python, ["--jars", jvm_sink_jars()]),
            (NEWEST, sys.executable, []),
        ):
            if any(each.application == name for each in wanted):
                log = logs / f"{name.replace(' ', '-')}.log"
                child = Child(python, "benchmarks.streams", broker.bootstrap_servers, *options, log=log)
                children[name] = stack.enter_context(child)
        bench = Bench(broker.bootstrap_servers, children, arguments.warm, arguments.seconds)
        bench.create(SOURCE)
        stack.enter_context(Feeder(broker.bootstrap_servers, arguments.rate))
        order = random.Random(arguments.seed)
        for number in range(1 - arguments.warm_rounds, arguments.rounds + 1):
            for variant in order.sample(wanted, len(wanted)):
                run = bench.run(variant, number)
                print(
                    f"{f'round {number}' if number > 0 else 'warm-up'}: {variant.label}: p50 {run.p50_ms:.0f} ms, p99 {run.p99_ms:.0f} ms, "
                    f"{run.batches} batches of {run.phases_ms['triggerExecution']:.0f} ms",
                    flush=True,
                )
                if number > 0:
                    runs.append(run)
    lines = summary(runs)
    print(table(lines))
    arguments.output.write_text(
        json.dumps(
            {
                "arguments": {
                    "rounds": arguments.rounds, "warm_rounds": arguments.warm_rounds, "rate": arguments.rate, "kafka": arguments.kafka, "warm_s": arguments.warm,
                    "seconds": arguments.seconds, "partitions": PARTITIONS, "logs_in_memory": memory is not None,
                },
                "summary": lines,
                "runs": [asdict(run) for run in runs],
            },
            indent=1,
        )
    )  # fmt: skip
    shutil.rmtree(logs)
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-rounds", type=int, default=2, help="rounds before these, which do not count (2)")
    parser.add_argument("--rate", type=int, default=1_000, help="records a second (1,000)")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds of each run that do not count (20)")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each run that count (15)")
    parser.add_argument("--only", help=f"some variants: {','.join(each.name for each in VARIANTS)}")
    parser.add_argument("--kafka", default=NEWEST_KAFKA, help=f"version of the broker ({NEWEST_KAFKA})")
    parser.add_argument("--peer-python", default=str(PEER_PYTHON), help="a Python that has pyspark 4.0.0")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the runs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.rate < 1 or arguments.warm_rounds < 0:
        parser.error("--rounds and --rate must be 1 or more, --warm-rounds 0 or more")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
