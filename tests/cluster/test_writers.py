"""How long each writer stood still, by what it said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.writers import Batches, Lines, Span, longest_silence

SPAN = Span(100.0, 200.0)


def said(*lines: dict[str, object]) -> Batches:
    batches = Batches()
    for line in lines:
        batches.take(json.dumps(line))
    return batches


def batch(number: int, began: float, ended: float) -> dict[str, object]:
    return {"batch": number, "began": began, "ended": ended}


def test_the_longest_batch_that_ended_in_the_span_counts() -> None:
    batches = said(batch(0, 50.0, 99.0), batch(1, 99.5, 101.0), batch(2, 102.0, 140.0), batch(3, 190.0, 230.0))
    assert batches.longest(SPAN) == pytest.approx(38.0)
    assert said().longest(SPAN) == 0.0


def test_a_batch_whose_first_try_ended_counts_from_the_end_of_the_one_before() -> None:
    before, after = batch(1, 100.0, 101.0), batch(2, 131.0, 131.5)
    assert said(before, after).longest(SPAN) == pytest.approx(1.0)

    ended_by_itself = said(before, {"error": "BrokerUnavailable: ...", "at": 130.0}, after)
    assert ended_by_itself.longest(SPAN) == pytest.approx(30.5)
    assert ended_by_itself.errors == [(130.0, "BrokerUnavailable: ...")]

    killed = said(before, after)
    killed.kills.append(120.0)
    assert killed.longest(SPAN) == pytest.approx(30.5)


def test_lines_of_others_say_nothing_of_batches() -> None:
    batches = Batches()
    batches.take("Traceback (most recent call last):")
    batches.take("")
    assert batches == Batches()


def test_a_writer_has_gone_on_with_batches_that_began_since() -> None:
    assert said(batch(1, 99.0, 130.0), batch(2, 131.0, 132.0), batch(3, 133.0, 134.0)).newer(130.0) == 2


def test_the_longest_silence_is_that_of_one_partition_while_others_go_on() -> None:
    others = [(100.0 + step / 10, 0) for step in range(500)]
    frozen = [(101.0, 1), (131.5, 1), (131.6, 1)]
    assert longest_silence(sorted(others + frozen), SPAN) == pytest.approx(30.5)
    assert longest_silence([(150.0, 0)], SPAN) == 0.0
    assert longest_silence([(150.0, 0), (250.0, 0)], SPAN) == 0.0


def test_a_line_that_is_not_whole_yet_is_read_when_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\nsec")
    lines = Lines(path)
    assert list(lines) == ["first"]
    assert list(lines) == []
    with path.open("a") as file:
        file.write("ond\nthird\n")
    assert list(lines) == ["second", "third"]
