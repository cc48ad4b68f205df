"""docs/design/soak.md: a section for each broker and form, which a run of that broker replaces.

Owns: the page's form.
Does not know: what a section says.
"""

from __future__ import annotations

HEAD = ["# Soak", "", "Written by `python -m tests.soak --write` (`make soak`).", ""]


def with_section(page: str, section: list[str]) -> str:
    """The page with this section, whose first line is its heading, in the place of the one with the same heading, or at the end."""
    sections: list[list[str]] = []
    for line in page.splitlines():
        if line.startswith("## "):
            sections.append([])
        if sections:
            sections[-1].append(line)
    headings = [each[0] for each in sections]
    if section[0] in headings:
        sections[headings.index(section[0])] = section
    else:
        sections.append(section)
    lines = [*HEAD, *(line for each in sections for line in [*_stripped(each), ""])]
    return "\n".join(lines)


def _stripped(section: list[str]) -> list[str]:
    while section and not section[-1]:
        section = section[:-1]
    return section
