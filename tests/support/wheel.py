"""The built wheel, environments that have it, and tests against it.

`python -m tests.support.wheel -m versions tests/pyspark_kafka_eos/spark` hands its arguments to pytest.

Owns: an environment with the wheel, a copy of the tests with everything that
they need besides the packages.
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
from collections.abc import Collection, Sequence
from importlib.metadata import distribution
from pathlib import Path

from tests.support.quick_start import CLASSES
from tools.release import built

ROOT = Path(__file__).parents[2]
NOT_SOURCES = (
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info", "artifacts",
)  # fmt: skip
"""What a copy of the repository's files is made without."""

SOURCES = "connector"
OURS = ("pyspark_kafka_eos", "embedded_kafka", "kafka_core", "__editable__", "__pycache__")
"""How the names begin that this project has in an environment."""


def link_packages(site: Path, only: Collection[str] | None = None) -> None:
    """Link the packages of the environment that runs this into a directory, but for this project's own. `only`: the
    names of the distributions whose packages are linked; None for all.
    """
    have = Path(sysconfig.get_path("purelib"))
    names = {file.parts[0] for each in only or () for file in distribution(each).files or () if file.parts[0] != ".."}
    for entry in have.iterdir() if only is None else map(have.joinpath, sorted(names)):
        if not entry.name.startswith(OURS) and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)


def environment(directory: Path, wheel: Path, only: Collection[str] | None = None) -> Path:
    """The Python of a new environment with this wheel and the packages of the environment that runs this.

    `only`: the names of the distributions whose packages it gets; None for all.
    """
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    link_packages(site, only)
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
        kept = Path(sys.prefix, CLASSES)
        if kept.exists():
            (python.parent.parent / kept.name).symlink_to(kept)
        environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        where = "import pyspark_kafka_eos, sys; sys.exit('site-packages' not in pyspark_kafka_eos.__file__)"
        subprocess.run([python, "-c", where], cwd=tests, env=environ, check=True)
        return subprocess.run([python, "-m", "pytest", *arguments], cwd=tests, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
