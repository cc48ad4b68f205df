"""The description of the package on an index page, made of README.md.

    python -m tools.index_page      writes docs/index-page.md

Owns: what becomes of links and pictures where there are no files beside the text.
Does not know: what the README says.
Invariants:
- The page has no relative link, no picture and no diagram: an index shows none of them.
- Every other line is the README's.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "index-page.md"

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


def main() -> None:
    """Write the page."""
    PAGE.write_text(index_page(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
