"""`make bench`: the throughput of every way from a DataFrame to Kafka, side by side.

    .venv/bin/python -m benchmarks [--rounds 5] [--quick] [--only exactly-once,limit] ...

Owns: the list of variants, the order of the runs, the topics.
Does not know: how a way writes (`application`, `replayer`), the meaning of the numbers (`report`).
Invariants:
- Every run writes the same number of records of the same size to a topic of its own with the same settings in
  the same broker.
- Variants take turns within a round, so other load on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.children import ROOT, Child, cpu_seconds
from benchmarks.tls import KafkaWithTls
from connector.embedded import EmbeddedKafka
from connector.local import NEWEST_KAFKA
from connector.local.java import require_java
from connector.local.maven import Artifact, fetch

PEER_PYTHON = ROOT / ".venv-bench-jvm" / "bin" / "python"
PEER_SPARK = "4.0.0"
SINK = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", PEER_SPARK)
RESULTS = ROOT / "benchmarks" / "results.json"

# So many that a run takes 2 s or more on two cores, and little enough for the whole to take under 12 minutes.
RECORDS = {100: 2_000_000, 1024: 400_000}
_QUICK_DIVISOR = 4
_REPLAYERS = 2
_LEAST_SECONDS = 5.0
"""Shortest run of ready-made batches. The kernel counts CPU in 10 ms, and connecting takes the first half
second of a run."""

_MEMORY = Path("/dev/shm")
_LARGEST_TOPIC_BYTES = 5 * 1024**3
"""Bytes of values in one run: at 1 KB and a million records/s that is 5 s."""
_ROOM_BYTES = 14 * 1024**3
"""Memory that must be free before logs are kept in it: for the largest topic and the one being deleted, the
packed records, and the JVMs."""

_ADMIN_TIMEOUT_S = 30

# The just-in-time compiler of a fresh JVM works for a good ten million rows; a query that runs for days is past that.
WARM_UP_ROUNDS = 2

# The best of nine settings tried for each size (linger 5-100 ms, batches 64 KB-1 MB, buffers 32-128 MB, with and without
# lz4), which differed by 10 % among each other.
_ROOMY = {"kafka.buffer.memory": "134217728", "kafka.max.request.size": "4194304"}
TUNED_JVM = {
    100: {"kafka.linger.ms": "100", "kafka.batch.size": "524288", **_ROOMY},
    1024: {"kafka.linger.ms": "5", "kafka.batch.size": "131072", **_ROOMY},
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way of writing, or with `reads` of reading, in one of the applications, with these options by size of value, and with `tls`
    by the listener that asks for it."""

    name: str
    label: str
    application: str
    way: str
    options: dict[int, dict[str, str]] = dataclasses.field(default_factory=dict)
    reads: bool = False
    tls: bool = False

    def options_for(self, value_bytes: int) -> dict[str, str]:
        """The options of the size nearest to this one."""
        if not self.options:
            return {}
        return self.options[min(self.options, key=lambda size: abs(size - value_bytes))]


PEER, NEWEST, LIMIT = f"pyspark {PEER_SPARK}", "newest pyspark", "no Spark"
NEWEST_EMBEDDED, LIMIT_EMBEDDED = "newest pyspark, embedded broker", "no Spark, embedded broker"
ON_EMBEDDED = (NEWEST_EMBEDDED, LIMIT_EMBEDDED)

SCOPE_BATCH = {100: {"transaction.scope": "batch"}}

