"""CONTRIBUTING's "Where is ..." leads someone new to the code to what they look for, in few files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "connector"
MOST_FILES = 15

_PLACE = re.compile(r"`([a-z_/]+\.py)`: `([\w.]+)`")


def rows() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Question, the word to search for, and each file with the name to look at."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- where -->\n(.*?)<!-- end of where -->", text, re.DOTALL)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return [(question, word, _PLACE.findall(places)) for question, word, places in cells]


def names_in(body: list[ast.stmt], before: str = "") -> set[str]:
    """Every class, function, method and constant that these lines define, methods under their class."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(before + node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {before + node.name, *names_in(node.body, f"{before}{node.name}.")}
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            found |= {before + target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_ten_questions_need_few_files() -> None:
    assert len(rows()) == 10
    assert all(places for _, _, places in rows())
    assert len({file for _, _, places in rows() for file, _ in places}) <= MOST_FILES


@pytest.mark.parametrize(
    ("question", "word", "places"), rows(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_named_thing_is_defined_in_the_named_file_which_has_the_word(
    question: str, word: str, places: list[tuple[str, str]]
) -> None:
    for file, name in places:
        text = (SOURCES / file).read_text(encoding="utf-8")
        assert name in names_in(ast.parse(text).body), f"{file} defines no {name}"
        assert word.lower() in f"{file}\n{text}".lower(), f"{file} does not have the word {word!r}"


def test_names_are_those_that_a_file_defines() -> None:
    text = "A = 1\nB: int = 2\nclass C:\n    D = 3\n    def e(self): f = 4\ndef g(): pass\n"

    assert names_in(ast.parse(text).body) == {"A", "B", "C", "C.D", "C.e", "g"}
