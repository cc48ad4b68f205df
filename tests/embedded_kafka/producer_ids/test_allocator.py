"""Ids from blocks, with a store that claims when and what the test says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedded_kafka.producer_ids.allocator import ProducerIds
from embedded_kafka.producer_ids.block import Block, next_block
from kafka_core.errors import (
    AuthorizationFailed,
    BlocksUnavailable,
    ExactlyOnceError,
    GarbledBlock,
    InternalError,
    ProducerIdsExhausted,
)

WITHIN_S = 10.0
WITHIN_MS = 10_000


class ScriptedStore:
    """Each claim is announced in `asked` and answered by the next of `answers`."""

    def __init__(self, *answers: Block | BaseException) -> None:
        self.asked: queue.Queue[int] = queue.Queue()
        self.answers: queue.Queue[Block | BaseException] = queue.Queue()
        self.closed = False
        self.claims = 0
        for answer in answers:
            self.answers.put(answer)

    def claim(self) -> Block:
        self.claims += 1
        self.asked.put(self.claims)
        answer = self.answers.get(timeout=WITHIN_S)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True
        self.answers.put(BlocksUnavailable("closed"))


class EndlessStore:
    """Block after block; threads may share it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.latest: Block | None = None

    def claim(self) -> Block:
        self.latest = next_block(self.latest, self.size)
        return self.latest

    def close(self) -> None:
        pass


@contextmanager
def started(store: ScriptedStore | EndlessStore) -> Iterator[ProducerIds]:
    ids = ProducerIds(store)
    ids.start()
    try:
        yield ids
    finally:
        ids.close()


def draw(ids: ProducerIds, count: int) -> list[int]:
    """That many ids, waiting for blocks where need be."""
    drawn: list[int] = []
    while len(drawn) < count:
        try:
            drawn.append(ids.next_id())
        except BlocksUnavailable:
            assert ids.wait_until_ready(WITHIN_MS)
    return drawn


def test_ids_are_given_one_after_another_from_the_claimed_block() -> None:
    """Rule: seed 000 §5.1.2: the next available id of the local segment."""
    with started(ScriptedStore(Block(4000, 4999))) as ids:
        assert draw(ids, 3) == [4000, 4001, 4002]


def test_a_new_block_is_taken_when_the_old_one_is_used_up() -> None:
    """Rule: seed 000 §5.1.2: when the local ids are used up, apply for a segment."""
    with started(ScriptedStore(Block(0, 9), Block(50, 59))) as ids:
        assert draw(ids, 12) == [*range(10), 50, 51]


@pytest.mark.parametrize(("size", "used"), [(1, 1), (10, 9), (1000, 900), (7, 7)])
def test_the_next_block_is_asked_for_when_nine_tenths_are_used_and_not_before(size: int, used: int) -> None:
    store = ScriptedStore(Block(0, size - 1))
    with started(store) as ids:
        draw(ids, used - 1)
        # Nothing is under way that could still ask: the thread sleeps until it is woken.
        assert store.claims == 1

        draw(ids, 1)

        assert [store.asked.get(timeout=WITHIN_S) for _ in range(2)] == [1, 2]


def test_the_next_block_is_there_before_the_current_one_is_used_up() -> None:
    store = ScriptedStore(Block(0, 9), Block(10, 19))
    with started(store) as ids:
        draw(ids, 10)
        assert ids.wait_until_ready(WITHIN_MS)
        assert [ids.next_id() for _ in range(9)] == list(range(10, 19))


def test_while_a_claim_is_under_way_asking_for_an_id_is_refused_at_once() -> None:
    store = ScriptedStore()
    with started(store) as ids:
        store.asked.get(timeout=WITHIN_S)

        with pytest.raises(BlocksUnavailable, match="being fetched"):
            ids.next_id()

        store.answers.put(Block(0, 9))
        assert ids.wait_until_ready(WITHIN_MS)
        assert ids.next_id() == 0


