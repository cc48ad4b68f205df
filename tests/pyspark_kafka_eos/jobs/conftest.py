"""The package as it is handed out: wheel and source distribution, built from a copy of the repository.

Owns: building them once; nothing of a build stays in the repository.
Does not know: what they should have.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOT_SOURCES = (
    ".git",
    ".venv*",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "build",
    "dist",
    "*.egg-info",
    "artifacts",
)

BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2]))
"""


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files."""
    copy = tmp_path_factory.mktemp("sources") / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    return copy


def built(kind: str, sources: Path, directory: Path) -> Path:
    """What the build back end makes of the sources, without anything being fetched."""
    ended = subprocess.run(
        [sys.executable, "-c", BUILD, kind, directory], cwd=sources, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return directory / ended.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, a .tar.gz."""
    return built("sdist", sources, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return built("wheel", sources, tmp_path_factory.mktemp("wheel"))
