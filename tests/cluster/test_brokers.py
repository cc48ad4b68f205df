"""The cluster that is played with: each of its ways can be cut alone, and it is whole again afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from embedded_kafka.real import wire
from tests.cluster.brokers import BROKERS, Cluster, started

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.long]

WITHIN_S = 60.0
"""A broker is missed after 9 s."""

OLD, NEW = "3.9.1", "4.3.1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(OLD) as made:
        made.create("output", 3)
        yield made


def becomes(expected: object, look: Callable[[], object]) -> None:
    deadline, pause = time.monotonic() + WITHIN_S, threading.Event()
    while (seen := look()) != expected:
        assert time.monotonic() < deadline, f"{seen} instead of {expected}"
        pause.wait(0.1)


def known_to(cluster: Cluster, broker: int) -> frozenset[int]:
    return wire.describe("127.0.0.1", cluster.to_broker[broker].port).brokers


def test_a_broker_that_is_cut_from_the_controller_alone_goes_on_as_a_leader_and_the_others_elect(
    cluster: Cluster,
) -> None:
    cluster.await_in_sync()
    everyone = frozenset(range(BROKERS))
    stale = cluster.leaders("output")[0]
    others = sorted(everyone - {stale})

    cluster.to_controller[stale].cut()

    for each in others:
        becomes(everyone - {stale}, lambda each=each: known_to(cluster, each))  # type: ignore[misc]
    assert known_to(cluster, stale) == everyone
    seen = cluster.seen_by(others[0])
    assert seen is not None and seen["output", 0][0] in others
    told = cluster.seen_by(stale)
    assert told is not None and told["output", 0][0] == stale

    cluster.heal()

    assert known_to(cluster, stale) == everyone
    assert cluster.seen_by(stale) == cluster.seen_by(others[0])


def test_leaders_move_and_a_killed_broker_comes_back(cluster: Cluster) -> None:
    cluster.await_in_sync()
    before = cluster.leaders("output")
    cluster.move_leaders(["output"])
    moved = cluster.leaders("output")
    assert all(was != now for was, now in zip(before, moved, strict=True))

    cluster.kill(moved[0])
    others = sorted(set(range(BROKERS)) - {moved[0]})
    becomes(frozenset(others), lambda: known_to(cluster, others[0]))

    cluster.heal()

    assert known_to(cluster, moved[0]) == frozenset(range(BROKERS))


def test_a_broker_of_a_newer_version_joins_and_goes_back(cluster: Cluster) -> None:
    cluster.await_in_sync()
    for version in (NEW, OLD):
        cluster.start(0, version)
        cluster.await_in_sync()
        log = (cluster.kafka.data_dir / "broker-0.log").read_text()
        assert log.rindex(f"Kafka version: {version}") > log.rindex(
            "Kafka version: " + (OLD if version == NEW else NEW)
        )
