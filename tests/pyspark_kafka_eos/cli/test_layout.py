"""Lines of a terminal of any width: no word is broken, no column that matters is left out."""

from __future__ import annotations

import pytest

from kafka_core.foreign_text import Lines
from pyspark_kafka_eos.cli.layout import Cell, Grid, Said, Sheet

COLUMNS = ("id", "state", "producer", "why")
ROWS = [
    ("enrich-flights:driver", "Empty", "12 epoch 3", ""),
    (
        "enrich-flights:0",
        "Ongoing",
        "13 epoch 4",
        "open and not decided: it is being written now, or its run was killed",
    ),
]
WORDS = {word for row in ROWS for cell in row for word in cell.split()}


def grid() -> Grid:
    made = Grid(COLUMNS, ("producer",))
    for row in ROWS:
        made.add(*row)
    return made


def lines(sheet: Sheet | Grid, width: int) -> list[str]:
    return [line.plain for line in sheet.lines(width)]


@pytest.mark.parametrize("width", [*range(1, 140, 3), 100_000])
def test_words_are_whole_at_every_width_and_lines_fit_where_words_do(width: int) -> None:
    shown = lines(grid(), width)

    spared = {"12", "13", "epoch", "3", "4"} if "producer" not in " ".join(shown) else set()
    assert WORDS - spared <= {word for line in shown for word in line.split()}
    for line in shown:
        assert len(line) <= width or len(line.split()) == 1, line


def test_with_room_a_row_is_one_line_under_its_heads() -> None:
    heads, *rows = lines(grid(), 200)

    assert heads.split() == list(COLUMNS)
    assert [row.split()[0] for row in rows] == [row[0] for row in ROWS]


def test_with_less_room_the_spare_columns_go_first_then_rows_stand_upright() -> None:
    assert lines(grid(), 60)[0].split() == list(COLUMNS)
    assert lines(grid(), 45)[0].split() == ["id", "state", "why"]
    assert lines(grid(), 32)[:5] == [
        "id        enrich-flights:driver",
        "state     Empty",
        "producer  12 epoch 3",
        "",
        "id        enrich-flights:0",
    ]


def test_rows_that_come_later_stand_under_the_same_heads() -> None:
    table = Grid(("name", "count"))
    table.add("a-long-name", "1")
    first = lines(table, 80)
    table.add("b", Cell("2", "red"))
    second = lines(table, 80)

    assert first == ["name         count", "a-long-name  1"]
    assert second == ["b            2"]
    assert lines(table, 80) == []


def test_several_lines_of_a_value_stay_several() -> None:
    table = Grid(("ids", "outcome"))
    table.add(Lines.joined(["p:0", "p:1"]), "refused")

    assert lines(table, 80) == ["ids  outcome", "p:0  refused", "p:1"]


def test_a_sentence_is_wrapped_and_indented() -> None:
    assert lines(Sheet(Said("one two three", indent="  ")), 9) == ["  one two", "  three"]
