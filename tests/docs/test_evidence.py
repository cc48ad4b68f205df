"""The pages of evidence/: each says the day of its run, and begins as the run would write it today."""

from __future__ import annotations

import re

import pytest

from embedded_kafka.real import NEWEST_KAFKA
from tests.authorization.page import HEAD as RIGHTS
from tests.changes.report import INTRODUCTION as CHANGES
from tests.docs.figures import ROOT
from tests.fuzz.page import HEAD as FUZZ
from tests.mistakes.page import HEAD as MISTAKES
from tests.rules.report import HEAD as RULES
from tests.simulation.lies import INTRODUCTION as LIES
from tests.simulation.witnesses import INTRODUCTION as WITNESSES
from tests.support.made import DAY, today

EVIDENCE = ROOT / "evidence"
PAGES = sorted(path.name for path in EVIDENCE.glob("*.md"))

OF_NO_DAY = {"README.md", "planted-bugs.md"}
"""The list of the pages; and what is written from seeds that stand in the code, which tests play."""

HEADS = {
    "changes.md": CHANGES, "fuzz.md": FUZZ, "lies.md": LIES, "mistakes.md": MISTAKES, "rights.md": RIGHTS, "rules-breaches.md": RULES, "witnesses.md": WITNESSES,
}  # fmt: skip


def test_a_day_is_written_as_the_pages_are_read() -> None:
    assert DAY.fullmatch(today())


@pytest.mark.parametrize("name", sorted(set(PAGES) - OF_NO_DAY))
def test_a_page_says_the_day_of_its_run(name: str) -> None:
    assert DAY.search((EVIDENCE / name).read_text())


@pytest.mark.parametrize("name", HEADS)
def test_a_page_begins_as_a_run_writes_it(name: str) -> None:
    """So a word or a link that somebody changes on the page alone does not come back with the next run."""
    text = (EVIDENCE / name).read_text()
    (day, *_) = DAY.findall(text)

    assert text.startswith(HEADS[name].format(day=day, version=NEWEST_KAFKA))


def test_every_page_is_in_the_list() -> None:
    text = (EVIDENCE / "README.md").read_text()

    assert [name for name in PAGES if name != "README.md" and f"[{name}]({name})" not in text] == []


def recipes() -> dict[str, str]:
    """Target of the Makefile -> the commands that it runs."""
    found = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return dict(found)


def modules(text: str) -> list[str]:
    """The modules that are run, by `python -m`."""
    return re.findall(r"python -m (tests(?:\.[a-z_]+)+)", text)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_on_a_page_is_there(name: str) -> None:
    text = (EVIDENCE / name).read_text()

    assert set(re.findall(r"`make\s+([a-z-]+)", text)) <= recipes().keys()
    for module in modules(text):
        file = ROOT.joinpath(*module.split("."))
        assert file.with_suffix(".py").is_file() or (file / "__main__.py").is_file(), module


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"README.md"}))
def test_a_page_says_what_makes_it_as_the_list_does(name: str) -> None:
    listed = re.search(rf"^\| \[{name}\].* `make ([a-z-]+)` \|$", (EVIDENCE / "README.md").read_text(), re.MULTILINE)
    assert listed is not None
    text = (EVIDENCE / name).read_text()

    assert re.search(rf"`make\s+{listed[1]}`", text) or set(modules(text)) & set(modules(recipes()[listed[1]]))
