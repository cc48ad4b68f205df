"""The ladder of transaction versions, upgrades in between, epochs that roll over, ids that expire, time that runs
out.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from embedded_kafka.real import LocalKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.chaos import watch
from tests.chaos.checker import check
from tests.chaos.history import EntryKind, Isolation
from tests.chaos.job import Ended, Job, Strike, start
from tests.chaos.log_dump import dump
from tests.chaos.matrix import LOOKS_OFTEN, TWO_PHASE, job_for
from tests.conftest import topics_of

pytestmark = [pytest.mark.kafka, pytest.mark.real]

_COORDINATOR_PARTITIONS = 50
"""Kafka's default of transaction.state.log.num.partitions."""

_LAST_EPOCH = 32_766
"""The last epoch that is handed out; 32767 is kept for the fence (Kafka's TransactionMetadata)."""


def run(job: Job, strike: Strike | None = None) -> Ended:
    return start(replace(job, strike=strike)).finish()


def found_wrong(broker: LocalKafka, job: Job) -> list[str]:
    return [str(anomaly) for anomaly in check(watch.Witnesses.of(broker, [job]).history(job))]


def test_what_was_decided_before_an_upgrade_is_finished_after_it_in_its_own_class() -> None:
    """TV1, then TV2, then 2PC, then TV2 again: at each step a batch is decided and its driver killed before the
    ends.
    """
    with LocalKafka(config=LOOKS_OFTEN, transaction_version=1, fast_start=True) as broker:
        job = job_for(broker, topics_of(broker)(), timeout_ms=60_000, batches=5)
        # A batch that is resumed has its slots ended one by one, as they are proven; after those comes the next batch.
        next_batch = len(job.batches[0]) + 1
        assert run(job, Strike("before-end")).exitcode == -9

        upgrade = ("--feature", "transaction.version=2")
        command = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap_servers)
        answer = broker.tool(*command, "upgrade", *upgrade)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        after_upgrade = run(job, Strike("before-end", next_batch))
        broker.restart(config=TWO_PHASE)
        with_two_phase = run(job, Strike("before-end", next_batch))
        broker.restart(config={})
        last = run(job)

        assert [after_upgrade.exitcode, with_two_phase.exitcode] == [-9, -9]
        assert [each["resumed"] for each in after_upgrade.reports] == [True]
        assert [each["resumed"] for each in with_two_phase.reports] == [True]
        assert [each["resumed"] for each in last.reports] == [True, False, False], last.error
        assert not any(each["repaired"] for each in last.reports)
        assert not found_wrong(broker, job)


@pytest.mark.chaos
def test_on_the_highest_rung_what_a_dead_run_left_open_stays_open_until_the_next_run_aborts_it() -> None:
    with LocalKafka(config={**LOOKS_OFTEN, **TWO_PHASE}, fast_start=True) as broker:
        job = job_for(broker, topics_of(broker)(), timeout_ms=3_000)
        assert run(job, Strike("before-check")).exitcode == -9
        time.sleep(5)

        assert len(watch.open_transactions(broker)) == len(job.batches[0])
        done = run(job)

        assert [each["resumed"] for each in done.reports] == [False, False], done.error
        assert all(each["left_ms"] == float("inf") for each in done.reports)
        assert not found_wrong(broker, job)


