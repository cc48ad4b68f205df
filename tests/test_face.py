"""What is public, and that importing it is cheap wherever it is done."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import embedded_kafka
import kafka_core.errors
import pyspark_kafka_eos

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"


def run(code: str, *before: Path) -> subprocess.CompletedProcess[str]:
    """A fresh Python, with these directories before the repository's on its path."""
    path = os.pathsep.join(map(str, (*before, ROOT / "connector")))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=before[0] if before else ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}, timeout=60,
    )  # fmt: skip


def test_every_public_name_is_there() -> None:
    for package in (pyspark_kafka_eos, embedded_kafka):
        assert [name for name in package.__all__ if not hasattr(package, name)] == []
        assert set(package.__all__) <= set(dir(package))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    for package in (pyspark_kafka_eos, embedded_kafka):
        assert not hasattr(package, "no_such_name")


def test_importing_either_package_loads_no_implementation() -> None:
    code = "import sys; before = set(sys.modules); import pyspark_kafka_eos, embedded_kafka; print(sorted(set(sys.modules) - before))"
    loaded = ast.literal_eval(run(code).stdout)
    assert [name for name in loaded if name.startswith(("pyspark", "embedded_kafka", "kafka"))] == [
        "embedded_kafka",
        "kafka_core",
        "kafka_core.lazy",
        "pyspark_kafka_eos",
        "pyspark_kafka_eos.version",
    ]


def test_the_page_of_the_public_names_has_all_of_them_and_no_others() -> None:
    errors = {
        name
        for name, value in vars(kafka_core.errors).items()
        if isinstance(value, type) and issubclass(value, kafka_core.errors.ExactlyOnceError)
    }
    rows = [line.split("|")[1].strip(" `") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted({*pyspark_kafka_eos.__all__, *embedded_kafka.__all__, *errors} - {"DefaultSource"})


@pytest.mark.processes
def test_other_packages_of_common_names_keep_nothing_of_ours_from_being_found(tmp_path: Path) -> None:
    """Modules of a user's own repository come first on the path."""
    for name in ("connector", "model", "client", "broker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "records.py").write_text("")

    found = run(
        "import connector, model, client, records; from pyspark_kafka_eos import DefaultSource, ExactlyOnceWriter; "
        "from embedded_kafka import EmbeddedKafka; print(DefaultSource.name())",
        tmp_path,
    )

    assert (found.stdout.strip(), found.stderr) == ("kafka_eos", "")
