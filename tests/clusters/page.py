"""The commands of docs/deploying.md, by the heading under which they stand.

Owns: cutting the page into blocks; which blocks were asked for.
Does not know: what a command does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
NOT_RUN = "(not run)"
"""In a heading: nothing below it is run."""

_PARTS = re.compile(r"^#{2,} ([^\n]+)$|^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str | None = None) -> dict[str, list[str]]:
    """Heading -> its blocks of shell commands. A heading without any is left out."""
    found: dict[str, list[str]] = {}
    heading = ""
    for match in _PARTS.finditer(PAGE.read_text() if text is None else text):
        if match[1] is not None:
            heading = match[1]
        else:
            found.setdefault(heading, []).append(match[2])
    return found


def block(heading: str, changes: Mapping[str, str] | None = None, number: int = 0) -> str:
    """One block, with what differs here put in: a text that the block does not have is an AssertionError."""
    text = blocks()[heading][number]
    for old, new in (changes or {}).items():
        assert old in text, f"{heading}: no {old!r} in\n{text}"
        text = text.replace(old, new)
    return text


def commands(text: str) -> list[str]:
    """The commands of a block, one line each."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