def seed_epochs(broker: LocalKafka, ids: Sequence[str], epoch: int) -> list[int]:
    """Have the coordinator know these ids at an epoch, by its own log and a restart; their producer ids."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        described = Transactions(cluster).describe(ids)
    finally:
        cluster.close()
    producer = Producer(
        # Kafka lets no other client write to an internal topic.
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "__admin_client", "log_level": 0}
    )
    for name in ids:
        text = name.encode()
        hashed = 0
        for byte in text:
            hashed = (31 * hashed + byte) & 0xFFFFFFFF
        positive = hashed & 0x7FFFFFFF
        now = int(time.time() * 1000)
        producer.produce(
            "__transaction_state",
            key=struct.pack(">hh", 0, len(text)) + text,
            # version, producer id, epoch, timeout, state Empty, no partitions, last update, no start
            value=struct.pack(">hqhibiqq", 0, described[name].identity.producer_id, epoch, 60_000, 0, -1, now, -1),
            partition=_java_abs(hashed, positive) % _COORDINATOR_PARTITIONS,
        )
    assert producer.flush(30) == 0
    broker.restart()
    return [described[name].identity.producer_id for name in ids]


def _java_abs(hashed: int, positive: int) -> int:
    signed = hashed - (1 << 32) if hashed & 0x80000000 else hashed
    return positive if signed == -(1 << 31) else abs(signed)


# Version 2 raises the epoch with the end, so the last one that a transaction may have is one less.
@pytest.mark.parametrize(
    ("version", "last"),
    [
        pytest.param(None, _LAST_EPOCH - 1, id="TV2"),
        pytest.param(1, _LAST_EPOCH, id="TV1", marks=pytest.mark.chaos),
    ],
)
def test_epochs_at_their_end_roll_over_into_a_new_producer_id(version: int | None, last: int) -> None:
    with LocalKafka(config=LOOKS_OFTEN, transaction_version=version, fast_start=True) as broker:
        job = job_for(broker, topics_of(broker)(), timeout_ms=60_000, batches=5)
        # Ids that a coordinator knows without a decision in the ledger are refused, so they have a first batch.
        first = run(replace(job, batches=job.batches[:1], offsets=job.offsets[:1]))
        assert len(first.reports) == 1, first.error
        name = job.options["pipeline"]
        ids = [*(f"{name}:{slot}" for slot in range(len(job.batches[0]))), f"{name}:driver"]
        seeded = seed_epochs(broker, ids, _LAST_EPOCH - 2)

        done = run(job)

        assert [each["resumed"] for each in done.reports] == [False] * 4, done.error
        data = [each for each in dump(broker, [job.options["topic"]]) if each.kind is EntryKind.DATA]
        old = {each.epoch for each in data if each.producer_id in seeded}
        new = {each.epoch for each in data if each.producer_id not in seeded}
        assert max(old) == last
        assert new
        assert max(new) < 10, "rolled over into a new producer id, not round to 0 under the old one"
        assert not found_wrong(broker, job)


@pytest.mark.chaos
def test_past_the_ids_expiry_the_log_is_the_witness_and_the_slots_are_repaired() -> None:
    config = {
        **LOOKS_OFTEN,
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with LocalKafka(config=config, fast_start=True) as broker:
        job = job_for(broker, topics_of(broker)(), timeout_ms=3_000)
        assert run(job, Strike("before-end")).exitcode == -9
        cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
        try:
            slot = f"{job.options['pipeline']}:0"
            deadline = time.monotonic() + 40
            while Transactions(cluster).describe([slot])[slot].state != "NotFound":
                assert time.monotonic() < deadline, "the id did not expire"
                time.sleep(0.2)
        finally:
            cluster.close()

        done = run(job)

        assert [each["repaired"] for each in done.reports] == [1, 0], done.error
        assert not found_wrong(broker, job)


def test_a_batch_that_is_too_late_twice_stops_the_query_before_anything_is_decided(
    kafka: LocalKafka,
) -> None:
    job = job_for(kafka, topics_of(kafka)(), timeout_ms=12_000, batches=1)
    # Four pauses of 0.4 s leave less than the margin of a timeout that long; a longer one leaves enough.
    slow = replace(
        job,
        pause_between_rows_s=0.4,
        options={**job.options, "transaction.margin.ms": "11000"},
    )

    late = run(slow)

    assert late.error.startswith("TransactionTooOld"), late
    assert "no record of the batch is visible" in late.error
    assert watch.look(kafka, job).rows == ()
    assert len(watch.look(kafka, job, Isolation.UNCOMMITTED).rows) == 2 * sum(map(len, job.batches[0]))
    in_time = run(replace(slow, options={**slow.options, "kafka.transaction.timeout.ms": "60000"}))
    assert [each["redone"] for each in in_time.reports] == [0], in_time.error
    assert not found_wrong(kafka, job)
