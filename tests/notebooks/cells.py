"""The quickstart's cells, and the Jupyter notebook made of them.

python -m tests.notebooks.cells      writes notebooks/quickstart.ipynb

Owns: reading Databricks' source format, writing Jupyter's. Both notebooks are the same cells, so that they cannot
differ.
Does not know: what the cells do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SOURCE = NOTEBOOKS / "databricks_quickstart.py"
JUPYTER = NOTEBOOKS / "quickstart.ipynb"

FIRST_LINE = "# Databricks notebook source\n"
BETWEEN = "\n# COMMAND ----------\n"
_MAGIC = "# MAGIC"


@dataclass(frozen=True)
class Cell:
    """One cell: its text, without the marks of the format. `kind`: code, markdown, or pip (a package to install)."""

    kind: str
    text: str


def read_cells(source: str) -> list[Cell]:
    """The cells of a notebook in Databricks' source format; ValueError for what that format does not allow."""
    if not source.startswith(FIRST_LINE):
        raise ValueError("a Databricks notebook begins with the line that says so")
    return [_cell(text.strip("\n")) for text in source.removeprefix(FIRST_LINE).split(BETWEEN)]


def _cell(text: str) -> Cell:
    lines = text.splitlines()
    if not lines or not lines[0].startswith(_MAGIC):
        if _MAGIC in text:
            raise ValueError(f"a cell is either code or magic, not both: {text[:60]!r}")
        return Cell("code", text)
    if not all(line.startswith(_MAGIC) for line in lines):
        raise ValueError(f"a cell is either code or magic, not both: {text[:60]!r}")
    bare = [line.removeprefix(_MAGIC).removeprefix(" ") for line in lines]
    if bare[0] == "%md":
        return Cell("markdown", "\n".join(bare[1:]))
    if bare[0].startswith("%pip ") and len(bare) == 1:
        return Cell("pip", bare[0])
    raise ValueError(f"a magic that Jupyter has no counterpart for: {bare[0]!r}")


def jupyter() -> str:
    """The text of the Jupyter notebook. Without outputs: those are its user's."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(read_cells(SOURCE.read_text())):
        make = nbformat.v4.new_markdown_cell if cell.kind == "markdown" else nbformat.v4.new_code_cell
        # What is installed stays; a new notebook's user takes the comment sign away.
        text = f"# {cell.text}" if cell.kind == "pip" else cell.text
        made = make(text)
        # Random by default, which would change the file whenever it is made.
        made.id = f"cell-{number}"
        notebook.cells.append(made)
    return str(nbformat.writes(notebook)) + "\n"


def main() -> None:
    """Write the Jupyter notebook."""
    JUPYTER.write_text(jupyter())


if __name__ == "__main__":
    main()
