"""Without a ZooKeeper that answers: nothing hangs, nothing is handed out."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from embedded_kafka.child.ports import free_ports
from embedded_kafka.producer_ids.allocator import ProducerIds
from embedded_kafka.producer_ids.block import Block
from embedded_kafka.producer_ids.zookeeper import ZooKeeperBlocks
from kafka_core.errors import BlocksUnavailable
from tests.support.logs import said_by

SOON_S = 10.0
"""Less than the 15 s that kazoo waits by itself, and than for ever; three times what a claim took on the busiest
machine seen.
"""


@pytest.fixture(params=["nobody listens", "nobody answers"])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where no ZooKeeper is."""
    if request.param == "nobody listens":
        yield f"127.0.0.1:{free_ports(1)[0]}"
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_claim_fails_soon_and_closing_leaves_no_thread(hosts: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    before = set(threading.enumerate())
    store = ZooKeeperBlocks(hosts, 1, session_timeout_ms=1_000)
    began = time.monotonic()

    with pytest.raises(BlocksUnavailable, match="does not answer") as refused:
        store.claim()

    assert time.monotonic() - began < SOON_S
    assert refused.value.facts["hosts"] == hosts
    store.close()
    assert time.monotonic() - began < SOON_S
    assert not [left for left in set(threading.enumerate()) - before if left.is_alive()]
    said = said_by(caplog, "embedded_kafka.producer_ids") + said_by(caplog, "kazoo")
    assert not said, "every attempt to connect is reported"


def test_a_broker_that_starts_without_zookeeper_has_no_ids_and_can_be_closed(
    hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ZooKeeperBlocks(hosts, 1, session_timeout_ms=1_000)
    answered, claim = threading.Event(), store.claim
    answered_before_claimed: list[bool] = []

    def claim_after_the_answer() -> Block:
        answered_before_claimed.append(answered.wait(SOON_S))
        return claim()

    monkeypatch.setattr(store, "claim", claim_after_the_answer)
    ids = ProducerIds(store)
    ids.start()

    with pytest.raises(BlocksUnavailable):
        ids.next_id()
    answered.set()

    began = time.monotonic()
    ids.close()
    assert time.monotonic() - began < SOON_S
    assert all(answered_before_claimed), "asking for an id waits for a claim"


def test_a_closed_store_claims_nothing_and_opens_no_session(hosts: str) -> None:
    before = set(threading.enumerate())
    store = ZooKeeperBlocks(hosts, 1)
    store.close()
    store.close()

    with pytest.raises(BlocksUnavailable, match="closed"):
        store.claim()

    assert not set(threading.enumerate()) - before


@pytest.mark.slow
def test_a_server_that_talks_nonsense_is_tried_again_by_a_new_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kazoo's own thread does not survive it."""
    caplog.set_level(logging.CRITICAL, "embedded_kafka.producer_ids.zookeeper.kazoo")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[socket.socket] = []

        def talk() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(listener.accept()[0])
                    connections[-1].sendall(b"\0\0\0\4junk")

        threading.Thread(target=talk, daemon=True).start()
        store = ZooKeeperBlocks(f"127.0.0.1:{listener.getsockname()[1]}", 1, session_timeout_ms=1_000)
        for _ in range(2):
            with pytest.raises(BlocksUnavailable):
                store.claim()
        store.close()
        listener.shutdown(socket.SHUT_RDWR)

    assert len(connections) >= 2
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("hosts", ["127.0.0.1:port", "127.0.0.1:99999", ":2181", ""])
def test_an_address_that_cannot_be_one_is_refused_before_anything_is_claimed(hosts: str) -> None:
    with pytest.raises(ValueError):
        ZooKeeperBlocks(hosts, 1)


def test_an_impossible_size_is_refused_before_anything_is_claimed() -> None:
    with pytest.raises(ValueError):
        ZooKeeperBlocks("127.0.0.1:2181", 1, block_size=0)
