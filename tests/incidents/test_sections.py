"""Every incident of the documents is played, and every test of an incident follows a section that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
OPERATING = HERE.parent.parent / "docs" / "operating.md"


def sections() -> set[str]:
    text = OPERATING.read_text(encoding="utf-8")
    _, _, incidents = text.partition("\n## When something went wrong\n")
    return set(re.findall(r"^### (.+)$", incidents.split("\n## ")[0], re.MULTILINE))


def followed() -> dict[str, str | None]:
    """Test -> the section that its docstring names."""
    found: dict[str, str | None] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if path != Path(__file__) and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named = re.match(r'Section "(.+?)"', ast.get_docstring(node) or "")
                found[node.name] = named[1] if named else None
    return found


def test_every_incident_of_the_documents_is_played_and_every_test_follows_one() -> None:
    assert len(sections()) >= 10
    assert set(followed().values()) == sections()
