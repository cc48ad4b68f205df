"""A decided batch whose replay has the same rows in other slots: after a start with other cores files are split
otherwise.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import pytest

from kafka_core.errors import DecisionBroken, NondeterministicPlan
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import ClientSettings, Decision
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all
from tests.pyspark_kafka_eos.commit.phases import Played, begin, finish, play, tasks
from tests.pyspark_kafka_eos.commit.test_repair import decided_but_lost
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

ALL = (0, 1, 2)


def split(settings: dict[str, Any], slots: int) -> dict[str, Any]:
    """The same rows in so many slots."""
    values = list(itertools.chain.from_iterable(settings["rows"]))
    size = -(-len(values) // slots)
    return {**settings, "rows": [values[at : at + size] for at in range(0, len(values), size)]}


def open_ids(broker: AnyKafka, settings: dict[str, Any]) -> list[str]:
    """The pipeline's transactions that are open."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        names = admin.list_transactions(cluster, ["Ongoing"])
        return [name for name in names if name.startswith(settings["options"]["pipeline"] + ":")]
    finally:
        cluster.close()


def newest(broker: AnyKafka, settings: dict[str, Any]) -> Decision:
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        found = Ledger(cluster, "exactly-once-ledger", settings["options"]["pipeline"]).newest(settle=True)
        assert found is not None
        return found
    finally:
        cluster.close()


def run_by_phases(settings: dict[str, Any]) -> Played:
    """A run whose beginning, tasks and end each have a process of their own."""
    begun = play(begin, settings)
    assert begun.raised is None, begun.raised
    plan, handover = begun.value
    written = play(tasks, settings, plan)
    assert written.raised is None, written.raised
    return play(finish, settings, handover, written.value)


@pytest.mark.parametrize("slots", [1, 5])
def test_where_nothing_was_committed_the_same_rows_in_other_slots_finish_the_batch(
    broker: AnyKafka, slots: int
) -> None:
    settings = decided_but_lost(broker, ALL)

    again = run_child(split(settings, slots))

    assert again.report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 1}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    assert [seal.slot for seal in newest(broker, settings).seals] == list(range(slots))
    assert open_ids(broker, settings) == []
    # A third run finds it finished.
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_by_phases_too_the_same_rows_in_other_slots_finish_the_batch(broker: AnyKafka) -> None:
    settings = decided_but_lost(broker, ALL)

    done = run_by_phases(split(settings, 5))

    assert done.raised is None, done.raised
    assert (done.value.resumed, done.value.repaired, done.value.slots) == (True, 1, 5)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert open_ids(broker, settings) == []


@pytest.mark.parametrize("point", ["after-rewrite", "decision-written", "before-end"])
def test_killed_while_all_slots_are_replaced_the_next_run_finishes_in_yet_other_slots(
    broker: AnyKafka, point: str
) -> None:
    settings = decided_but_lost(broker, ALL)

    killed = run_child(split(settings, 5), point)
    assert killed.exitcode == -signal.SIGKILL, f"the crash point did not fire: {killed.report}"
    again = run_child(split(settings, 2))

    assert again.report.get("resumed") is True, again.report
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert open_ids(broker, settings) == []


@pytest.mark.parametrize("by_phases", [False, True], ids=["one process", "by phases"])
def test_where_a_slot_is_committed_another_split_stops_by_that_name_and_the_old_one_finishes(
    broker: AnyKafka, by_phases: bool
) -> None:
    settings = decided_but_lost(broker, (1,))
    other = split(settings, 5)

    if by_phases:
        refused = run_by_phases(other).raised
        assert isinstance(refused, DecisionBroken)
        said = f"{type(refused).__name__}: {refused}"
    else:
        said = run_child(other).report["error"]

    assert said.startswith("DecisionBroken")
    assert "the same rows, split differently" in said
    assert "the decision had 3 slots, the replay has 5" in said
    assert "local[3]" in said
    committed = read_all(broker, settings["options"]["topic"])
    assert committed.total() == 800
    assert open_ids(broker, settings) == [], "what the replay wrote in vain holds readers up"
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def other_row(settings: dict[str, Any]) -> dict[str, Any]:
    changed = split(settings, 5)
    return {**changed, "rows": [*changed["rows"][:4], [*changed["rows"][4][:-1], "other"]]}


def other_number(settings: dict[str, Any]) -> dict[str, Any]:
    changed = split(settings, 5)
    return {**changed, "rows": changed["rows"][:4]}


@pytest.mark.parametrize("change", [other_row, other_number])
def test_other_rows_are_refused_however_they_are_split_and_leave_nothing_open(
    broker: AnyKafka, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    settings = decided_but_lost(broker, ALL)

    refused = run_child(change(settings))

    assert refused.report["error"].startswith(NondeterministicPlan.__name__)
    assert read_all(broker, settings["options"]["topic"]).total() == 0
    assert open_ids(broker, settings) == []
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
