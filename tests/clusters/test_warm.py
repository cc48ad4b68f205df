"""The kernels' cache by docs/deploying.md, from the packed environment."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters.page import block
from tests.pyspark_kafka_eos.records.test_records_warm import COUNT

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


def size_of(directory: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def test_the_cache_that_the_command_fills_has_every_kernel(
    packed: Path, record_property: Callable[[str, object], None]
) -> None:
    unpacked = size_of(packed / "environment")
    text = block("The first record, and the kernels")
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}

    def run(script: str) -> str:
        ended = subprocess.run(
            ["bash", "-euc", script], cwd=packed, env=environ, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    printed = run(text)
    exports = text.splitlines()[0]
    directory, count, compiled, from_cache = run(f"{exports}\nenvironment/bin/python -c '{COUNT}'").split()

    assert printed == directory and directory.startswith(str(packed / "kernels"))
    assert count == compiled == from_cache and int(count) >= 6
    record_property("venv-pack", (packed / "environment.tar.gz").stat().st_size)
    record_property("unpacked", unpacked)
    record_property("kernels", size_of(packed / "kernels"))
