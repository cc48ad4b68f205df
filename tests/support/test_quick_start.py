"""What tests keep of Spark, so that it starts quickly, changes nothing but that."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.quick_start import keep_modules


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "spark.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("spark/__init__.py", "")
        made.writestr("spark/worker.py", "def work():\n    raise ValueError('said')\n")
        made.writestr("spark/tests/test_worker.py", "1 is 1\n")
        made.writestr("spark/data.txt", "data")
    return path


def test_modules_are_imported_compiled_and_keep_their_sources(archive: Path, tmp_path: Path) -> None:
    keep_modules(archive, tmp_path / "work")

    asked = "import inspect, spark.worker as w; print(w.__file__); print(inspect.getsource(w).splitlines()[1].strip()); w.work()"
    found = subprocess.run(
        [sys.executable, "-c", asked],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.stdout.splitlines() == [f"{archive}/spark/worker.pyc", "raise ValueError('said')"], (
        found.stderr
    )
    # A traceback names the source in the archive.
    assert f'File "{archive}/spark/worker.py", line 2, in work' in found.stderr


def test_all_else_is_as_it_was_and_a_second_time_changes_nothing(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as before:
        contents = {name: before.read(name) for name in before.namelist()}

    keep_modules(archive, tmp_path / "work")

    with zipfile.ZipFile(archive) as after:
        added = sorted(set(after.namelist()) - set(contents))
        assert {name: after.read(name) for name in contents} == contents
    assert added == ["spark/__init__.pyc", "spark/worker.pyc"]
    written = archive.stat().st_ino
    keep_modules(archive, tmp_path / "again")
    assert archive.stat().st_ino == written
