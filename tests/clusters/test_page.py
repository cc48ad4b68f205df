"""docs/deploying.md has no command that is not run: each of its blocks is one that a test here asks for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.clusters import table
from tests.clusters.page import NOT_RUN, PAGE, blocks, commands
from tests.support.made import DAY

HERE = Path(__file__).parent


def asked_for() -> set[tuple[str, int]]:
    """Heading and number of each block that the code beside this file asks for."""
    found: set[tuple[str, int]] = set()
    for path in HERE.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        }  # fmt: skip
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            function = call.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in ("block", "submit"):
                first = call.args[0]
                heading = first.value if isinstance(first, ast.Constant) else names.get(getattr(first, "id", ""))
                numbers = [each.value.value for each in call.keywords if each.arg == "number" and isinstance(each.value, ast.Constant)]  # fmt: skip
                found.add((str(heading), int(str(numbers[0])) if numbers else 0))
    return found


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    printed = {(heading, number) for heading, found in blocks().items() for number in range(len(found))}

    assert printed and printed - asked_for() == set()


def test_what_is_not_run_has_no_block_that_looks_as_if_it_were() -> None:
    text = PAGE.read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    not_run = [each for each in sections if NOT_RUN in each.partition("\n")[0]]

    assert not_run and all("```sh" not in each for each in not_run)
    # Any other kind of block would be read as a command and run by nobody.
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) <= {"sh", "text"}


def test_every_file_that_the_page_names_exists() -> None:
    root = HERE.parents[1]
    named = set(re.findall(r"`((?:tests|deploy|docs|conf)/[\w./-]+)`", PAGE.read_text()))

    assert named and {each for each in named if not (root / each).exists()} == set()


def test_a_command_over_several_lines_is_one() -> None:
    assert commands("a \\\n    b\nc\n") == ["a      b", "c"]


def test_every_line_of_the_table_has_a_test_and_every_test_of_a_cluster_has_a_line() -> None:
    marked: set[str] = set()
    for path in HERE.glob("test_*.py"):
        nodes = ast.parse(path.read_text()).body
        assigned = {
            ast.unparse(node.targets[0]): ast.unparse(node.value) for node in nodes if isinstance(node, ast.Assign)
        }
        everywhere = "clusters" in assigned.get("pytestmark", "")
        tests = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
        marked |= {
            f"{path.name}::{node.name}" for node in tests
            if everywhere or any("mark.clusters" in ast.unparse(each) for each in node.decorator_list)
        }  # fmt: skip

    assert {name.partition("[")[0] for name in table.LINES} == marked


def test_the_page_has_the_lines_that_the_tests_have_and_says_how_each_ended() -> None:
    text = PAGE.read_text()
    assert table.written({}, {}, text) == text, "run: make clusters"
    for runs, seen in table.cells("run", text).items():
        assert re.fullmatch(
            rf"\d+ s, pyspark 4\.\d+\.\d+, Python 3\.\d+\.\d+, {DAY.pattern}|not run yet|failed|skipped", seen
        ), runs


def test_a_run_writes_what_it_has_seen_and_leaves_the_other_lines() -> None:
    first, second, *_ = table.LINES
    before = table.written({second: "7 s, pyspark 4.3.0, Python 3.11.7"}, {"kernels": 500_000}, PAGE.read_text())

    text = table.written({first: "failed"}, {"venv-pack": 168_000_000}, before)

    seen = table.cells("run", text)
    assert seen[table.LINES[first][0]] == "failed"
    assert seen[table.LINES[second][0]] == "7 s, pyspark 4.3.0, Python 3.11.7"
    sizes = table.cells("sizes", text)
    assert (sizes[table.SIZES["venv-pack"]], sizes[table.SIZES["kernels"]]) == ("168.0", "0.5")
