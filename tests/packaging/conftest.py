"""The package as it is handed out, built once from a copy of the repository; nothing of a build stays in the
repository.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.wheel import NOT_SOURCES, ROOT
from tools.release import built


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files."""
    copy = tmp_path_factory.mktemp("sources") / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    return copy


@pytest.fixture(scope="session")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, a .tar.gz."""
    return built("sdist", sources, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return built("wheel", sources, tmp_path_factory.mktemp("wheel"))
