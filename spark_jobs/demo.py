"""The demo: 336,776 flights through the streaming job, its driver killed in the middle of a batch, and then the proof.

    python -m spark_jobs.demo [--kills N] [--flights N] [--seed N] [--kafka VERSION]

Owns: a broker (the embedded one; with --kafka a real one), the input, the moments of the kills, the progress
on the screen.
Does not know: the connector. It starts the job as a user would (`demo_job`) and judges by Kafka's answers.
Invariants:
- A kill counts only if Spark's own log shows that it fell into a batch.
- On every way out all processes and files of the demo are gone.
- Exit code 0 only when the proof holds.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined,unused-ignore]

from embedded_kafka.child.errors import LocalError
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from spark_jobs import flights
from spark_jobs.demo_job import GIVEN, PIPELINE, WRITTEN, DemoFailed, Job
from spark_jobs.proof import ANSWER_WITHIN_S, Proof, ReadTimeout, judge, observe

PARTITIONS = 4
BATCHES = 18
"""Micro-batches that the input is divided into: enough that a kill in the middle of a batch is in the middle
of the work. Twice as many would add seconds of Spark's fixed cost per batch and show nothing more."""

LONGEST_DELAY_S = 0.15
"""Longest random delay between the first visible record of a batch and the kill. A batch's writing and
deciding take about as long, so different seeds kill before, during and after the decision."""

LOOK_AGAIN_AFTER_S = 0.5
"""Pause between two polls of the progress. A shorter one would take CPU time from the job; a batch takes
about a second."""

NEWS_WITHIN_S = 10.0
"""A line is shown at least this often, so Spark's start does not look like a hang."""

NO_PROGRESS_WITHIN_S = 300.0
"""The demo gives up after this time without progress. Spark needs 10 s to start, on a very busy machine
minutes."""

