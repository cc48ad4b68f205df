"""Three brokers, one killed at a time, leaders and coordinators moved, while one run of a job goes on by itself."""

from __future__ import annotations

import time

import pytest

from embedded_kafka.real import LocalKafka
from tests.chaos import watch
from tests.chaos.checker import check
from tests.chaos.job import Run, start
from tests.chaos.matrix import LOOKS_OFTEN, job_for
from tests.conftest import topics_of

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.chaos]

BROKERS = 3

_STALLED_S = 60.0
"""A killed broker is missed after 4 s here, elections and our own retries take a few more; half would fail on a busy
machine.
"""


def move_leaders_back(cluster: LocalKafka) -> None:
    """Give every partition its preferred leader, those of the transaction log too: leaders and coordinators move."""
    answer = cluster.tool(
        "org.apache.kafka.tools.LeaderElectionCommand",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def go_on(run: Run, batches: int) -> None:
    """Wait until the run has done so many more."""
    wanted = run.commits + batches
    deadline = time.monotonic() + _STALLED_S
    while run.commits < wanted:
        assert run.process.is_alive(), run.finish()
        assert time.monotonic() < deadline, f"stalled at batch {run.commits}"
        time.sleep(0.02)


def test_one_broker_killed_at_a_time_and_leaders_moved_the_run_goes_on_and_loses_nothing() -> None:
    with LocalKafka(brokers=BROKERS, config=LOOKS_OFTEN, fast_start=True) as cluster:
        # More batches than it will get to: it is stopped when the last broker is back.
        job = job_for(cluster, topics_of(cluster)(), timeout_ms=60_000, batches=1_000)
        run = start(job)
        for broker in range(BROKERS):
            go_on(run, 3)
            cluster.kill(broker)
            go_on(run, 3)
            cluster.restart(broker)
            go_on(run, 3)
            move_leaders_back(cluster)
            go_on(run, 3)
        ended = run.stop_after_this_batch()

        assert (ended.exitcode, ended.error) == (0, "")
        assert len(ended.reports) >= 12 * BROKERS
        # Every replica is complete now, so the first broker's files serve as well as any.
        assert not check(watch.Witnesses.of(cluster, [job]).history(job))
