"""What the tests of all clusters share: the wheel, the packed environment, the tables that a run makes.

Owns: making each once; gathering the outcomes for docs/deploying.md.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.clusters import table
from tests.clusters.packed import pack
from tests.packaging.conftest import sources, wheel
from tests.support.made import today

__all__ = ["packed", "sources", "wheel"]

_OUTCOMES = pytest.StashKey[dict[str, str]]()
_SIZES = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-page`, only where this directory is named on the command line."""
    parser.addoption("--write-page", action="store_true", help="write the tables of docs/deploying.md")


def pytest_configure(config: pytest.Config) -> None:
    """A place for what this run sees."""
    config.stash[_OUTCOMES], config.stash[_SIZES] = {}, {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a test of this directory ended, and the sizes that it recorded."""
    report = yield
    name = f"{item.path.name}::{item.name}"
    outcomes = item.config.stash.get(_OUTCOMES, {})
    if name in table.LINES and (report.when == "call" or not report.passed):
        took = f"{report.duration:.0f} s, pyspark {version('pyspark')}, Python {platform.python_version()}, {today()}"
        outcomes[name] = took if report.passed else report.outcome
    item.config.stash.get(_SIZES, {}).update(
        {key: float(value) for key, value in report.user_properties if key in table.SIZES}
    )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the tables, where that was asked for."""
    if session.config.getoption("--write-page", default=False):
        table.write(session.config.stash[_OUTCOMES], session.config.stash[_SIZES])


@pytest.fixture(scope="session")
def packed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the page's commands have packed the environment."""
    directory = tmp_path_factory.mktemp("packed")
    pack(directory, wheel)
    return directory
