"""The checker rejects every bad history for its own reasons, and lets legal ones pass, told and random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.checker import RULES, Anomaly, Kind, check, verdict_by_kind
from tests.chaos.history import (
    Batch,
    Decided,
    EntryKind,
    History,
    Isolation,
    LogEntry,
    OffsetsSeen,
    Read,
    Row,
    Scope,
)
from tests.chaos.stories import BAD, LEGAL, Story, World, score

Sizes = tuple[tuple[int, ...], ...]


# ---- told histories


@pytest.mark.parametrize("story", BAD, ids=lambda story: story.name)
def test_a_bad_history_is_rejected_for_exactly_its_reasons(story: Story) -> None:
    anomalies = check(story.history())

    assert {anomaly.kind for anomaly in anomalies} == story.kinds, list(map(str, anomalies))
    named = [anomaly for anomaly in anomalies if story.words in anomaly.message]
    assert named, list(map(str, anomalies))


@pytest.mark.parametrize("story", LEGAL, ids=lambda story: story.name)
def test_a_legal_history_passes(story: Story) -> None:
    assert check(story.history()) == ()


def test_every_kind_is_told_and_has_a_rule() -> None:
    assert frozenset[Kind]().union(*(story.kinds for story in BAD)) == set(Kind) == RULES.keys()
    assert all(story.words for story in BAD)
    assert len({story.name for story in (*BAD, *LEGAL)}) == len(BAD) + len(LEGAL)


def test_the_score_counts_the_bad_histories_that_are_rejected() -> None:
    assert score() == (len(BAD), len(BAD))
    assert len(BAD) >= 30
    assert len(LEGAL) >= 10


def test_a_verdict_has_a_row_for_every_kind_also_where_nothing_was_found() -> None:
    found = (Anomaly(Kind.PHANTOM, "one"), Anomaly(Kind.DUPLICATE, "two"), Anomaly(Kind.PHANTOM, "three"))

    verdict = verdict_by_kind(found)

    assert list(verdict) == list(Kind)
    assert {kind: count for kind, count in verdict.items() if count} == {Kind.PHANTOM: 2, Kind.DUPLICATE: 1}


@pytest.mark.parametrize("story", BAD, ids=lambda story: story.name)
def test_the_order_in_which_the_log_was_collected_does_not_matter(story: Story) -> None:
    history = story.history()

    assert check(replace(history, log=history.log[::-1])) == check(history)


# ---- histories that nobody can judge


def malformed(**changes: object) -> Callable[[], History]:
    parts: dict[str, object] = {
        "scope": Scope.TASK,
        "batches": (Batch(0, (("a",), ("b",)), {("in", 0): 1}),),
        "log": (),
        "reads": (Read(9, Isolation.COMMITTED, (), {}),),
        "decisions": (),
    }
    return lambda: History(**(parts | changes))  # type: ignore[arg-type]


ENTRY = LogEntry("out", 0, 4, EntryKind.DATA, 7, 0, "a")
EARLY, LATE = Read(1, Isolation.COMMITTED, ()), Read(9, Isolation.COMMITTED, (), {})


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (malformed(batches=(Batch(1, (), {}), Batch(0, (), {}))), "ids of the batches"),
        (malformed(batches=(Batch(0, (("a",), ("a",)), {}),)), "record 'a' is asked for 2 times"),
        (malformed(log=(ENTRY, replace(ENTRY, record="b"))), "2 entries at out-0@4"),
        (malformed(reads=(LATE, EARLY)), "moments do not rise"),
        (malformed(offsets_seen=(OffsetsSeen(2, {}), OffsetsSeen(2, {}))), "moments do not rise"),
        (malformed(decisions=(Decided(3, 0), Decided(2, 1))), "moments do not rise"),
        (malformed(reads=(EARLY, LATE), offsets_seen=(OffsetsSeen(1, {}),)), "share a moment"),
        (malformed(reads=()), "the last read is not a committed one"),
        (malformed(reads=(Read(9, Isolation.UNCOMMITTED, (), {}),)), "the last read is not a committed one"),
        (malformed(decisions=(Decided(9, 0),)), "seen after the last read"),
        (malformed(offsets_seen=(OffsetsSeen(10, {}),)), "seen after the last read"),
        (malformed(reads=(EARLY,)), "no offsets of the group"),
    ],
)
def test_a_history_that_nobody_can_judge_is_refused(make: Callable[[], History], because: str) -> None:
    with pytest.raises(ValueError, match=because):
        make()


def test_the_same_parts_without_a_fault_are_a_history() -> None:
    assert check(malformed()()) == ()


# ---- random histories


@st.composite
def legal_runs(draw: st.DrawFn) -> tuple[str, Sizes]:
    """A story in which runs crash anywhere and are resumed, with readers in between, and its sizes; never an anomaly.

    It begins with an attempt that is given up, so that there are aborted rows.
    """
    slots = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
    sizes = ((draw(st.integers(1, 4)),), *draw(st.lists(slots, max_size=3)))
    often, sometimes = st.booleans(), st.sampled_from((False, False, True))
    steps = [f"setting version={draw(st.sampled_from('12'))} partitions={draw(st.integers(1, 3))}"]
    steps += ["write 0 name=lost", "abort lost"]

    def then(step: str) -> None:
        steps.append(step)
        if draw(sometimes):
            steps.append(draw(st.sampled_from(("read", "read UNCOMMITTED", "see_offsets"))))

    def attempt(slot: str) -> None:
        while draw(sometimes):
            then(f"write {slot} first={draw(st.integers(0, 4))}")
            then(f"abort {slot}")
            if draw(sometimes):
                then(f"roll_over {slot.partition('.')[2]}")
        then(f"write {slot}")

    for batch, rows in enumerate(sizes):
        names = [f"{batch}.{slot}" for slot in range(len(rows))]
        while draw(sometimes):
            # The driver is killed before it decides: what the tasks had open is aborted by the next run.
            killed = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
            for name in killed:
                attempt(name)
            for name in killed:
                then(f"abort {name}")
        for name in draw(st.permutations(names)):
            attempt(name)
        then(f"decide {batch}")
        open_, repaired = names, 0
        while open_:
            lost = [name for name in draw(st.permutations(open_)) if end(draw(sometimes), name, then)]
            for name in lost:
                attempt(name)
            repaired += bool(lost)
            if lost:
                then(f"decide {batch} repaired={repaired}")
            open_ = lost
    if draw(often):
        then(f"write {len(sizes) - 1}.0 name=late first=1")
        then("abort late")
    return "; ".join([*steps, "read UNCOMMITTED", "read"]), sizes


def end(lost: bool, name: str, then: Callable[[str], None]) -> bool:
    """Commit a decided slot, or let the broker abort it first."""
    then(f"{'abort' if lost else 'commit'} {name}")
    return lost


@settings(max_examples=80)
@given(legal_runs())
def test_random_legal_runs_pass(run: tuple[str, Sizes]) -> None:
    assert check(World(*run).history()) == ()


def reread(history: History, rows: tuple[Row, ...]) -> History:
    return replace(history, reads=(*history.reads[:-1], replace(history.final, rows=rows)))


@settings(max_examples=40)
@given(legal_runs(), st.data())
def test_a_last_read_that_lacks_any_row_is_rejected(run: tuple[str, Sizes], data: st.DataObject) -> None:
    history = World(*run).history()
    row = data.draw(st.sampled_from(history.final.rows))

    anomalies = check(reread(history, tuple(each for each in history.final.rows if each != row)))

    assert any(each.kind is Kind.LOST_WRITE and repr(row.record) in each.message for each in anomalies)


@settings(max_examples=40)
@given(legal_runs(), st.data())
def test_a_last_read_that_has_any_row_twice_is_rejected(run: tuple[str, Sizes], data: st.DataObject) -> None:
    history = World(*run).history()
    row = data.draw(st.sampled_from(history.final.rows))

    anomalies = check(reread(history, (*history.final.rows, row)))

    assert {each.kind for each in anomalies} == {Kind.DUPLICATE}


@settings(max_examples=40)
@given(legal_runs(), st.data())
def test_a_last_read_with_any_aborted_row_is_rejected(run: tuple[str, Sizes], data: st.DataObject) -> None:
    history = World(*run).history()
    # Nothing is open at the end, so what only the uncommitted reader has is aborted.
    aborted = sorted(set(history.reads[-2].rows) - set(history.final.rows), key=lambda row: row[:3])
    row = data.draw(st.sampled_from(aborted))

    anomalies = check(reread(history, (*history.final.rows, row)))

    assert {Kind.ABORTED_READ, Kind.DUPLICATE} <= {each.kind for each in anomalies}


@settings(max_examples=40)
@given(legal_runs(), st.data())
def test_a_log_that_lacks_any_record_that_was_read_is_rejected(run: tuple[str, Sizes], data: st.DataObject) -> None:
    history = World(*run).history()
    row = data.draw(st.sampled_from(history.final.rows))

    anomalies = check(
        replace(history, log=tuple(each for each in history.log if (*each.where, each.offset) != row[:3]))
    )

    assert Kind.NOT_IN_LOG in {each.kind for each in anomalies}
