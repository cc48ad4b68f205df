"""What the design documents say of the code is read from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.draw_machines import MACHINES, redraw

ROOT = Path(__file__).parent.parent
MACHINES_PAGE = ROOT / "docs" / "design" / "machines.md"
FILE_MAP = ROOT / "docs" / "design" / "file-map.md"
MOST_BYTES = 25_000


def test_the_state_machines_in_the_design_are_those_of_the_code() -> None:
    text = MACHINES_PAGE.read_text(encoding="utf-8")

    assert redraw(text) == text, "run: python -m tools.draw_machines"
    assert all(f"<!-- machine: {name} -->" in text for name in MACHINES)


def test_every_module_in_the_file_map_exists_and_every_module_is_in_it() -> None:
    text = FILE_MAP.read_text(encoding="utf-8")

    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "connector").rglob("*.py")
        # Of the APIs the list is in the code: connector/protocol/server.py.
        if path.name != "__init__.py" and path.parent.name != "apis"
    }
    missing = {module for module in modules if Path(module).name not in text}

    assert not missing, f"the file map leaves out {sorted(missing)}"


def test_the_design_is_short_enough_to_be_read_at_once() -> None:
    assert len((ROOT / "DESIGN.md").read_bytes()) <= MOST_BYTES


def test_an_executor_imports_neither_the_driver_nor_what_judges_options() -> None:
    heavy = "{'pydantic', 'connector.options', 'connector.commit.run', 'connector.commit.handover'}"
    code = f"import sys, connector.spark.tasks; print(sorted({heavy} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


LONGEST = 400


def test_a_module_is_short_or_says_why_it_is_not() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "connector").rglob("*.py")
        if path.read_text(encoding="utf-8").count("\n") > LONGEST
    }
    assert [name for name, text in long.items() if f"\nLonger than {LONGEST} lines" not in text] == []
    # A reason that is no longer needed is taken away.
    said = [
        path
        for path in (ROOT / "connector").rglob("*.py")
        if f"\nLonger than {LONGEST} lines" in path.read_text(encoding="utf-8")
    ]
    assert len(said) == len(long)


MOST_MODULES = {"connector": 9, "connector/commit": 15, "connector/slot": 8, "connector/machines": 6}


@pytest.mark.parametrize("folder", MOST_MODULES)
def test_a_room_has_few_modules(folder: str) -> None:
    assert len(list((ROOT / folder).glob("*.py"))) <= MOST_MODULES[folder]


OF_THE_WHOLE = {
    "benchmarks", "changes", "chaos", "clusters", "differential", "docs", "incidents", "jobs", "matrix", "migration", "mistakes", "notebooks", "parity", "rules",
    "security", "simulation", "soak",
}  # fmt: skip
"""Folders of tests that are about more than one package, or about none of `connector`."""


def test_the_tests_are_laid_out_as_the_code_is() -> None:
    tests, code = ROOT / "tests", ROOT / "connector"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}
    strange = [
        folder.as_posix()
        for folder in sorted(folders)
        # A package, or the modules that the folder's name begins.
        if folder.parts[0] not in OF_THE_WHOLE
        and not (code / folder).is_dir()
        and not list((code / folder.parent).glob(f"{folder.name}*.py"))
    ]
    assert strange == []


def test_tests_are_imported_by_their_full_names() -> None:
    changing = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "sys.path.insert(0, str(Path(__file__)" in path.read_text(encoding="utf-8")
        and path != Path(__file__)
    ]
    assert changing == []
