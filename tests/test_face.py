"""What is public, and that both packages hand it on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import connector
import connector.errors
import connector.testing
import pyspark_kafka_eos

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"


def run(code: str, *before: Path) -> subprocess.CompletedProcess[str]:
    """A fresh Python, with these directories before the repository's on its path."""
    path = os.pathsep.join(map(str, (*before, ROOT)))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=before[0] if before else ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}, timeout=60,
    )  # fmt: skip


def test_pyspark_kafka_eos_hands_on_every_public_name() -> None:
    for name in connector.__all__:
        assert getattr(pyspark_kafka_eos, name) is getattr(connector, name)
    assert set(pyspark_kafka_eos.__all__) == {*connector.__all__, "DefaultSource"}
    assert set(pyspark_kafka_eos.__all__) <= set(dir(pyspark_kafka_eos))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    for module in (connector, pyspark_kafka_eos):
        assert not hasattr(module, "no_such_name")


def test_importing_either_package_loads_no_implementation() -> None:
    code = "import sys, connector, pyspark_kafka_eos; print([name for name in sys.modules if name.startswith('connector.')])"
    assert run(code).stdout.strip() == "['connector.version']"


def test_the_page_of_the_public_names_has_all_of_them_and_no_others() -> None:
    errors = {
        name
        for name, value in vars(connector.errors).items()
        if isinstance(value, type) and issubclass(value, connector.errors.ExactlyOnceError)
    }
    rows = [
        line.split("|")[1].strip(" `") for line in PAGE.read_text().splitlines() if line.startswith("| `")
    ]
    assert sorted(rows) == sorted({*connector.__all__, *connector.testing.__all__, *errors})


def test_another_package_named_connector_is_named_with_its_path_by_the_first_use(tmp_path: Path) -> None:
    other = tmp_path / "connector"
    other.mkdir()
    (other / "__init__.py").write_text("")

    imported = run("from pyspark_kafka_eos import ExactlyOnceWriter", tmp_path)
    by_format = run("from pyspark_kafka_eos import DefaultSource; DefaultSource({}).schema()", tmp_path)

    for found in (imported, by_format):
        said = found.stderr.strip().splitlines()[-1]
        assert said.startswith("ImportError: another package named connector was imported from")
        assert str(other) in said and str(ROOT / "pyspark_kafka_eos") in said


def test_another_package_named_connector_keeps_no_other_data_source_from_being_found(tmp_path: Path) -> None:
    (tmp_path / "connector.py").write_text("")

    found = run("import pyspark_kafka_eos; print(pyspark_kafka_eos.DefaultSource.name())", tmp_path)

    assert found.stdout.strip() == "kafka_eos"
