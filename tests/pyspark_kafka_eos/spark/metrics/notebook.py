"""Runs cells in a real Jupyter kernel and tells what they show.

Owns: the kernel, from start to end.
Does not know: what the cells do.
"""

from __future__ import annotations

import asyncio

import nbformat
from nbclient import NotebookClient


def outputs_of(*cells: str) -> list[dict[str, object]]:
    """The outputs of the last cell, after all were run in one kernel; raises what a cell raises."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=240, startup_timeout=240, kernel_name="python3")
    # Its own execute() makes an event loop that it never closes.
    asyncio.run(client.async_execute())
    return list(notebook.cells[-1].outputs)
