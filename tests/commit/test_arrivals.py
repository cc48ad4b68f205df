"""Writers of one transaction are committed together only where each got the same start of every encoding task, whole."""

from __future__ import annotations

import itertools
import pickle

import pytest

from connector.commit.arrivals import Arrivals, require_agreement
from connector.errors import AbortableError, AttemptRefused, InternalError


def heard(*ends: tuple[int, int, int]) -> Arrivals:
    """What a writer heard that got all batches of these (task, start, batches)."""
    arrivals = Arrivals()
    for task, start, batches in ends:
        for _ in range(batches):
            arrivals.batch()
        arrivals.end(task, start, batches)
    return arrivals


def test_writers_that_got_the_same_starts_agree_in_whichever_order_and_however_much() -> None:
    words = [heard(*order).word() for order in itertools.permutations([(0, 10, 1), (1, 11, 0), (2, 12, 3)])]
    words.append(heard((0, 10, 0), (1, 11, 7), (2, 12, 0)).word())

    require_agreement(words)

    assert len(set(words)) == 1


@pytest.mark.parametrize(
    "other",
    [
        ((0, 10, 1), (1, 99, 0)),
        ((0, 99, 0), (1, 11, 0)),
        ((0, 10, 1),),
        ((0, 10, 0), (1, 11, 0), (2, 12, 0)),
        (),
    ],
    ids=["a second start", "a second start without rows", "a task missing", "a task more", "nobody"],
)
def test_writers_that_got_different_starts_are_not_committed_together(
    other: tuple[tuple[int, int, int], ...],
) -> None:
    words = [heard((0, 10, 1), (1, 11, 0)).word(), heard(*other).word()]

    with pytest.raises(AttemptRefused, match="done again") as refused:
        require_agreement(words)

    assert isinstance(refused.value, AbortableError)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("arrived", [0, 1, 3])
def test_a_task_whose_batches_did_not_all_arrive_is_noticed(arrived: int) -> None:
    arrivals = Arrivals()
    for _ in range(arrived):
        arrivals.batch()

    with pytest.raises(InternalError, match="once and whole"):
        arrivals.end(0, 10, 2)


def test_a_task_that_arrives_twice_is_noticed() -> None:
    arrivals = heard((0, 10, 1))
    arrivals.batch()

    with pytest.raises(InternalError, match="once and whole"):
        arrivals.end(0, 11, 1)


def test_batches_without_an_end_are_noticed() -> None:
    arrivals = heard((0, 10, 1))
    arrivals.batch()

    with pytest.raises(InternalError, match="did not say that it had ended"):
        arrivals.word()


def test_no_task_at_all_is_agreed_upon() -> None:
    require_agreement([Arrivals().word(), Arrivals().word()])
    require_agreement([])
