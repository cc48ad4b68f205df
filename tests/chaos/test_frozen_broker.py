"""One of three brokers frozen for longer than a request may take: the run goes on as soon as the others have elected.

A frozen broker answers nothing and keeps its connections: SIGSTOP, a paused machine, a disk that hangs.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedded_kafka.real import LocalKafka
from tests.chaos import watch
from tests.chaos.checker import check
from tests.chaos.job import Run, start
from tests.chaos.matrix import LOOKS_OFTEN, job_for
from tests.conftest import topics_of

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.chaos]

BROKERS = 3

_FROZEN_S = 40.0
"""Longer than kafka.request.timeout.ms, 30 s: what waits for the frozen broker alone ends in between."""

_STALLED_S = 25.0
"""A silent broker is missed after 4 s here, and its leaders are elected; each question that hangs at it looks elsewhere
once a second. Half would fail on a busy machine; 30 s is what a request takes that is waited out.
"""


@contextmanager
def frozen(cluster: LocalKafka, broker: int) -> Iterator[None]:
    """The broker's process stands still for at least `_FROZEN_S`."""
    os.kill(cluster.pid(broker), signal.SIGSTOP)
    thaws = time.monotonic() + _FROZEN_S
    try:
        yield
        time.sleep(max(0.0, thaws - time.monotonic()))
    finally:
        os.kill(cluster.pid(broker), signal.SIGCONT)


def go_on(run: Run, batches: int, within_s: float) -> float:
    """Wait until the run has done so many more; the longest time between two of them."""
    longest, last_s, seen = 0.0, time.monotonic(), run.commits
    wanted = seen + batches
    while seen < wanted:
        assert run.process.is_alive(), run.finish()
        now_s = time.monotonic()
        if run.commits > seen:
            seen, last_s = run.commits, now_s
        longest = max(longest, now_s - last_s)
        assert longest < within_s, f"stalled at batch {seen}"
        time.sleep(0.02)
    return longest


def test_one_broker_frozen_for_longer_than_a_request_may_take_ends_no_query_and_loses_nothing() -> None:
    """Each of the three is the coordinator of some ids and the leader of some partitions; one leads the ledger's."""
    with LocalKafka(brokers=BROKERS, config=LOOKS_OFTEN, fast_start=True) as cluster:
        # More batches than it will get to: it is stopped when the last broker is back.
        job = job_for(cluster, topics_of(cluster)(), timeout_ms=120_000, batches=10_000)
        run, stalled_s = start(job), dict[int, float]()
        for broker in range(BROKERS):
            go_on(run, 3, 60.0)
            with frozen(cluster, broker):
                stalled_s[broker] = go_on(run, 6, _STALLED_S)
            go_on(run, 3, 60.0)
        ended = run.stop_after_this_batch()

        # Printed where it fails, and by pytest -rA: how long the longest stall was.
        logging.getLogger(__name__).warning("longest stalls in seconds, by broker: %s", stalled_s)
        assert (ended.exitcode, ended.error) == (0, "")
        # Every replica is complete now, so the first broker's files serve as well as any.
        assert not check(watch.Witnesses.of(cluster, [job]).history(job))
