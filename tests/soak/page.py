"""evidence/soak.md: a section for each broker and form, which a run of that broker replaces.

Owns: the page's form.
Does not know: what a section says.
"""

from __future__ import annotations

HEAD = ["# Soak", "", "Written by `python -m tests.soak --write` (`make soak`).", ""]


def with_section(page: str, section: list[str]) -> str:
    """The page with this section, whose first line is its heading, in the place of the one with the same heading, or at
    the end.
    """
    sections: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("## "):
            current = sections.setdefault(line, [])
        if sections:
            current.append(line)
    sections[section[0]] = section
    texts = ["\n".join(each).rstrip("\n") for each in (HEAD, *sections.values())]
    return "\n\n".join(texts) + "\n"
