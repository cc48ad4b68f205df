"""The coordinator on real logs: what a crash leaves in the files is what it comes back to, and Kafka's own tool reads
it.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from embedded_kafka.cluster.brokers import Brokers
from embedded_kafka.cluster.outlook import Outlook
from embedded_kafka.real import NEWEST_KAFKA
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import fetch, kafka_artifacts
from embedded_kafka.topics.internal_logs import InternalLogs
from embedded_kafka.topics.internal_topics import TRANSACTIONS_TOPIC
from embedded_kafka.topics.leaders import Leaders
from embedded_kafka.topics.topics import Topics
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.machine.events import TransactionState
from tests.embedded_kafka.transactions.transactions_world import A, B, World, settle

ME = "me"


def on_disk(directory: Path, world: World) -> tuple[TransactionCoordinator, Topics]:
    topics = Topics(directory, world.config, world.clock)
    topics.load()
    brokers = Brokers([0])
    logs = InternalLogs(topics, Outlook(topics, Leaders(directory, topics), brokers, brokers[0]))
    coordinator = TransactionCoordinator(config=world.config, clock=world.clock, ids=world, logs=logs, markers=world)
    coordinator.load()
    return coordinator, topics


async def wrote(directory: Path, world: World) -> None:
    """A committed transaction, an open one with the last epoch known, an expired id; the files are left as a crash
    would.
    """
    coordinator, _ = on_disk(directory, world)
    identity = await coordinator.init_producer_id("gone", 1_000)
    world.clock.advance(world.config.transactional_id_expiration_ms)
    coordinator.tick()
    identity = await coordinator.init_producer_id(ME, 60_000)
    await coordinator.add_partitions(ME, identity, [A, B], version=2)
    identity = await coordinator.end(ME, identity, commit=True, version=2)
    await settle()
    await coordinator.add_partitions(ME, identity, [A], version=2)


def test_a_coordinator_comes_back_to_what_its_files_say(tmp_path: Path) -> None:
    world = World()

    async def main() -> None:
        await wrote(tmp_path, world)
        coordinator, topics = on_disk(tmp_path, world)
        ((name, entry),) = coordinator.listing()
        assert (name, entry.state, entry.partitions) == (ME, TransactionState.ONGOING, {A})
        assert (entry.epoch, entry.last_epoch, entry.version) == (1, 0, 2)
        await coordinator.end(ME, entry.identity, commit=False, version=2)
        await settle()
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_ABORT
        topics.close()

    asyncio.run(main())
    assert [(each.where, each.commit) for each in world.markers()] == [(A, True), (B, True), (A, False)]


@pytest.mark.kafka
@pytest.mark.real
def test_kafkas_own_tool_reads_the_transaction_log(tmp_path: Path) -> None:
    asyncio.run(wrote(tmp_path, World()))
    java = require_java()
    jars = fetch(f"kafka-{NEWEST_KAFKA}", kafka_artifacts(NEWEST_KAFKA), java)
    files = sorted(str(path) for path in tmp_path.glob(f"{TRANSACTIONS_TOPIC}-*/*.log"))
    dumped = subprocess.run(
        [
            str(java.executable), "-Xmx256m", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments",
            "--transaction-log-decoder", "--files", ",".join(files),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )  # fmt: skip
    said = dumped.stdout
    assert said.count("isvalid: true") == 7 and "isvalid: false" not in said
    # Empty (twice), a tombstone, Ongoing, PrepareCommit, CompleteCommit, Ongoing.
    for status, times in (("Empty", 2), ("Ongoing", 2), ("PrepareCommit", 1), ("CompleteCommit", 1)):
        assert said.count(f'"transactionStatus":"{status}"') == times, said
    assert said.count('"transactionalId":"me"') == 5 and said.count('"transactionalId":"gone"') == 2
    assert "<DELETE>" in said
