"""The description of the package on an index page, made of README.md whenever the package is built (setup.py).

Does not know: what the README says; anything but Python, because an isolated build has nothing else.
Invariants:
- The page has no relative link, no picture and no diagram: an index shows none of them.
- Every other line is the README's.
"""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"

NOTE = "Files that this page names are in the source distribution."

_DIAGRAM = re.compile(r"```mermaid\n.*?```\n\n", re.DOTALL)
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)#\s]*)(?:#[^)\s]*)?\)")
_FIRST_HEADING = re.compile(r"^## ", re.MULTILINE)


def index_page(readme: str) -> str:
    """The page for a README's text."""
    text = _PICTURE.sub("", _DIAGRAM.sub("", readme))
    text = _LINK.sub(_named, text)
    return _FIRST_HEADING.sub(f"{NOTE}\n\n## ", text, count=1)


def _named(link: re.Match[str]) -> str:
    """The link's text, and the file where the text does not name it."""
    text, file = link.groups()
    return f"`{file}`" if text == file else f"{text} (`{file}`)"