VARIANTS = (
    Variant("jvm-default", "Spark's JVM Kafka sink, defaults", PEER, "jvm"),
    Variant("jvm-tuned", "Spark's JVM Kafka sink, tuned", PEER, "jvm", TUNED_JVM),
    Variant("row-by-row", "confluent-kafka, row by row", PEER, "row-by-row"),
    Variant("at-least-once", "ours without transactions", PEER, "at-least-once"),
    Variant("exactly-once", "ours, exactly once", PEER, "exactly-once"),
    Variant("exactly-once-batch", "ours, exactly once, scope=batch", PEER, "exactly-once", SCOPE_BATCH),
    Variant("jvm-tuned-tls", "TLS: Spark's JVM Kafka sink, tuned", PEER, "jvm", TUNED_JVM, tls=True),
    Variant("exactly-once-tls", "TLS: ours, exactly once", PEER, "exactly-once", tls=True),
    Variant("limit", "ready-made batches (the limit)", LIMIT, "replay"),
    Variant("count", "Spark to Python, nothing written", PEER, "count"),
    Variant("at-least-once-newest", "newest pyspark: ours without transactions", NEWEST, "at-least-once"),
    Variant("exactly-once-newest", "newest pyspark: ours, exactly once", NEWEST, "exactly-once"),
    Variant(
        "exactly-once-batch-newest", "newest pyspark: ours, scope=batch", NEWEST, "exactly-once", SCOPE_BATCH
    ),
    Variant("count-newest", "newest pyspark: to Python, nothing written", NEWEST, "count"),
    Variant(
        "exactly-once-newest-tls", "TLS: newest pyspark: ours, exactly once", NEWEST, "exactly-once", tls=True
    ),
    Variant("limit-embedded", "embedded broker: ready-made batches", LIMIT_EMBEDDED, "replay"),
    Variant(
        "exactly-once-embedded", "embedded broker: newest pyspark, ours", NEWEST_EMBEDDED, "exactly-once"
    ),
    Variant("source-jvm", "Spark's JVM Kafka source, to nowhere", PEER, "kafka", reads=True),
    Variant("source-ours", "our source, to nowhere", PEER, "kafka_eos", reads=True),
    Variant("source-ours-newest", "newest pyspark: our source, to nowhere", NEWEST, "kafka_eos", reads=True),
    Variant(
        "exactly-once-batch-embedded",
        "embedded broker: newest pyspark, ours, scope=batch",
        NEWEST_EMBEDDED,
        "exactly-once",
        SCOPE_BATCH,
    ),
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A broker under test."""

    bootstrap_servers: str
    process_id: int


class Bench:
    """The brokers and the processes that write to them."""

    def __init__(
        self,
        targets: dict[bool, Target],
        children: dict[str, Child],
        replayers: dict[str, list[Child]],
        partitions: int,
        tls: dict[str, str],
    ) -> None:
        from confluent_kafka.admin import AdminClient

        self._targets = targets
        self._children = children
        self._replayers = replayers
        self._partitions = partitions
        self._tls = tls
        self._admins = {
            embedded: AdminClient({"bootstrap.servers": target.bootstrap_servers, "log_level": 0})
            for embedded, target in targets.items()
        }
        self._passes: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self._topics = 0
        self._filled: str | None = None

    def load(self, value_bytes: int, records: int) -> None:
        """Prepare the data in every process."""
        name = str(value_bytes)
        self._records[value_bytes] = records
        for child in self._children.values():
            child.ask(
                "load", name=name, value_bytes=value_bytes, records=records, partitions=self._partitions
            )
        for seed, child in (each for group in self._replayers.values() for each in enumerate(group)):
            share = records // _REPLAYERS + (records % _REPLAYERS if seed == 0 else 0)
            child.ask(
                "load",
                name=name,
                value_bytes=value_bytes,
                records=share,
                partitions=self._partitions,
                seed=seed,
            )

    def unload(self, value_bytes: int) -> None:
        """Release the memory."""
        for child in [
            *self._children.values(),
            *(each for group in self._replayers.values() for each in group),
        ]:
            child.ask("unload", name=str(value_bytes))

    def lengthen(self, value_bytes: int, shortest_s: float) -> None:
        """Make a run of ready-made batches send its set often enough to last long enough, where once takes
        `shortest_s`."""
        records = self._records[value_bytes]
        enough = math.ceil(_LEAST_SECONDS / shortest_s)
        self._passes[value_bytes] = max(1, min(enough, _LARGEST_TOPIC_BYTES // (records * value_bytes)))

    def run(self, variant: Variant, value_bytes: int, number: int) -> report.Run:
        """One run: into a new topic, or from the topic prepared for reading."""
        if variant.reads:
            return self._read(variant, value_bytes, number)
        embedded = variant.application in ON_EMBEDDED
        process_id = self._targets[embedded].process_id
        with self._topic(embedded) as topic:
            broker_cpu = cpu_seconds(process_id)
            if variant.application in self._replayers:
                answer = self._replay(self._replayers[variant.application], value_bytes, topic)
            else:
                child = self._children[variant.application]
                answer = child.ask(
                    "write",
                    name=str(value_bytes),
                    way=variant.way,
                    topic=topic,
                    options=variant.options_for(value_bytes) | (self._tls if variant.tls else {}),
                )
            answer["broker_cpu_seconds"] = round(cpu_seconds(process_id) - broker_cpu, 2)
        return report.Run(variant.name, value_bytes, number, **answer)

    def fill(self, value_bytes: int) -> None:
        """Write the data set to the topic that the sources read, replacing the previous one. Spark's JVM sink
        does it where it runs, with its tuned batches: large ones, as in a busy topic."""
        if self._filled is not None:
            self._delete(self._filled, False)
        self._filled = self._create(False)
        peer = self._children.get(PEER)
        child = peer or self._children[NEWEST]
        child.ask(
            "write",
            name=str(value_bytes),
            way="jvm" if peer else "at-least-once",
            topic=self._filled,
            options=TUNED_JVM[min(TUNED_JVM, key=lambda size: abs(size - value_bytes))] if peer else {},
        )

    def _read(self, variant: Variant, value_bytes: int, number: int) -> report.Run:
        process_id = self._targets[False].process_id
        broker_cpu = cpu_seconds(process_id)
        answer = self._children[variant.application].ask(
            "read", name=str(value_bytes), form=variant.way, topic=self._filled
        )
        answer["broker_cpu_seconds"] = round(cpu_seconds(process_id) - broker_cpu, 2)
        return report.Run(variant.name, value_bytes, number, **answer)

    def _replay(self, replayers: list[Child], value_bytes: int, topic: str) -> dict[str, Any]:
        began = time.perf_counter()
        for child in replayers:
            child.tell("write", name=str(value_bytes), topic=topic, passes=self._passes.get(value_bytes, 1))
        answers = [child.answer() for child in replayers]
        return {
            "seconds": round(time.perf_counter() - began, 4),
            "records": sum(answer["records"] for answer in answers),
            "cpu_seconds": round(sum(answer["cpu_seconds"] for answer in answers), 2),
        }

    @contextlib.contextmanager
    def _topic(self, embedded: bool) -> Iterator[str]:
        name = self._create(embedded)
        yield name
        # Gone before the next run: nothing of this one is left for the disk to write.
        self._delete(name, embedded)

    def _create(self, embedded: bool) -> str:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin = self._admins[embedded]
        self._topics += 1
        name = f"bench-{self._topics}"
        new = NewTopic(name, num_partitions=self._partitions, replication_factor=1)
        admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[name].result(_ADMIN_TIMEOUT_S)
        # The controller has it; the broker that clients ask may learn of it later.
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while name not in admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not know the new topic {name}")
            time.sleep(0.05)
        return name

    def _delete(self, name: str, embedded: bool) -> None:
        self._admins[embedded].delete_topics([name], operation_timeout=_ADMIN_TIMEOUT_S)[name].result(
            _ADMIN_TIMEOUT_S
        )


def logs_in_memory() -> Path | None:
    """A directory in memory with room for the brokers' logs, so the disk does not limit the results; None
    without one."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    free = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvail")
    )
    return _MEMORY if int(free.split()[1]) * 1024 >= _ROOM_BYTES else None


