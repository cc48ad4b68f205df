"""The models in docs/design/model have the moves of the machines, and each rule of theirs is taken away by a
configuration.

TLC is not run here: `make model` does that, and fails where its answer is another one than a configuration expects.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from pyspark_kafka_eos.commit.machine import per_task, whole_batch
from pyspark_kafka_eos.slot import turns
from tools.model import (
    MODELS,
    PAGE,
    SOURCES,
    Configuration,
    ModelError,
    configuration_of,
    configurations,
    parse,
    rewritten,
    written,
)

MACHINES: dict[str, dict[str, Any]] = {
    "TaskCommit": {"": per_task},
    "BatchCommit": {"batch ": whole_batch, "turns ": turns},
}
"""Model -> how its comments name a machine's rows, and the machine."""

# What stands above an action, and its name.
_ACTION = re.compile(r"((?:^\\\*.*\n)*)^(\w+)(?:\([\w, ]+\))? ==", re.MULTILINE)


def _text(model: str) -> str:
    return (SOURCES / f"{model}.tla").read_text(encoding="utf-8")


def _block(name: str) -> str:
    found = re.search(rf"<!-- model: {name} -->\n(.*?)<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"{PAGE.name} has no block {name!r}"
    return found[1]


def _rows_of_actions(text: str) -> dict[str, set[str]]:
    """Action -> the machine's rows that its comment names."""
    return {
        name: {row.strip() for line in re.findall(r"^\\\* rows: (.+)$", above, re.MULTILINE) for row in line.split(",")}
        for above, name in _ACTION.findall(text)
    }


def _rows_of_machines(model: str) -> set[str]:
    return {
        f"{prefix}{state.name}/{event.__name__}"
        for prefix, machine in MACHINES[model].items()
        for state, event in machine.MOVES
    }


def _actions_of_next(text: str) -> set[str]:
    body = text.split("\nNext ==")[1].split("\nSpec ==")[0]
    return set(re.findall(r"\b([A-Z]\w+)\b(?=\(|\s|$)", body)) - {"Runs", "Slots", "Parts", "Ids", "Tasks"}


def _left_out(model: str) -> set[str]:
    return set(re.findall(rf"^\| {model} \| ([\w /]+) \|", _block("rows left out"), re.MULTILINE))


@pytest.mark.parametrize("model", MACHINES)
def test_every_row_of_the_machines_is_an_action_of_the_model_or_left_out_with_a_reason(model: str) -> None:
    named = set().union(*_rows_of_actions(_text(model)).values())

    rows = _rows_of_machines(model)
    assert named - rows == set(), "the model names rows that no machine has"
    assert rows - named - _left_out(model) == set(), "the model has no action for these rows"
    assert named & _left_out(model) == set(), "rows that are said to be left out are there"
    assert _left_out(model) <= rows, "rows are left out that no machine has"


@pytest.mark.parametrize("model", MACHINES)
def test_every_action_of_the_model_is_a_row_of_the_machines_or_described_on_the_page(model: str) -> None:
    rows = _rows_of_actions(_text(model))
    described = set(re.findall(rf"^\| {model} \| (\w+) \|", _block("other actions"), re.MULTILINE))

    actions = _actions_of_next(_text(model))
    assert actions <= set(rows)
    without = {action for action in actions if not rows[action]}
    assert without == described
    # A comment above something that is no action would name rows that nothing plays.
    assert {name for name, named in rows.items() if named} <= actions


def _constants(model: str) -> list[str]:
    declared = _text(model).split("\nCONSTANTS\n")[1].split("\nVARIABLES")[0]
    return re.findall(r"\w+", re.sub(r"\\\*.*", "", declared))


@pytest.mark.parametrize("model", MACHINES)
def test_every_rule_is_taken_away_by_a_configuration_and_explained_on_the_page(model: str) -> None:
    rules = re.findall(
        r"^  (\w+),? +\\\* ", _text(model).split("---- the rules")[1].split("VARIABLES")[0], re.MULTILINE
    )
    taken = {each.rule for each in configurations() if each.module == model}

    assert rules == list(MODELS[model].rules)
    assert set(rules) <= taken
    assert {rule for rule in rules if f"| {model} | {rule} |" not in _block("rules")} == set()


def test_every_configuration_gives_each_constant_a_value_and_takes_away_what_it_says() -> None:
    for each in configurations():
        given = dict(re.findall(r"^  (\w+) = (.+)$", each.text, re.MULTILINE))
        assert [name for name in given if given[name] != name] == _constants(each.module), each.name
        off = [name for name, value in given.items() if value == "FALSE"]
        assert ", ".join(off) == ("" if each.rule.startswith("(") else each.rule), each.name
        if not each.rule and "full" in each.name:
            assert each.expected == "no error"


def test_the_table_on_the_page_has_every_configuration_with_the_result_that_it_expects() -> None:
    rows = dict(
        re.findall(r"^\| (\w+-[\w-]+) \| [^|]*\| ([^|,]+?)(?:, in \d+ states)? \|", _block("table"), re.MULTILINE)
    )

    assert rows == {each.name: each.expected for each in configurations()}


SMALL = r"""\* rule: FenceFirst
\* expect: NoDuplicate violated
SPECIFICATION Spec
CONSTANTS
  t1 = t1
  p1 = p1
  Tasks = {t1}
  Parts = {p1}
  Runs = 2
  MaxTries = 2
  TV = 2
  MaxSeconds = 0
  MaxTimeouts = 0
  TakeTurns = TRUE
  BreakOnSecond = TRUE
  EndTurns = TRUE
  CheckWhole = TRUE
  CheckOpen = TRUE
  FreshIdentity = TRUE
  AskUnknown = TRUE
  FenceFirst = FALSE
SYMMETRY Symmetry
INVARIANTS TypeOK NoDuplicate NothingUnsealed NoLoss DoneIsDecided
"""


def test_a_configuration_is_written_beside_its_model() -> None:
    each = configuration_of("BatchCommit-no-FenceFirst")

    there = written(each)

    assert (there / f"{each.name}.cfg").read_text(encoding="utf-8") == SMALL
    assert (there / "BatchCommit.tla").read_text(encoding="utf-8") == _text("BatchCommit")


@pytest.mark.parametrize(
    ("name", "expected", "bounds", "word"),
    [
        ("TaskCommit-mute", "", {}, "expects neither"),
        ("TaskCommit-vague", "an error", {}, "expects neither"),
        ("NoCommit-full", "no error", {}, "there is no NoCommit.tla"),
        ("TaskCommit-full", "no error", {"Tasks": 2}, "what TaskCommit does not have: Tasks"),
    ],
)
def test_a_configuration_that_no_model_can_be_run_with_is_refused(
    name: str, expected: str, bounds: dict[str, int], word: str
) -> None:
    with pytest.raises(ModelError, match=word):
        Configuration(name, "", expected, bounds)


VIOLATED = """Error: Invariant NoLoss is violated.
State 1: <Initial predicate>
State 2: <Crash line 1, col 1 to line 2, col 2 of module TaskCommit>
7 states generated, 5 distinct states found, 2 states left on queue.
The depth of the complete state graph search is 3.
"""


def test_what_tlc_says_is_read_and_put_into_its_row() -> None:
    (first, *_) = configurations()

    result = parse(first, VIOLATED, 1.6)
    page = rewritten("a\n<!-- model: table -->\nold\n<!-- end -->\nb\n", [result], [first.name])

    assert (result.said, result.distinct, result.generated, result.depth) == ("NoLoss violated", 5, 7, 2)
    assert page.startswith("a\n") and page.endswith(f"{result.row}\n<!-- end -->\nb\n")


@pytest.mark.parametrize("text", ["", "Error: Parsing or semantic analysis failed.", "10 states generated, 9 distinct"])
def test_words_without_a_result_are_an_error_not_a_result(text: str) -> None:
    with pytest.raises(ModelError, match="no result"):
        parse(configurations()[0], text, 1.0)
