"""After `warm` no record waits for a compiler, in this process or in the user's next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import connector

pytestmark = pytest.mark.processes

PACKAGE = Path(next(iter(connector.__path__)))

COUNT = """
from connector.records import decoding, kernels
from connector.records.warm import warm
directory = warm()
all_kernels = {
    value for module in (kernels, decoding) for value in vars(module).values()
    # A helper is compiled as a part of those that call it, and has no cache of its own.
    if hasattr(value, "signatures") and type(value._cache).__name__ != "NullCache"
}
print(directory, len(all_kernels), sum(len(each.signatures) == 1 for each in all_kernels),
      sum(sum(each.stats.cache_hits.values()) for each in all_kernels))
"""


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(directory)}
    return subprocess.run(
        [sys.executable, *command], env=environ, cwd="/", capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip


def test_every_kernel_is_compiled_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    filled = run(tmp_path, "-m", "connector.records.warm")
    again = run(tmp_path, "-c", COUNT)

    assert filled.returncode == 0, filled.stderr
    directory, count, compiled, from_cache = again.stdout.split()
    assert filled.stdout.strip() == directory and directory.startswith(str(tmp_path))
    assert count == compiled == from_cache and int(count) >= 6


def test_without_a_directory_for_the_kernels_the_command_fails_and_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / f"pyspark-kafka-eos-{os.getuid()}").write_text("not a directory")
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path)}
    environ |= {"NUMBA_CACHE_DIR": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}

    ended = subprocess.run(
        [sys.executable, "-m", "connector.records.warm"], env=environ, cwd="/", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "set NUMBA_CACHE_DIR" in ended.stderr
