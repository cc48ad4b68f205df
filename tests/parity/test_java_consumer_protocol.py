"""Java's consumers of the consumer protocol (KIP-848), and what Java's share consumer says where there are no share
groups.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.child.processes import Child
from embedded_kafka.real import NEWEST_ZOOKEEPER_KAFKA
from tests.parity.brokers import EMBEDDED, Broker
from tests.parity.java import java_process, java_tool, rows
from tests.parity.judge import new_name, new_topic, wait_until, write

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
PARTITIONS = 6
RECORDS = 40


class Verifiable:
    """A VerifiableConsumer, which commits what it reads and says so."""

    def __init__(self, broker: Broker, group: str, topic: str, log: Path, protocol: str = "consumer") -> None:
        self._log = log
        self.child: Child = java_process(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group-id", group),
            *("--group-protocol", protocol, "--reset-policy", "earliest"),
            log_path=log,
        )

    def said(self, name: str) -> list[dict[str, Any]]:
        """Its lines of one kind."""
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if line["name"] == name]

    def held(self) -> set[int]:
        """Its partitions, as it was told of them so far."""
        held: set[int] = set()
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            if '"partitions_assigned"' in line:
                held |= {each["partition"] for each in json.loads(line)["partitions"]}
            if '"partitions_revoked"' in line:
                held -= {each["partition"] for each in json.loads(line)["partitions"]}
        return held

    def read(self) -> Counter[tuple[int, int]]:
        """(partition, offset) of every record that it read."""
        return Counter(
            (each["partition"], offset)
            for line in self.said("records_consumed")
            for each in line["partitions"]
            for offset in range(each["minOffset"], each["maxOffset"] + 1)
        )


def a_group_at(broker: Broker) -> tuple[str, str]:
    """A topic and a group's name; skips where the broker does not offer the protocol."""
    if broker.name.endswith(NEWEST_ZOOKEEPER_KAFKA):
        pytest.skip(f"{NEWEST_ZOOKEEPER_KAFKA} does not offer KIP-848")
    return new_topic(broker, PARTITIONS), new_name("group")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_two_java_consumers_share_a_topic_and_one_takes_over_what_the_other_leaves(
    broker: Broker, tmp_path: Path, stack: ExitStack
) -> None:
    topic, group = a_group_at(broker)

    def fill() -> None:
        for partition in range(PARTITIONS):
            write(broker, topic, [b"value"] * RECORDS, partition)

    fill()
    one, two = (Verifiable(broker, group, topic, tmp_path / f"{name}.log") for name in ("one", "two"))
    stack.callback(one.child.kill_tree)
    stack.callback(two.child.kill_tree)
    wait_until(lambda: len(one.held()) == len(two.held()) == PARTITIONS // 2, "both have half")
    assert one.held().isdisjoint(two.held())
    command = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group, "--members")
    described = rows(java_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *command))
    assert [row["#PARTITIONS"] for row in described] == [str(PARTITIONS // 2)] * 2

    two.child.ask_to_stop()
    wait_until(lambda: len(one.held()) == PARTITIONS, "the one that stays has all")
    fill()

    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(2 * RECORDS)}
    wait_until(lambda: set(one.read() + two.read()) == everything, "everything was read")
    # What the first had read and not committed when its partition moved may come twice.
    assert all(line["success"] for line in one.said("offsets_committed"))


def test_a_group_of_java_consumers_changes_its_protocol_and_back_while_it_reads(
    broker: Broker, tmp_path: Path, stack: ExitStack
) -> None:
    """One consumer after the other is replaced, as in a rolling restart: classic, both, consumer, both, classic."""
    topic, group = a_group_at(broker)
    read: list[Verifiable] = []

    def replace(old: Verifiable | None, other: Verifiable | None, protocol: str) -> Verifiable:
        """The old one stops, a new one takes its place; both of the group read."""
        if old is not None:
            old.child.ask_to_stop()
            wait_until(lambda: other is None or len(other.held()) == PARTITIONS, "the one that stays has all")
        new = Verifiable(broker, group, topic, tmp_path / f"{len(read)}.log", protocol)
        stack.callback(new.child.kill_tree)
        read.append(new)
        half = PARTITIONS if other is None else PARTITIONS // 2
        wait_until(lambda: len(new.held()) == half, "the new one has its share")
        wait_until(lambda: other is None or len(other.held()) == half, "the other one, too")
        for partition in range(PARTITIONS):
            write(broker, topic, [b"value"] * RECORDS, partition)
        written = RECORDS * len(read)
        wait_until(lambda: {offset for each in read for _, offset in each.read()} >= set(range(written)), "it is read")
        return new

    one = replace(None, None, "classic")
    two = replace(None, one, "classic")
    one = replace(one, two, "consumer")
    two = replace(two, one, "consumer")
    one = replace(one, two, "classic")
    replace(two, one, "classic")

    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS * len(read))}
    wait_until(lambda: {each for one in read for each in one.read()} == everything, "everything was read")
    command = ("--bootstrap-server", broker.bootstrap_servers, "--list", "--type")
    listed = java_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *command)
    assert next(line.split()[1] for line in listed.splitlines() if line.startswith(group)) == "Classic"


def test_a_share_consumer_is_told_at_once_that_there_are_no_share_groups(broker: Broker, tmp_path: Path) -> None:
    if broker.name != EMBEDDED:
        pytest.skip("4.4.0 has share groups, and 3.9.1 is not ours to judge")
    log = tmp_path / "share.log"
    child = java_process(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", new_topic(broker)),
        log_path=log,
    )
    try:
        # The tool itself ends half a minute later: it waits for the answers of a group that it never joined.
        wait_until(
            lambda: "does not support SHARE_GROUP_HEARTBEAT" in log.read_text(encoding="utf-8"), "it says so", 30
        )
    finally:
        child.kill_tree()
