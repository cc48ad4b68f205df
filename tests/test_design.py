"""What the design documents say of the code is read from the code."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tools import file_map
from tools.draw_machines import MACHINES, redraw

ROOT = Path(__file__).parent.parent
MACHINES_PAGE = ROOT / "docs" / "design" / "machines.md"
FILE_MAP = ROOT / "docs" / "design" / "file-map.md"
MOST_BYTES = 25_000


def test_the_state_machines_in_the_design_are_those_of_the_code() -> None:
    text = MACHINES_PAGE.read_text(encoding="utf-8")

    assert redraw(text) == text, "run: python -m tools.draw_machines"
    assert all(f"<!-- machine: {name} -->" in text for name in MACHINES)


def test_the_file_map_is_made_of_the_first_lines_of_the_modules() -> None:
    assert FILE_MAP.read_text(encoding="utf-8") == file_map.page(), "run: python -m tools.file_map"


def test_a_module_that_is_new_is_on_the_file_map_under_its_folder(tmp_path: Path) -> None:
    (tmp_path / "connector" / "a" / "b").mkdir(parents=True)
    (tmp_path / "connector" / "a" / "__init__.py").write_text('"""What a is.\n\nMore."""\n')
    (tmp_path / "connector" / "a" / "b" / "__init__.py").write_text('"""What b is."""\n')
    (tmp_path / "connector" / "a" / "b" / "new.py").write_text('"""What is new."""\n')

    rows = [line for line in file_map.page(tmp_path).splitlines() if line.startswith(("#", "|", "What"))]

    assert rows[-6:] == [
        "What a is.",
        "## `connector/a/b/`",
        "What b is.",
        "| module | |",
        "|---|---|",
        "| `new.py` | What is new. |",
    ]


def test_the_design_is_short_enough_to_be_read_at_once() -> None:
    assert len((ROOT / "DESIGN.md").read_bytes()) <= MOST_BYTES


def test_an_executor_imports_neither_the_driver_nor_what_judges_options() -> None:
    heavy = (
        "{'pydantic', 'pyspark_kafka_eos.options', 'pyspark_kafka_eos.commit.run', 'pyspark_kafka_eos.commit.handover'}"
    )
    code = f"import sys, pyspark_kafka_eos.spark.sink.tasks; print(sorted({heavy} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


LONGEST = 500


def test_a_module_can_be_read_at_once() -> None:
    sizes = {path: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "connector").rglob("*.py")}
    assert {path.relative_to(ROOT).as_posix(): size for path, size in sizes.items() if size > LONGEST} == {}


MOST_MODULES = 16
"""Of one folder. The exception is `apis`, which has one module for each of Kafka's APIs."""


def test_a_room_has_few_modules() -> None:
    rooms = Counter(path.parent for path in (ROOT / "connector").rglob("*.py") if path.parent.name != "apis")
    assert {room.relative_to(ROOT).as_posix(): count for room, count in rooms.items() if count > MOST_MODULES} == {}


OF_THE_WHOLE = {
    "authorization", "benchmarks", "changes", "chaos", "cluster", "clusters", "differential", "docs", "formats", "fuzz", "incidents", "matrix", "migration", "mistakes", "notebooks", "packaging", "parity", "rules", "security",
    "simulation", "soak", "support",
}  # fmt: skip
"""Folders of tests that are about the whole product, and `support`, for what several folders import."""

OF_A_PART = {"fetcher", "hostile", "oauth"}
"""Folders within a room's tests that have a subject of their own: `fetcher` is one module of the client's reading."""


def test_the_tests_are_laid_out_as_the_code_is() -> None:
    tests, code = ROOT / "tests", ROOT / "connector"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}
    assert [
        each.as_posix()
        for each in sorted(folders)
        if each.parts[0] not in OF_THE_WHOLE and not (code / each).is_dir() and each.name not in OF_A_PART
    ] == []


def test_tests_are_imported_by_their_full_names() -> None:
    changing = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "sys.path.insert(0, str(Path(__file__)" in path.read_text(encoding="utf-8") and path != Path(__file__)
    ]
    assert changing == []
