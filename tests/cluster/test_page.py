"""The page of a run, and which events a run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import page
from tests.cluster.__main__ import drawn, main, merged, table
from tests.cluster.stage import Row, as_json, from_file
from tests.cluster.troubles import AT_RANDOM, TROUBLES


def row(**changes: object) -> Row:
    found = Row("freeze", 38.0, 7, "one broker frozen for 38 s", "4.3.1", {"format-task": 45.0, "java": 30.0})
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_a_row_has_the_stalls_their_ratio_and_how_to_play_it_again() -> None:
    text = page.text([row()])
    assert "| format-task, s | Java, s | ratio |" in text
    assert (
        "| one broker frozen for 38 s | 4.3.1 | 45.0 | 30.0 | 1.5 | 0 | 0 | 0 | `--event freeze --seconds 38 --seed 7` |"
        in text
    )
    assert "does not hold" not in text


def test_what_does_not_hold_is_named_with_its_event() -> None:
    text = page.text(
        [row(ended=["format-task: BrokerUnavailable: x"], problems=["format-task: 1 rows lost: 7"], lost=1)]
    )
    assert "| 1.5 | 1 | 1 | 0 |" in text
    assert "- one broker frozen for 38 s: format-task: BrokerUnavailable: x\n" in text
    assert "- one broker frozen for 38 s: format-task: 1 rows lost: 7\n" in text
    assert "ENDED format-task: BrokerUnavailable: x" in page.told(row(ended=["format-task: BrokerUnavailable: x"]))


def test_the_page_has_the_words_of_whoever_ran_it() -> None:
    assert "\n\nThe machine did much else.\n\n| event |" in page.text([row()], "The machine did much else.")
    assert (
        "with 0. What has to hold is a ratio of at most 1.2, and nothing in the three columns behind it.\n\n| event"
        in page.text([row()])
    )


def test_every_table_has_as_many_cells_as_columns() -> None:
    lines = [line for line in page.text([row()]).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


def test_events_of_a_seed_are_always_the_same_and_more_of_them_begin_with_these() -> None:
    assert drawn(5, 3) == drawn(9, 3)[:5]
    assert drawn(5, 3) != drawn(5, 4)
    assert {name for name, _, _ in drawn(200, 3)} == set(AT_RANDOM)


def test_the_table_has_each_length_of_an_event() -> None:
    assert table(["freeze"], None, 7) == [("freeze", seconds, 7) for seconds in TROUBLES["freeze"].seconds]
    assert table(["freeze"], 20.0, 7) == [("freeze", 20.0, 7)]


def test_rows_of_several_runs_are_one_table_with_the_newest_of_each_event(tmp_path: Path) -> None:
    older, newer, roll = row(), row(lost=1), row(event="roll", seconds=0.0)
    up, down = row(event="upgrade", versions="3.9.1 -> 4.3.1"), row(event="downgrade", versions="4.3.1 -> 3.9.1")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(as_json(each) + "\n" for each in (down, up, older)))

    assert merged([*from_file(file), newer, roll]) == [roll, newer, up, down]


def test_an_event_that_is_not_there_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--event", "flood"])
    assert "invalid choice: 'flood'" in capsys.readouterr().err


def test_the_driver_of_a_real_spark_is_not_killed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--spark", "--event", "driver"])
    assert "leave out --spark" in capsys.readouterr().err


def test_the_queries_of_a_real_spark_have_a_table_of_their_own_and_its_own_sink_is_not_ours() -> None:
    with_spark = row(stalls={"spark-format": 33.0, "spark-own-sink": 90.0, "java": 30.0})
    text = page.text([row(), with_spark])
    assert "| spark-format, s | spark-own-sink, s | Java, s | ratio |" in text
    assert "| 33.0 | 90.0 | 30.0 | 1.1 | 0 | 0 | 0 | `--spark --event freeze --seconds 38 --seed 7` |" in text
