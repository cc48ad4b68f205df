"""docs/comparison.md says nothing of another product without a source; docs/faq.md answers nothing without the page
that has the whole answer.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
COMPARISON = (DOCS / "comparison.md").read_text(encoding="utf-8")
CLAIMS, _, SOURCES = COMPARISON.partition("\n## Sources\n")
PRIMARY = (
    "spark.apache.org", "nightlies.apache.org", "github.com/apache/", "cwiki.apache.org", "kafka.apache.org", "issues.apache.org",
)  # fmt: skip
"""Where a project speaks for itself."""


def sources() -> dict[str, tuple[str, str]]:
    """Key -> what the source is, what it says."""
    rows = re.findall(r"^\| ([A-Z]\d) \| (.+?) \| (.+) \|$", SOURCES, re.MULTILINE)
    return {key: (source, says) for key, source, says in rows}


def test_every_source_is_used_and_every_use_has_its_source() -> None:
    used = set(re.findall(r"\[([A-Z]\d)\](?!\()", CLAIMS))
    assert used == set(sources())


def test_a_source_is_the_projects_own_and_says_where_in_it() -> None:
    for key, (source, says) in sources().items():
        for host in re.findall(r"\]\(https://([^)]+)\)", source):
            assert host.startswith(PRIMARY), key
        assert "](https://" in source or re.search(r"class |the same|KIP-|KAFKA-", source), key
        assert len(says) > 10


def test_every_cell_on_another_product_has_its_source_and_every_cell_on_this_one_its_page() -> None:
    table = CLAIMS.partition("## In one table\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line.startswith("| ")
    ][1:]
    assert len(rows) >= 9
    # What follows from the row's name alone, or from the cell before.
    plain = {"none", "nothing", "in Spark's checkpoint", "everything that Spark reads", "everything that Flink reads", "in Flink's checkpoint"}  # fmt: skip
    for name, ours, *others in rows:
        assert len(others) == 4, name
        for cell in others:
            assert re.search(r"\[[A-Z]\d\]", cell) or cell in plain, (name, cell)
        assert "](" in ours or ours in {
            "a micro-batch",
            "in Spark's checkpoint",
            "when the micro-batch is committed",
            "everything that Spark reads; Python",
        }, (name, ours)


def test_every_question_is_one_and_its_answer_names_a_page() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    answers = dict(re.findall(r"^### (.+)\n\n((?:.+\n|\n(?!#))+)", text, re.MULTILINE))
    assert len(answers) == text.count("\n### ") >= 20
    for question, answer in answers.items():
        assert question.endswith(("?", "`")), question
        assert re.search(r"\]\([a-z-]+\.md(?:#[\w-]+)?\)", answer), question
