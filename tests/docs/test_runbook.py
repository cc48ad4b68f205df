"""docs/runbook.md has an entry for every alert and every error that a user can meet, and each entry says what the code
says.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import commands_on
from tests.docs.messages import CLASSES, VALUE, raised, texts
from tests.docs.printed import current, pieces, stable, stories

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "runbook.md"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "docs" / "prometheus-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
BASES = {"ExactlyOnceError", "UserError", "NoProducerIds"}
"""Classes to catch several errors by; the code makes none of them."""

PARTS = ("*Who acts*: ", "*Means*: ", "*Run*: ", "*Prints*:\n\n> ")


def entries() -> dict[str, str]:
    """Title -> text of the entry."""
    pieces = re.split(r"^(?:### |## .*\n)(?:(\w+)\n)?", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: text for title, text in zip(pieces[1::2], pieces[2::2], strict=True) if title}


ENTRIES = entries()
EVERY_ENTRY = pytest.mark.parametrize("title", ENTRIES)


def quotes(entry: str) -> list[str]:
    """What the entry says that is printed."""
    return re.findall(r"^> (.+)$", entry.partition("*Prints*:")[2], re.MULTILINE)


def in_code(name: str, quote: str) -> bool:
    """Whether the class is made with a text that contains the quote; of a class whose texts are put together elsewhere,
    whether any text of the code contains it."""
    own = raised().get(name, frozenset())
    assembled = any(text == VALUE for text in own)
    return any(quote in text for text in own) or (assembled and any(quote in text for text in texts()))


def test_every_alert_and_every_class_of_error_has_its_entry_and_nothing_else_has_one() -> None:
    assert set(ENTRIES) == {*ALERTS, *(set(CLASSES) - BASES)}


def test_the_classes_without_an_entry_are_never_raised() -> None:
    assert BASES & set(raised()) == set()


@EVERY_ENTRY
def test_an_entry_has_its_four_parts_in_their_order_and_a_command(title: str) -> None:
    at = [ENTRIES[title].find(part) for part in PARTS]
    assert -1 not in at and at == sorted(at)
    assert quotes(ENTRIES[title])
    assert commands_on(ENTRIES[title])


@pytest.mark.parametrize("title", sorted(set(CLASSES) - BASES))
def test_the_entry_of_a_class_names_who_acts_as_the_class_does(title: str) -> None:
    assert f"*Who acts*: {CLASSES[title].who_acts}." in ENTRIES[title]


@pytest.mark.parametrize("title", sorted(set(CLASSES) - BASES))
def test_what_an_error_prints_is_a_text_of_the_code(title: str) -> None:
    assert [quote for quote in quotes(ENTRIES[title]) if not in_code(title, quote)] == []


@pytest.mark.parametrize("title", ALERTS)
def test_the_entry_of_an_alert_has_its_severity_its_text_and_its_classes(title: str) -> None:
    rule, entry = ALERTS[title], ENTRIES[title]
    asked = re.search(r'error=~"([^"]+)"', rule["expr"])

    assert f"*Severity*: {rule['labels']['severity']}." in entry
    assert quotes(entry) == [re.sub(r"\{\{.*?\}\}", VALUE, rule["annotations"]["summary"])]
    assert re.findall(r"\[`(\w+)`\]\(#\w+\)", entry) == (asked[1].split("|") if asked else [])


def test_a_quote_that_the_code_does_not_have_is_seen() -> None:
    assert in_code("DataLoss", "and this batch has to read them; nothing was skipped")
    assert not in_code("DataLoss", "and this batch has to read them; all was skipped")
    assert not in_code("UnknownTopic", "and this batch has to read them; nothing was skipped")


@pytest.mark.kafka
@pytest.mark.embedded
def test_what_the_commands_print_after_a_kill_is_what_the_page_shows() -> None:
    page = current()
    for piece in pieces(stories()):
        assert stable(piece) in stable(page), "run: python -m tests.docs.printed"


def test_only_times_and_numbers_may_differ_from_the_page() -> None:
    assert stable("aborts it in about 599 s (400 behind)") == stable("aborts it in about 12 s (7 behind)")
    assert stable("clean-orders:1  Ongoing") != stable("clean-orders:1  CompleteAbort")
    assert stable("400  same") != stable("400  differs")
    assert stable("$ echo $?\n0") != stable("$ echo $?\n1")
