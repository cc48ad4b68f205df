"""The kernels load everywhere: from a zip archive, without a home, and with a cache that others may write to."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pyspark_kafka_eos

pytestmark = pytest.mark.processes

PACKAGE = Path(next(iter(pyspark_kafka_eos.__path__)))
LOAD = """
import tempfile, os
tempfile.tempdir = os.environ["PLACE_FOR_TEMPORARY_FILES"]
from pyspark_kafka_eos.records import jit
print(jit.cache_directory())
"""
HASH_A_KEY = f"""{LOAD}
import pyarrow as pa
from pyspark_kafka_eos.records import kernels, murmur2_of
jit.load()
assert murmur2_of(pa.array(["21"])).tolist() == [-973932308]
print(sum(kernels.hash_keys.compiled.stats.cache_hits.values()), kernels.__file__)
"""


def _run(script: str, root: Path, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    places = {"PYTHONPATH": str(root), "PLACE_FOR_TEMPORARY_FILES": "/dev/null", **environment}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**kept, **places}, cwd="/", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_kernels_from_a_zip_archive_are_cached_and_found_again(tmp_path: Path) -> None:
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("pyspark_kafka_eos", "kafka_core"):
            for source in (PACKAGE.parent / package).rglob("*.py"):
                packed.write(source, source.relative_to(PACKAGE.parent))
    cold = _run(HASH_A_KEY, archive, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    warm = _run(HASH_A_KEY, archive, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert cold[0].startswith(str(tmp_path / "cache")) and cold[2].startswith(str(archive))
    assert (cold[1], warm[1]) == ("0", "1")


def test_without_any_writable_place_the_kernels_are_compiled_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    places = {"NUMBA_CACHE_DIR": str(blocked), "XDG_CACHE_HOME": str(blocked)}
    assert _run(HASH_A_KEY, PACKAGE.parent, **places)[:2] == ["None", "0"]
    assert os.listdir(tmp_path) == ["file"]


def test_without_a_home_the_temporary_directory_serves(tmp_path: Path) -> None:
    found = _run(LOAD, PACKAGE.parent, XDG_CACHE_HOME="/dev/null", PLACE_FOR_TEMPORARY_FILES=str(tmp_path))
    assert found[0].startswith(str(tmp_path))


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    first = _run(LOAD, PACKAGE.parent, NUMBA_CACHE_DIR=str(tmp_path / "shared"), XDG_CACHE_HOME=str(tmp_path / "own"))
    Path(first[0]).chmod(0o777)
    second = _run(LOAD, PACKAGE.parent, NUMBA_CACHE_DIR=str(tmp_path / "shared"), XDG_CACHE_HOME=str(tmp_path / "own"))
    assert first[0].startswith(str(tmp_path / "shared"))
    assert second[0].startswith(str(tmp_path / "own"))
