"""Every command of `kafka-eos` that a page prints is one that the command line takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.commands import commands_on, refusal

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "design" / "file-map.md"
"""Of docstrings, which may name several commands at once."""
PAGES = [
    ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "connector" / "embedded_kafka" / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page != MADE),
    *sorted((ROOT / "evidence").glob("*.md")),
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_is_taken_by_the_command_line(page: Path) -> None:
    refused = {
        command: why
        for command in commands_on(page.read_text(encoding="utf-8"))
        if (why := refusal(command)) is not None
    }
    assert refused == {}


def test_the_pages_have_many_commands() -> None:
    assert sum(len(commands_on(page.read_text(encoding="utf-8"))) for page in PAGES) > 50


def test_commands_are_found_in_spans_blocks_and_indented_lines_without_the_rest_of_the_shell() -> None:
    text = (
        "Type `kafka-eos verify P -n 5`; `other` and kafka-eos in a sentence are none.\n\n"
        "    A=b kafka-eos ledger P   # a comment\n\n```sh\nkafka-eos broker &\nkafka-eos migrate-options < file\n```\n"
    )
    assert commands_on(text) == [
        "kafka-eos verify P -n 5", "kafka-eos broker", "kafka-eos migrate-options", "A=b kafka-eos ledger P",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "kafka-eos verfy P",
        "kafka-eos verify P --lasst 3",
        "kafka-eos verify P -n none",
        "kafka-eos verify P Q",
        "kafka-eos transactions commit P --force",
        "kafka-eos transactions end P",
        "kafka-eos topic create --partitions 3",
        "kafka-eos --nothing",
        "kafka-eos broker --prot 9092",
        "kafka-eos job begin",
        "kafka-eos job produce --config x.yaml",
        "kafka-eos job init everything",
        "kafka-eos warm --sharde",
    ],
)
def test_a_command_that_does_not_exist_is_refused(command: str) -> None:
    assert refusal(command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "kafka-eos", "kafka-eos transactions", "kafka-eos topic create", "kafka-eos ledger [PIPELINE]",
        "kafka-eos doctor -c job.yaml", "kafka-eos broker --port 0 --set num.partitions=3", "kafka-eos job produce",
        "kafka-eos job init transform", "KAFKA_BOOTSTRAP_SERVERS=b:9092 kafka-eos verify P --json",
    ],
)  # fmt: skip
def test_a_command_that_exists_is_taken(command: str) -> None:
    assert refusal(command) is None