TRIES_PER_KILL = 10
"""A kill that fell between two batches is repeated. This is rare, because kills are aimed."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kill:
    """One SIGKILL, and the state right after it: `batch` is in Spark's log of begun batches and not in its
    log of finished ones; `hidden` offsets of the output were written and not visible to read_committed
    readers; `committed` records were done; `decided`: whether the batch was among them, so the restart had to
    finish it."""

    batch: int
    hidden: int
    committed: int
    decided: bool


@dataclass(frozen=True)
class Outcome:
    """The results of the demo."""

    proof: Proof
    kills: tuple[Kill, ...]
    batches: int


@dataclass(frozen=True)
class Plan:
    """The parameters of the demo. `flights`: None means all. `kafka`: a version of Apache Kafka; None: the
    embedded broker."""

    kills: int = 1
    flights: int | None = None
    seed: int = 0
    kafka: str | None = None


def run(plan: Plan, say: Say) -> Outcome:
    """Carry the plan out and judge the result. DemoFailed or LocalError where it could not be carried out."""
    clock = _Clock(say)
    with (
        tempfile.TemporaryDirectory(prefix="eos-demo-", ignore_cleanup_errors=True) as directory,
        _broker(plan.kafka, clock) as kafka,
    ):
        table = flights.flights(plan.flights)
        _load(kafka.bootstrap_servers, table)
        clock.say(f"{table.num_rows:,} flights are in the topic {GIVEN}; starting the job with spark-submit")
        job = Job(kafka.bootstrap_servers, Path(directory), -(-table.num_rows // BATCHES))
        try:
            kills = _drive(job, table.num_rows, plan, clock)
        finally:
            job.close()
        clock.say("everything is processed; reading both topics with an independent client")
        observed = observe(kafka.bootstrap_servers, given=GIVEN, written=WRITTEN, group=PIPELINE)
        proof = judge(observed, additions())
        return Outcome(proof, tuple(kills), job.last_finished() + 1)


def _broker(version: str | None, clock: _Clock) -> EmbeddedKafka | LocalKafka:
    if version is None:
        clock.say("starting the embedded Kafka broker")
        return EmbeddedKafka()
    clock.say(f"starting Apache Kafka {version} (the first time its jars are fetched)")
    return LocalKafka(version)


def additions() -> dict[str, dict[Any, dict[str, Any]]]:
    """The members that the output must have beyond the input's, computed without Spark."""
    tables = {"carrier": flights.airlines(), "tailnum": flights.planes()}
    found: dict[str, dict[Any, dict[str, Any]]] = {}
    for name, table in tables.items():
        rows = [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
        found[name] = {row[name]: row for row in rows}
    return found


def _drive(job: Job, total: int, plan: Plan, clock: _Clock) -> list[Kill]:
    """Start the job, kill and restart it as planned, and return when it has processed everything."""
    chance = random.Random(plan.seed)
    # In the middle for one kill, at thirds for two, ...: early enough that there is work left after the last.
    targets = [total * number // (plan.kills + 1) for number in range(1, plan.kills + 1)]
    kills: list[Kill] = []
    job.start()
    for target in targets:
        for _ in range(TRIES_PER_KILL):
            _watch(job, target, total, clock)
            kill = _kill_in_batch(job, chance.uniform(0, LONGEST_DELAY_S))
            if kill is not None:
                kills.append(kill)
                clock.say(_told(len(kills), kill))
            else:
                clock.say("SIGKILL, but no batch had an open transaction at that moment; trying again")
            clock.say("restarting the job")
            job.start()
            if kill is not None:
                break
        else:
            raise DemoFailed(f"{TRIES_PER_KILL} kills in a row found no open transaction")
    _watch(job, total, total, clock)
    return kills


def _told(number: int, kill: Kill) -> str:
    what = "decided, so it has to be finished" if kill.decided else "not decided, so it has to be done again"
    return (
        f"SIGKILL number {number}, to the driver, its JVM and its workers, in the middle of batch {kill.batch}: "
        f"{kill.hidden:,} offsets of it were written and not visible; the batch was {what}"
    )


def _watch(job: Job, target: int, total: int, clock: _Clock) -> None:
    """Show progress until `target` records are done; if these are all records, until the last batch's end
    too."""
    best = job.committed()
    since = shown = time.monotonic()
    while True:
        job.must_run()
        committed, batch = job.committed(), job.last_finished()
        if committed > best or time.monotonic() - shown > NEWS_WITHIN_S:
            shown = time.monotonic()
            clock.say(
                f"{committed:>9,} of {total:,} flights committed ({100 * committed // total:>3} %), batch {batch}"
            )
        if committed > best:
            best, since = committed, time.monotonic()
        finished = target < total or (batch == job.last_begun() and job.look.open_offsets(WRITTEN) == 0)
        if committed >= target and finished:
            return
        if time.monotonic() - since > NO_PROGRESS_WITHIN_S:
            job.fail(f"no progress for {NO_PROGRESS_WITHIN_S:.0f} s")
        time.sleep(LOOK_AGAIN_AFTER_S)


def _kill_in_batch(job: Job, delay_s: float) -> Kill | None:
    """Wait for a batch whose records are being written, kill, and find out where the kill fell; None: between
    two batches."""
    deadline = time.monotonic() + NO_PROGRESS_WITHIN_S
    while job.look.open_offsets(WRITTEN) == 0:
        job.must_run()
        if time.monotonic() > deadline:
            job.fail(f"no batch wrote anything for {NO_PROGRESS_WITHIN_S:.0f} s")
    time.sleep(delay_s)
    job.kill()
    begun = job.last_begun()
    hidden = job.look.open_offsets(WRITTEN)
    if begun == job.last_finished() or hidden == 0:
        return None
    committed = job.committed()
    return Kill(begun, hidden, committed, decided=committed == job.end_of(begun))


def _load(bootstrap_servers: str, table: pa.Table) -> None:
    """Make both topics and write the flights to the first, partitioned by plane as Java would."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in (GIVEN, WRITTEN)]
    for answer in admin.create_topics(topics, operation_timeout=ANSWER_WITHIN_S).values():
        answer.result(ANSWER_WITHIN_S)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            # Otherwise a lost answer could duplicate a flight in the input, and the job would rightly write
            # it twice.
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            # Errors only: a broker that has just started is not ready at once, and a warning about it would
            # not help.
            "log_level": 3,
        }
    )
    failed: list[str] = []
    for key, value in zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True):
        producer.produce(GIVEN, value, key, on_delivery=lambda error, _: failed.append(str(error)) if error else None)
    unsent = producer.flush(ANSWER_WITHIN_S)
    if unsent or failed:
        raise DemoFailed(f"the input could not be written: {unsent} unsent, {failed[:1]}")


class _Clock:
    """Lines with the time since the start."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {text}")


def report(outcome: Outcome) -> str:
    """The result as text, ending with the verdict."""
    proof = outcome.proof
    rows = [
        ("records in", f"{proof.records_in:,}"),
        ("records out (read_committed)", f"{proof.records_out:,}"),
        ("duplicate", f"{proof.duplicate:,}"),
        ("missing", f"{proof.missing:,}"),
        ("of unknown origin", f"{proof.strange:,}"),
        ("with wrong content", f"{proof.wrong:,}"),
        ("aborted, invisible to read_committed", f"{proof.aborted_invisible:,}"),
        ("still in an open transaction", f"{proof.still_open:,}"),
        ("micro-batches", f"{outcome.batches:,}"),
        ("SIGKILLs in the middle of a batch", f"{len(outcome.kills):,}"),
    ]
    lines = [f"{name:<38}{value:>12}" for name, value in rows]
    lines.append(f"{'group ' + PIPELINE + ', topic ' + GIVEN:<38}{'committed':>12}{'end':>12}")
    for partition in sorted({*proof.group_offsets, *proof.end_offsets}):
        found, end = proof.group_offsets.get(partition, "none"), proof.end_offsets.get(partition, "none")
        lines.append(f"{'  partition ' + str(partition):<38}{found:>12}{end:>12}")
    if proof.exactly_once:
        lines.append("PROVEN: every flight is in the output exactly once.")
    else:
        lines.extend(["NOT PROVEN:", *(f"  {problem}" for problem in proof.problems)])
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 0 if the proof holds, 1 if it does not or the demo failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1, help="how often the driver is killed (default: 1)")
    parser.add_argument("--flights", type=int, help="only the first N flights (default: all 336,776)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments of the kills (default: 0)")
    parser.add_argument(
        "--kafka", help=f"a version of Apache Kafka, e.g. {NEWEST_KAFKA} (default: the embedded broker)"
    )
    options = parser.parse_args(arguments)
    if options.kills < 0 or (options.flights is not None and options.flights < BATCHES):
        parser.error(f"--kills cannot be negative, --flights must be at least {BATCHES}")
    # Like Ctrl-C, so every `finally` runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        outcome = run(Plan(options.kills, options.flights, options.seed, options.kafka), say)
    except KeyboardInterrupt:
        say("stopped; broker and job have ended")
        return 130
    except (DemoFailed, LocalError, KafkaException, ReadTimeout, flights.DataSetMissing) as error:
        print(f"demo failed: {error}", file=sys.stderr)
        return 1
    say("")
    say(report(outcome))
    say(f"{time.monotonic() - began:.0f} s in all")
    return 0 if outcome.proof.exactly_once and len(outcome.kills) == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
