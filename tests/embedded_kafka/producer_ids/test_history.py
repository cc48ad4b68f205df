"""The judge of histories rejects what it must."""

from __future__ import annotations

import pytest

from tests.embedded_kafka.producer_ids.history import Run, problems, runs_of


def test_consecutive_ids_are_one_run() -> None:
    assert runs_of([0, 1, 2, 10, 11, 5]) == [(0, 2), (10, 11), (5, 5)]


def test_owners_that_draw_in_turns_are_fine() -> None:
    assert problems({"a": [(0, 9), (20, 29)], "b": [(10, 19), (30, 30)], "c": []}) == []


@pytest.mark.parametrize(
    "drawn",
    [
        {"a": [(0, 9)], "b": [(9, 18)]},
        {"a": [(0, 9)], "b": [(3, 4)]},
        {"a": [(0, 9)], "b": [(0, 9)]},
        {"a": [(0, 9), (9, 10)]},
        {"a": [(10, 19), (0, 9)]},
        {"a": [(0, 0), (0, 0)]},
    ],
    ids=["overlap", "within", "same", "own end again", "back", "one twice"],
)
def test_an_id_twice_or_an_earlier_one_is_found(drawn: dict[str, list[Run]]) -> None:
    assert problems(drawn)
