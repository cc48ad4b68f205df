"""What is handed out: the wheel has two packages and nothing else, the source distribution is the whole project."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pyspark_kafka_eos.version import __version__
from tools.index_page import NOTE, PAGE, README, index_page

ROOT = Path(__file__).parents[2]

# Each build takes seconds.
pytestmark = [pytest.mark.slow, pytest.mark.processes]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_three_packages_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]

    assert {name.partition("/")[0] for name in names} == {"embedded_kafka", "kafka_core", "pyspark_kafka_eos"}
    for name in (
        "embedded_kafka/py.typed",
        "kafka_core/py.typed",
        "pyspark_kafka_eos/py.typed",
        "pyspark_kafka_eos/jobs/templates/transform.yaml",
    ):
        assert name in names
    modules = {path.relative_to(ROOT / "connector").as_posix() for path in (ROOT / "connector").rglob("*.py")}
    assert modules <= set(names)


def test_nothing_is_wrong_with_the_contents_of_the_wheel(wheel: Path) -> None:
    checked = run("check_wheel_contents", wheel)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_index_shows_the_description(wheel: Path, sdist: Path) -> None:
    checked = run("twine", "check", "--strict", wheel, sdist)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_source_distribution_is_the_whole_project(sdist: Path, sources: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()}
    expected = {
        path.relative_to(sources).as_posix()
        for path in sources.rglob("*")
        if path.is_file() and not {"build", "__pycache__"} & set(path.parts) and ".egg-info" not in str(path)
    }

    assert {"CHANGELOG.md", "docs/writing.md", "conf/produce.yaml", "notebooks/quickstart.ipynb"} <= names
    assert expected - names == set()


def test_the_page_of_the_index_is_made_of_the_readme_and_links_to_no_file() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == index_page(README.read_text(encoding="utf-8")), "run: python -m tools.index_page"
    assert "](" not in page and NOTE in page


def test_a_link_becomes_the_name_of_its_file() -> None:
    readme = (
        "# A\n\nsee [it](docs/a.md#x), [docs/a.md](docs/a.md), [web](https://a.b)\n\n![p](x.svg)\n\n## B\n"
    )

    assert index_page(readme) == (
        f"# A\n\nsee it (`docs/a.md`), `docs/a.md`, [web](https://a.b)\n\n{NOTE}\n\n## B\n"
    )


def test_the_metadata_names_what_the_package_is_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"pyspark_kafka_eos-{__version__}.dist-info/METADATA").decode()

    for line in ("Requires-Python: >=3.10", "License: Apache-2.0", "Classifier: Typing :: Typed"):
        assert line in metadata
