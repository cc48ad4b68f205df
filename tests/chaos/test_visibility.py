"""No reader ever sees a part of a micro-batch with scope=batch, while processes are killed; with scope=task it can.

The job is the one of the other chaos tests: everything below Spark is the product, Spark's part is played by `job`.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.chaos.job import Job, Run, Strike, start
from tests.chaos.rounds import _children
from tests.chaos.visibility import Look, PartSeen, Record, Watcher, different, parts_seen
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.ends_arrived import ENDS_ARRIVED
from tests.support.brokers import AnyKafka

SLOTS, ROWS, MOST_RUNS = 2, 60, 60


def job_of(broker: AnyKafka, batches: int, *, scope: str, strike: Strike | None = None, batch_bytes: int = 2048) -> Job:
    topic, source = topics_of(broker)(), topics_of(broker)()
    return Job(
        options={
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"pipe-{topic}",
            "topic": topic,
            "transaction.scope": scope,
            "kafka.batch.size": str(batch_bytes),
        },
        checkpoint=Path(tempfile.mkdtemp(prefix=f"visibility-{os.getpid()}-")),
        batches=tuple(
            tuple(tuple(f"{batch}.{slot}.{row} " + "x" * 100 for row in range(ROWS)) for slot in range(SLOTS))
            for batch in range(batches)
        ),
        offsets=tuple(((source, 0, batch + 1),) for batch in range(batches)),
        strike=strike,
        pause_between_rows_s=0.002,
    )


def watcher_of(broker: AnyKafka, job: Job) -> Watcher:
    return Watcher(broker.bootstrap_servers, job.options["pipeline"], job.options["topic"])


def kill_a_task(run: Run, within_s: float = 10.0) -> bool:
    """SIGKILL to a process that writes; False where the run ended before one was met."""
    deadline = time.monotonic() + within_s
    while run.process.is_alive() and time.monotonic() < deadline:
        assert run.process.pid is not None
        for task in _children(run.process.pid):
            try:
                os.kill(task, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        time.sleep(0.001)
    return False


def run_with_kills(job: Job, drivers: int, tasks: int, seed: int) -> tuple[int, int, int]:
    """Run the job to its end; the kills that hit, of drivers and of tasks, and the tries that were done again."""
    draw = random.Random(seed)
    strikes = ["driver"] * drivers + ["task"] * tasks
    draw.shuffle(strikes)
    hit = {"driver": 0, "task": 0}
    redone = 0
    last = job.checkpoint / "commits" / str(len(job.batches) - 1)
    per_strike = max(1, len(job.batches) // (len(strikes) + 1))
    for _ in range(MOST_RUNS):
        run = start(job)
        while strikes and run.process.is_alive():
            goal = min(run.commits + draw.randint(0, 2 * per_strike), len(job.batches) - 1)
            while run.process.is_alive() and run.commits < goal:
                time.sleep(0.002)
            time.sleep(draw.uniform(0.0, 0.1))
            if strikes[-1] == "task":
                if kill_a_task(run):
                    hit[strikes.pop()] += 1
            elif run.process.is_alive():
                run.kill()
                run.process.join()
                hit[strikes.pop()] += 1
        ended = run.finish()
        redone += sum(report["redone"] for report in ended.reports)
        if last.exists():
            return hit["driver"], hit["task"], redone
    raise AssertionError(f"not done after {MOST_RUNS} runs: {ended.error}")


# ---- the checker


def test_the_checker_rejects_a_look_at_one_of_two_partitions() -> None:
    records = [Record(0, 0, 7), Record(1, 0, 7)]

    assert parts_seen([Look({0: 1, 1: 0}, {0: 1, 1: 0})], records) == [PartSeen(7, 1, 2)]


def test_the_checker_rejects_a_look_at_the_first_records_of_a_partition() -> None:
    records = [Record(0, 0, 7), Record(0, 1, 7), Record(0, 3, 8)]

    assert parts_seen([Look({0: 1}, {0: 1}), Look({0: 4}, {0: 4})], records) == [PartSeen(7, 1, 2)]


def test_the_checker_rejects_a_part_that_the_second_step_began_to_complete() -> None:
    records = [Record(0, 0, 7), Record(1, 0, 7), Record(2, 0, 7)]

    assert parts_seen([Look({0: 1, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 0})], records) == [PartSeen(7, 2, 3)]


def test_the_checker_accepts_what_is_whole_by_the_second_step_or_not_begun_by_the_first() -> None:
    records = [Record(0, 0, 7), Record(1, 0, 7), Record(0, 2, 8), Record(1, 2, 8)]

    assert parts_seen([Look({0: 1, 1: 0}, {0: 1, 1: 1}), Look({0: 1, 1: 1}, {0: 3, 1: 1})], records) == []


def test_looks_that_saw_nothing_new_are_left_out() -> None:
    a, b = Look({0: 0}, {0: 0}), Look({0: 0}, {0: 1})

    assert different([a, a, b, b, a]) == [a, b, a]


# ---- the two scopes


@pytest.mark.kafka
def test_with_scope_task_a_reader_can_see_a_part_of_a_batch(kafka: AnyKafka) -> None:
    # Batches so large that each slot fills one, in a partition of its own: what one has ended does not wait for the
    # other.
    job = job_of(kafka, 1, scope="task", strike=Strike(ENDS_ARRIVED, 1, None, "wait"), batch_bytes=65536)
    with watcher_of(kafka, job) as watcher:
        run = start(job)
        assert run.at_the_point()
        # One of two transactions has ended, and the driver waits: several looks fall into this time.
        before = len(watcher.looks)
        while len(watcher.looks) < before + 3 and not watcher.failures:
            time.sleep(0.01)
        run.release()
        assert run.finish().exitcode == 0

    records = watcher.records()
    assert watcher.failures == []
    assert len(records) == SLOTS * ROWS
    found = parts_seen(different(watcher.looks), records)
    assert found
    assert {part.seen for part in found} == {ROWS}


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["kafka", "kafka_zk"])
def test_with_scope_batch_no_look_sees_a_part_of_20_batches_while_processes_are_killed(
    request: pytest.FixtureRequest, name: str
) -> None:
    _never_sees_a_part(request.getfixturevalue(name), batches=20, drivers=2, tasks=2, seed=11)


@pytest.mark.kafka
@pytest.mark.chaos
@pytest.mark.parametrize("name", ["kafka", "kafka_zk"])
def test_with_scope_batch_no_look_sees_a_part_of_220_batches_while_processes_are_killed(
    request: pytest.FixtureRequest, name: str
) -> None:
    _never_sees_a_part(request.getfixturevalue(name), batches=220, drivers=15, tasks=15, seed=12)


def _never_sees_a_part(broker: AnyKafka, *, batches: int, drivers: int, tasks: int, seed: int) -> None:
    # Besides what is killed at any moment, in each run one task after its turn began: such a try has to be done again.
    job = job_of(broker, batches, scope="batch", strike=Strike("mid-produce", slot=0))
    with watcher_of(broker, job) as watcher:
        killed_drivers, killed_tasks, redone = run_with_kills(job, drivers, tasks, seed)

    records = watcher.records()
    assert watcher.failures == []
    looks = different(watcher.looks)
    # The faults fired, and the looks fell between the batches, not only before and after all of them.
    assert (killed_drivers, killed_tasks) == (drivers, tasks)
    assert redone >= 1
    assert len(looks) > batches / 2
    assert len(records) == batches * SLOTS * ROWS
    assert len({(record.partition, record.offset) for record in records}) == len(records)
    assert parts_seen(looks, records) == []