def jvm_sink_jars() -> str:
    """Spark's own Kafka sink with the dependencies that Spark lacks, as a list for `spark.jars`."""
    found = fetch(f"spark-sql-kafka-{PEER_SPARK}", [SINK], require_java())
    needed = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    # Ivy names them by group or not, as it likes.
    jars = sorted(str(jar) for jar in found.glob("*.jar") if any(name in jar.name for name in needed))
    if len(jars) != len(needed):
        raise FileNotFoundError(f"expected one jar each of {needed} in {found}, found {jars}")
    return ",".join(jars)


def main() -> int:
    """Run, print, write the results."""
    arguments = parse()
    wanted = [each for each in VARIANTS if not arguments.only or each.name in arguments.only.split(",")]
    records = {size: arguments.records or RECORDS.get(size, 200_000_000 // size) for size in arguments.sizes}
    if arguments.quick:
        records = {size: count // _QUICK_DIVISOR for size, count in records.items()}
    runs: list[report.Run] = []
    # Kept after a failure, so that the logs can be read.
    logs = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    with contextlib.ExitStack() as stack:
        memory = logs_in_memory()
        print(
            f"the brokers' logs are {'in memory' if memory else 'on disk: there is no room for them in memory'}"
        )
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-data-", dir=memory)))
        # Deleted files go at once: a minute later, as by default, they would be written to disk first, or fill the memory.
        broker = stack.enter_context(
            KafkaWithTls(
                arguments.kafka,
                data_dir=data / "kafka",
                config={"log.segment.delete.delay.ms": "100"},
                folder=data,
            )
        )
        targets = {False: Target(broker.bootstrap_servers, broker.pid())}
        if any(each.application in ON_EMBEDDED for each in wanted):
            embedded = stack.enter_context(EmbeddedKafka(data_dir=data / "embedded"))
            targets[True] = Target(embedded.bootstrap_servers, embedded.pid)
        applications, replayers = {}, {}
        for name, python, options in (
            (PEER, arguments.peer_python, ["--jars", jvm_sink_jars()]),
            (NEWEST, sys.executable, []),
            (NEWEST_EMBEDDED, sys.executable, []),
            (LIMIT, sys.executable, None),
            (LIMIT_EMBEDDED, sys.executable, None),
        ):
            if not any(each.application == name for each in wanted):
                continue
            servers = targets[name in ON_EMBEDDED].bootstrap_servers
            log = logs / f"{name.replace(', ', '-').replace(' ', '-')}.log"
            if options is not None:
                child = Child(python, "benchmarks.application", servers, *options, log=log)
                applications[name] = stack.enter_context(child)
            else:
                replayers[name] = [
                    stack.enter_context(Child(python, "benchmarks.replayer", servers, log=log))
                    for _ in range(_REPLAYERS)
                ]
        versions: dict[str, Any] = {name: child.ask("versions") for name, child in applications.items()}
        versions["kafka"] = arguments.kafka
        bench = Bench(targets, applications, replayers, arguments.partitions, broker.options)
        for size in arguments.sizes:
            bench.load(size, records[size])
            if any(each.reads for each in wanted):
                bench.fill(size)
            for number in range(1 - WARM_UP_ROUNDS, arguments.rounds + 1):
                ready_made: list[float] = []
                for variant in wanted:
                    run = bench.run(variant, size, number)
                    if variant.way == "replay":
                        ready_made.append(run.seconds)
                    print(
                        f"{size} B, {f'round {number}' if number > 0 else 'warm-up'}: {variant.label}: "
                        f"{run.records_per_s:,.0f} records/s, CPU {run.cpu_seconds_per_million:.2f} s per million",
                        flush=True,
                    )
                    if number > 0:
                        runs.append(run)
                if ready_made and number == 1 - WARM_UP_ROUNDS:
                    bench.lengthen(size, min(ready_made))
            bench.unload(size)
    summaries = report.summarise(runs)
    found = report.ratios(
        summaries, ("jvm-default", "jvm-tuned"), "exactly-once", "limit", "exactly-once-newest"
    )
    found += report.source_ratios(summaries, "source-jvm", ("source-ours", "source-ours-newest"))
    found += report.tls_ratios(summaries, "jvm-tuned")
    found += report.broker_ratios(summaries, "limit", "limit-embedded")
    labels = {each.name: each.label for each in VARIANTS}
    report.print_report(summaries, found, labels)
    latency = [] if arguments.only else commit_latency(logs, arguments.kafka)
    report.write_results(
        arguments.output,
        commit_latency=latency,
        arguments={
            "rounds": arguments.rounds,
            "partitions": arguments.partitions,
            "records": records,
            "logs_in_memory": memory is not None,
        },
        versions=versions,
        variants={each.name: dataclasses.asdict(each) for each in wanted},
        runs=runs,
        summaries=summaries,
        found=found,
    )
    print(f"all runs: {arguments.output}")
    shutil.rmtree(logs)
    return 0


def commit_latency(logs: Path, kafka: str) -> list[dict[str, float]]:
    """How long the commit of a micro-batch takes, by its number of tasks: medians in milliseconds."""
    found = logs / "commit-latency.json"
    print("\nthe commit of a micro-batch", flush=True)
    with (logs / "commit-latency.log").open("wb") as log:
        command = [sys.executable, "-m", "benchmarks.commit_latency", "--kafka", kafka, "--json", str(found)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=log, check=True)
    lines: list[dict[str, float]] = json.loads(found.read_text())
    return lines


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after two that do not (5)")
    parser.add_argument(
        "--records", type=int, help="records of each run (2,000,000 of 100 bytes, 400,000 of 1 KB)"
    )
    parser.add_argument(
        "--sizes", type=lambda text: [int(each) for each in text.split(",")], default=list(RECORDS)
    )
    parser.add_argument("--partitions", type=int, default=4, help="of the DataFrame and of the topics (4)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the records")
    parser.add_argument("--only", help=f"some variants: {','.join(each.name for each in VARIANTS)}")
    parser.add_argument("--kafka", default=NEWEST_KAFKA, help=f"version of the broker ({NEWEST_KAFKA})")
    parser.add_argument("--peer-python", default=str(PEER_PYTHON), help="a Python that has pyspark 4.0.0")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
