"""The file map of docs/design/file-map.md, made of the first sentence of each package and module.

    python -m tools.file_map

Owns: which folders and modules are shown, and in which order.
Does not know: what a module says of itself.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path("docs") / "design" / "file-map.md"

_HEAD = """\
# File map

Made by `python -m tools.file_map` of the first sentence of each module. `connector/` is the source root: what stands in it is what a wheel has.
"""


def page(root: Path = ROOT) -> str:
    """The whole page."""
    sources = root / "connector"
    rooms = sorted({path.parent for path in sources.rglob("*.py")} - {sources})
    return _HEAD + "".join(_room(root, room) for room in rooms)


def _room(root: Path, room: Path) -> str:
    own = room / "__init__.py"
    lines = [f"\n## `{room.relative_to(root).as_posix()}/`\n\n"]
    if own.is_file():
        lines.append(f"{_first_sentence(own)}\n")
    modules = sorted(path for path in room.glob("*.py") if path != own)
    if modules:
        lines.append("\n| module | |\n|---|---|\n" if own.is_file() else "| module | |\n|---|---|\n")
        lines += [f"| `{path.name}` | {_first_sentence(path)} |\n" for path in modules]
    return "".join(lines)


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.match(r".*?[.?](?= |$)", paragraph)
    return (sentence[0] if sentence else paragraph).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    (ROOT / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
