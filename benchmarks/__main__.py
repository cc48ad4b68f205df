"""`make bench`: the throughput of every way from a DataFrame to Kafka, side by side.

    .venv/bin/python -m benchmarks [--rounds 3] [--only exactly-once,limit] ...

Owns: the order of the runs, the processes.
Does not know: how a way writes (`application`, `replayer`), when it is warm (`warm_up`), the meaning of the numbers (`report`).
Invariants:
- A way's runs count once it is warm.
- Ways take turns within a round, in another order in each, so other load on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.catalogue import (
    LIMIT,
    LIMIT_EMBEDDED,
    NEWEST,
    NEWEST_EMBEDDED,
    ON_EMBEDDED,
    PEER,
    RECORDS,
    VARIANTS,
    Variant,
)
from benchmarks.children import ROOT, Child
from benchmarks.peer import PEER_PYTHON, jvm_sink_jars, logs_in_memory
from benchmarks.rounds import REPLAYERS, Bench, Target
from benchmarks.tls import KafkaWithTls
from benchmarks.warm_up import WarmUp
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA

RESULTS = ROOT / "benchmarks" / "results.json"


def main() -> int:
    """Run, print, write the results."""
    arguments = parse()
    wanted = [each for each in VARIANTS if not arguments.only or each.name in arguments.only.split(",")]
    records = {size: arguments.records or RECORDS.get(size, 200_000_000 // size) for size in arguments.sizes}
    runs: list[report.Run] = []
    warmth: dict[str, dict[str, Any]] = {}
    # Kept after a failure, so that the logs can be read.
    logs = Path(tempfile.mkdtemp(prefix="benchmarks-"))
    memory = logs_in_memory()
    print(f"the brokers' logs are {'in memory' if memory else 'on disk: there is no room for them in memory'}")
    with started(wanted, arguments, memory, logs) as (bench, versions):
        for size in arguments.sizes:
            bench.load(size, records[size], words=any(each.words for each in wanted))
            warm = {each.name: WarmUp(records[size], size) for each in wanted}
            for number, variant in order(wanted, warm, arguments.rounds, arguments.seed):
                run = bench.run(variant, size, number, passes(variant, wanted, warm))
                if number:
                    runs.append(run)
                else:
                    warm[variant.name].note(run.seconds, run.records, run.cpu_seconds)
                print(
                    f"{size} B, {f'round {number}' if number else 'warm-up'}: {variant.label}: {run.records_per_s:,.0f} records/s, "
                    f"{run.seconds:.1f} s, CPU {run.cpu_seconds_per_million:.2f} s per million",
                    flush=True,
                )
            warmth[str(size)] = {name: {"runs": len(each.costs), "steady": each.steady} for name, each in warm.items()}
            bench.unload()
    summaries = report.summarise(runs)
    found = report.all_ratios(summaries)
    report.print_report(summaries, found, {each.name: each.label for each in VARIANTS})
    latency = [] if arguments.only else commit_latency(logs, arguments.kafka)
    report.write_results(
        arguments.output,
        commit_latency=latency,
        arguments={
            "rounds": arguments.rounds,
            "partitions": arguments.partitions,
            "records": records,
            "logs_in_memory": memory is not None,
            "seed": arguments.seed,
        },
        versions=versions,
        variants={each.name: dataclasses.asdict(each) for each in wanted},
        warm_up=warmth,
        runs=runs,
        summaries=summaries,
        found=found,
    )
    print(f"all runs: {arguments.output}")
    shutil.rmtree(logs)
    return 0


def order(wanted: Sequence[Variant], warm: dict[str, WarmUp], rounds: int, seed: int) -> Iterator[tuple[int, Variant]]:
    """(round, way) one after the other. Round 0 does not count, and is played again with the ways that are not warm."""
    chance = random.Random(seed)
    while cold := [each for each in wanted if not warm[each.name].over]:
        yield from ((0, each) for each in chance.sample(cold, len(cold)))
    for number in range(1, rounds + 1):
        yield from ((number, each) for each in chance.sample(wanted, len(wanted)))


def passes(variant: Variant, wanted: Sequence[Variant], warm: dict[str, WarmUp]) -> int:
    """How often a run writes its data. All sources read one topic, which is long enough for the fastest of them."""
    if variant.reads:
        return max(warm[each.name].passes for each in wanted if each.reads)
    return warm[variant.name].passes


@contextlib.contextmanager
def started(
    wanted: Sequence[Variant], arguments: argparse.Namespace, memory: Path | None, logs: Path
) -> Iterator[tuple[Bench, dict[str, Any]]]:
    """The brokers and applications that these ways need, and their versions."""
    with contextlib.ExitStack() as stack:
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
                    for _ in range(REPLAYERS)
                ]
        versions: dict[str, Any] = {name: child.ask("versions") for name, child in applications.items()}
        versions["kafka"] = arguments.kafka
        yield Bench(targets, applications, replayers, arguments.partitions, broker.options), versions


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
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after the warm-up (3)")
    parser.add_argument(
        "--records",
        type=int,
        help="records of the data, which a run writes several times (2,000,000 of 100 bytes, 400,000 of 1 KB)",
    )
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=list(RECORDS))
    parser.add_argument("--partitions", type=int, default=4, help="of the DataFrame and of the topics (4)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within a round (1)")
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
