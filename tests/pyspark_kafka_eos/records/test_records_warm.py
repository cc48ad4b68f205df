"""After `warm` no record waits for a compiler, in this process or in the user's next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_kafka_eos

pytestmark = pytest.mark.processes

PACKAGE = Path(next(iter(pyspark_kafka_eos.__path__)))

COUNT = """
from pyspark_kafka_eos.records import decoding, hashing, jit, kernels
from pyspark_kafka_eos.records.warm import warm
directory = warm()
all_kernels = {
    value.compiled for module in (kernels, decoding, hashing) for value in vars(module).values() if isinstance(value, jit.Kernel)
}
print(directory, len(all_kernels), sum(len(each.signatures) == 1 for each in all_kernels),
      sum(sum(each.stats.cache_hits.values()) for each in all_kernels))
"""


# Root may write anywhere unless it gives this up.
AS_A_USER = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(directory)}
    return subprocess.run(
        [*AS_A_USER, sys.executable, *command], env=environ, cwd="/", capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip


def test_every_kernel_is_compiled_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    filled = run(tmp_path, "-m", "pyspark_kafka_eos.records.warm")
    again = run(tmp_path, "-c", COUNT)

    assert filled.returncode == 0, filled.stderr
    directory, count, compiled, from_cache = again.stdout.split()
    assert filled.stdout.strip() == directory and directory.startswith(str(tmp_path))
    assert count == compiled == from_cache and int(count) >= 7


def close(directory: Path) -> None:
    """As in an image whose file system is read-only."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    """A cache that `kafka-eos warm --shared` has filled and that nobody can write to."""
    cache = tmp_path / "cache"
    ended = run(cache, "-m", "pyspark_kafka_eos.cli", "warm", "--shared")
    assert ended.returncode == 0, ended.stderr
    modes = {path.stat().st_mode & 0o777 for path in (cache, *cache.rglob("*"))}
    assert modes == {0o755, 0o644}
    close(cache)
    yield cache
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755)


@pytest.mark.long
def test_a_filled_cache_is_used_where_it_cannot_be_written(filled: Path) -> None:
    directory, count, compiled, from_cache = run(filled, "-c", COUNT).stdout.split()

    assert directory.startswith(str(filled))
    assert count == compiled == from_cache and int(count) >= 7


@pytest.mark.long
def test_a_kernel_that_a_cache_lacks_is_compiled_where_it_cannot_be_added(filled: Path) -> None:
    first = min(filled.rglob("*.nbc"))
    for path in (first.parent, first):
        path.chmod(0o755)
    first.write_bytes(b"")
    close(filled)

    ended = run(filled, "-c", COUNT)

    assert ended.returncode == 0, ended.stderr
    _, count, compiled, from_cache = ended.stdout.split()
    assert count == compiled and int(from_cache) == int(count) - 1


def test_an_empty_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    cache.mkdir(mode=0o555)
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(cache)}

    ended = subprocess.run(
        [*AS_A_USER, sys.executable, "-c", "from pyspark_kafka_eos.records import jit; print(jit.cache_directory())"],
        env=environ | {"XDG_CACHE_HOME": str(home)}, cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.stdout.startswith(str(home)), ended.stderr


def test_without_a_directory_for_the_kernels_the_command_fails_and_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / f"pyspark-kafka-eos-{os.getuid()}").write_text("not a directory")
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path)}
    environ |= {"NUMBA_CACHE_DIR": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}

    ended = subprocess.run(
        [sys.executable, "-m", "pyspark_kafka_eos.records.warm"], env=environ, cwd="/", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "set NUMBA_CACHE_DIR" in ended.stderr
