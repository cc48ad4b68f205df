"""Every place that concludes something from "nothing there" is on docs/design/absences.md, with who may say so.

The search is for what such a conclusion is written with: Kafka's codes and words for what is not there, the client's
error for a topic that does not exist, fates and verdicts, a ledger without a decision, the end of a log, a producer
that a leader does not list. A new place fails this test until its line is written; a place that is gone fails it until
its line is removed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design" / "absences.md"

PACKAGE = ROOT / "connector" / "pyspark_kafka_eos"
ELSEWHERE = ("cli/", "records/", "spark/metrics/")
"""Not clients of a cluster, or what they show decides nothing."""

CODES = {
    "INVALID_PRODUCER_ID_MAPPING", "INVALID_TOPIC_EXCEPTION", "OFFSET_OUT_OF_RANGE", "TRANSACTIONAL_ID_NOT_FOUND",
    "UNKNOWN_PRODUCER_ID", "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION",
}  # fmt: skip
QUESTIONS = {"is_lacking"}
"""Functions that ask an answer for such a code."""
VERDICTS = {("Fate", "GONE"), ("Fate", "LOST"), ("Fate", "NO_MARKER"), ("Outcome", "GONE")}
ANSWERS = {"high_watermark", "out_of_range"}
OF_THE_LEDGER = {"newest", "open"}
BY_PLACE = {"ends", "begins", "states", "views"}

ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$")


def test_every_conclusion_from_an_absence_is_listed_with_its_witness() -> None:
    listed = rows(PAGE.read_text(encoding="utf-8"))
    found = {place: marks for path in modules() for place, marks in conclusions(path)}

    unlisted = {place: sorted(marks) for place, marks in found.items() if place not in listed}
    assert not unlisted, f"say on {PAGE.name} who may say so: {unlisted}"
    vanished = sorted(set(listed) - set(found))
    assert not vanished, f"nothing is concluded from an absence there any more: {vanished}"


def test_every_line_of_the_page_says_what_follows_and_who_says_so() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) > 50
    assert [line for line in lines if not ROW.match(line)] == []
    assert len(rows("\n".join(lines))) == len(lines), "a place is listed twice"


def test_the_search_finds_each_kind_and_nothing_else(tmp_path: Path) -> None:
    """A search that finds nothing would keep the page in order for ever."""
    module = tmp_path / "module.py"
    module.write_text(
        "def code(answer):\n    return answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION\n"
        "def word(view):\n    return view.state == 'NotFound'\n"
        "def caught(cluster):\n    try:\n        cluster.topic('t')\n    except (BrokerUnavailable, UnknownTopic):\n        pass\n"
        "def suppressed(cluster):\n    with suppress(UnknownTopic):\n        cluster.topic('t')\n"
        "class Reader:\n    def ledger(self, view):\n        return view.newest is None\n"
        "def end(read, offset):\n    return read.high_watermark <= offset\n"
        "def producer(states, where):\n    return states.get(where)\n"
        "def fate(each):\n    return each is Fate.LOST\n"
        "def nothing(found, where):\n    return found.get(where) is None and found.newest and Code.NONE\n"
        "def asked(answer):\n    return any(map(is_lacking, answer.topics))\n"
        "def raises():\n    raise UnknownTopic('t')\n",
        encoding="utf-8",
    )

    found = dict(conclusions(module))

    assert [place.partition(":")[2] for place in found] == [
        "code", "word", "caught", "suppressed", "Reader.ledger", "end", "producer", "fate", "asked",
    ]  # fmt: skip


def rows(page: str) -> dict[str, tuple[str, ...]]:
    """Place -> what is not there, what follows, who says so."""
    found = (ROW.match(line) for line in page.splitlines())
    return {row[1]: (row[2], row[3], row[4]) for row in found if row}


def modules() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.relative_to(PACKAGE).as_posix().startswith(ELSEWHERE):
            yield path


def conclusions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """(module:function, what it is recognised by) of each function that concludes from an absence."""
    inside = path.is_relative_to(ROOT)
    module = path.relative_to(PACKAGE).with_suffix("").as_posix() if inside else path.stem
    for name, function in _functions(ast.parse(path.read_text(encoding="utf-8")), ""):
        marks = {mark for node in ast.walk(function) for mark in _marks(node)}
        if inside and not module.startswith(("commit/", "operations/")):
            # Only these read the ledger.
            marks.discard("no decision")
        if marks:
            yield f"{module}:{name}", marks


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child


def _marks(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        owner = next(iter(_names(node.value)), "")
        if (owner == "Code" and node.attr in CODES) or (owner, node.attr) in VERDICTS:
            yield f"{owner}.{node.attr}"
        if node.attr in ANSWERS and isinstance(node.ctx, ast.Load):
            yield node.attr
    elif isinstance(node, ast.Name) and node.id in QUESTIONS:
        yield node.id
    elif isinstance(node, ast.Constant) and node.value == "NotFound":
        yield "NotFound"
    elif isinstance(node, ast.ExceptHandler) and "UnknownTopic" in _names(node.type):
        yield "except UnknownTopic"
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        to = node.comparators[0]
        if isinstance(to, ast.Constant) and to.value is None and _names(node.left) & OF_THE_LEDGER:
            yield "no decision"
    elif isinstance(node, ast.Call):
        if _names(node.func) == {"suppress"} and any("UnknownTopic" in _names(each) for each in node.args):
            yield "suppress(UnknownTopic)"
        got = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "get" else None
        if isinstance(got, ast.Name) and got.id in BY_PLACE:
            yield f"{got.id}.get"


def _names(node: ast.AST | None) -> set[str]:
    if isinstance(node, ast.Tuple):
        return {name for each in node.elts for name in _names(each)}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    return {node.id} if isinstance(node, ast.Name) else set()
