"""Names of strangers reach a terminal and a log as text and as nothing else (S8 of the security findings)."""

from __future__ import annotations

import logging
import pickle

import pytest
from rich.console import Console

from kafka_core.errors import OptionsError, PipelineConflict
from kafka_core.foreign_text import Lines, harmless, told
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.layout import Grid, Said, Sheet
from pyspark_kafka_eos.cli.tables import render

STRANGERS = {
    "window title": "\x1b]0;yours\x07",
    "screen": "\x1b[2J\x1b[H",
    "eight bits": "\x9b2J",
    "line of a log": "a\nWARNING all is well",
    "carriage return": "a\rb",
    "line separator": "a\u2028b\x85c",
    "direction": "a\u202eb",
    "deleted": "a\x7f\x08b",
    "half a character": "\ud800",
}
EVERY = pytest.mark.parametrize("text", STRANGERS.values(), ids=STRANGERS)


@EVERY
def test_it_is_one_line_of_printable_characters_and_stays_so(text: str) -> None:
    shown = harmless(text)
    assert shown.isprintable() and shown != text
    assert harmless(shown) == shown
    # Nothing is lost: a program can read it back.
    assert shown.encode("utf-8").decode("unicode_escape").encode("utf-16", "surrogatepass") == text.encode(
        "utf-16", "surrogatepass"
    )


@pytest.mark.parametrize("text", ["", "orders:0", "Bestellungen für Zürich", "注文", 'a "b" \\x1b'])
def test_what_is_harmless_is_unchanged(text: str) -> None:
    assert harmless(text) == text


@EVERY
def test_an_error_shows_it_as_text_in_message_and_facts_also_behind_a_process(text: str) -> None:
    error = PipelineConflict(f"pipeline {text} has another owner", {"pipeline": text})
    arrived = pickle.loads(pickle.dumps(error))
    for each in (error, arrived):
        assert str(each).isprintable()
        assert harmless(text) in each.message
    assert arrived == error
    assert error.facts["pipeline"] == text, "programs have the name as it is"


@EVERY
def test_a_list_of_problems_has_a_line_for_each_and_no_more(text: str) -> None:
    error = OptionsError.listing("this cannot be used", [f"first {text}", f"second {text}"])
    arrived = pickle.loads(pickle.dumps(error))
    for each in (error, arrived):
        assert each.problems() == [f"first {harmless(text)}", f"second {harmless(text)}"]
        assert each.message.count("\n") == 1


@EVERY
def test_a_table_and_its_sentences_show_it_as_text(text: str) -> None:
    table = Grid(("pipeline", "why"))
    table.add(text, f"because of {text}")
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(Sheet(table, Said(f"{text} is seen")))
    lines = captured.get().split("\n")
    assert len(lines) == 4, lines
    assert all(each.isprintable() for each in lines)


@EVERY
def test_an_error_of_a_command_has_its_own_lines_alone(text: str) -> None:
    console = Console(width=400, record=True, force_terminal=False)
    error = OptionsError.listing("this cannot be used", [f"first {text}", "second"])
    with console.capture() as captured:
        console.print(render(documents.failed("doctor", error)))
    lines = captured.get().rstrip("\n").split("\n")
    assert all(each.isprintable() for each in lines)
    assert [each.split(" ")[0] for each in lines] == ["OptionsError:", "second", "who"]


@EVERY
def test_a_warning_is_one_line_of_the_log(text: str, caplog: pytest.LogCaptureFixture) -> None:
    said = told(logging.getLogger("tests.told"), f"the pipeline of {text} is known")
    assert said.isprintable()
    assert [each.getMessage() for each in caplog.records] == [said]


def test_lines_stay_lines() -> None:
    assert harmless(Lines.joined(["a\x1b", "b\nc"])) == "a\\x1b\nb\\nc"