def test_before_it_is_started_there_is_no_id_and_nothing_is_claimed() -> None:
    store = ScriptedStore(Block(0, 9))
    ids = ProducerIds(store)

    with pytest.raises(BlocksUnavailable):
        ids.next_id()

    assert store.claims == 0
    ids.close()


def test_a_store_that_was_away_is_asked_again_until_it_is_back() -> None:
    away = BlocksUnavailable("nobody is there", {"hosts": "a"})
    store = ScriptedStore(away, away)
    with started(store) as ids:
        for _ in range(3):
            store.asked.get(timeout=WITHIN_S)
        with pytest.raises(BlocksUnavailable, match="nobody is there") as refused:
            ids.next_id()
        assert refused.value.facts == {"hosts": "a"}

        store.answers.put(Block(0, 9))

        assert ids.wait_until_ready(WITHIN_MS)
        assert ids.next_id() == 0


def test_the_rest_of_a_block_is_handed_out_while_the_store_is_away() -> None:
    store = ScriptedStore(Block(0, 9), *[BlocksUnavailable("away")] * 3)
    with started(store) as ids:
        assert draw(ids, 9) == list(range(9))
        for _ in range(3):
            store.asked.get(timeout=WITHIN_S)

        assert ids.next_id() == 9
        with pytest.raises(BlocksUnavailable):
            ids.next_id()


@pytest.mark.parametrize(
    "error",
    [
        ProducerIdsExhausted("Have exhausted all producerIds.", {"block_end": 9}),
        GarbledBlock("garbled"),
        AuthorizationFailed("forbidden"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_final_error_is_raised_by_every_later_call_and_nothing_is_claimed_any_more(
    error: ExactlyOnceError,
) -> None:
    """Rule: seed 000 §5.1.2: exhaustion is fatal."""
    store = ScriptedStore(error, Block(0, 9))
    with started(store) as ids:
        for _ in range(3):
            with pytest.raises(type(error)) as raised:
                ids.wait_until_ready(WITHIN_MS)
            assert raised.value == error
            with pytest.raises(type(error)):
                ids.next_id()
        assert store.claims == 1


def test_an_error_that_nobody_expected_is_a_bug_and_said_to_be_one() -> None:
    store = ScriptedStore(RuntimeError("surprise"))
    with started(store) as ids, pytest.raises(InternalError, match="surprise"):
        ids.wait_until_ready(WITHIN_MS)


@pytest.mark.parametrize("again", [Block(0, 9), Block(9, 18), Block(0, 8)])
def test_a_store_that_goes_back_is_not_believed_and_nothing_of_its_block_is_handed_out(again: Block) -> None:
    store = ScriptedStore(Block(0, 9), again)
    with started(store) as ids:
        assert draw(ids, 9) == list(range(9))
        # The tenth may still come, before the second claim is answered; after it nothing does.
        tenth: list[int] = []

        with pytest.raises(InternalError, match="went back"):
            tenth += draw(ids, 2)

        assert tenth == []
        with pytest.raises(InternalError):
            ids.next_id()


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_threads_that_draw_at_once_never_get_one_id_twice_nor_an_earlier_one(size: int) -> None:
    drawn: list[list[int]] = [[] for _ in range(4)]
    with started(EndlessStore(size)) as ids:
        threads = [threading.Thread(target=lambda mine=mine: mine.extend(draw(ids, 500))) for mine in drawn]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)

    assert sorted(number for mine in drawn for number in mine) == list(range(2000))
    assert all(mine == sorted(mine) for mine in drawn)


def test_closing_ends_a_claim_under_way_and_loses_its_block() -> None:
    store = ScriptedStore()
    before = set(threading.enumerate())
    ids = ProducerIds(store)
    ids.start()
    store.asked.get(timeout=WITHIN_S)
    store.answers.put(Block(0, 9))
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "producer-ids")

    ids.close()

    assert store.closed
    with pytest.raises(BlocksUnavailable, match="closing"):
        ids.next_id()
    assert not thread.is_alive()


def test_closing_without_having_started_and_twice_is_harmless() -> None:
    ids = ProducerIds(ScriptedStore())

    ids.close()
    ids.close()
