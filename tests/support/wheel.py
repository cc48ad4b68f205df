"""Tests against the built wheel: `python -m tests.support.wheel -m versions tests/pyspark_kafka_eos/spark` hands its arguments to pytest.

Owns: an environment with the wheel, a copy of the tests with everything that they need besides the two packages.
Does not know: what the tests test.
Invariants: the copy has no `connector`, so a module that the wheel lacks is missing; the packages that
the wheel requires are those of the environment that runs this, linked; nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.pyspark_kafka_eos.jobs.conftest import NOT_SOURCES, ROOT, built

SOURCES = "connector"
OURS = ("pyspark_kafka_eos", "embedded_kafka", "kafka_core", "__editable__", "__pycache__")
"""How the names begin that this project has in an environment."""


def environment(directory: Path, wheel: Path) -> Path:
    """The Python of a new environment with this wheel and the packages of the environment that runs this."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS) and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )  # fmt: skip
    return python


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments against the wheel; its exit code."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        sources, tests = Path(scratch, "sources"), Path(scratch, "tests")
        shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        wheel = built("wheel", sources, Path(scratch))
        shutil.copytree(sources, tests, ignore=shutil.ignore_patterns(SOURCES, "build", "*.egg-info"))
        python = environment(Path(scratch, "environment"), wheel)
        # The classes that Spark's Java has loaded before belong to the jars, which are the same.
        kept = Path(sys.prefix, "spark-classes.jsa")
        if kept.exists():
            (python.parent.parent / kept.name).symlink_to(kept)
        environ = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        where = "import pyspark_kafka_eos, sys; sys.exit('site-packages' not in pyspark_kafka_eos.__file__)"
        subprocess.run([python, "-c", where], cwd=tests, env=environ, check=True)
        return subprocess.run(
            [python, "-m", "pytest", *arguments], cwd=tests, env=environ, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
