"""What is handed out: the wheel has three packages and nothing else, the source distribution is the whole project."""

from __future__ import annotations

import email
import email.policy
import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pyspark_kafka_eos.version import __version__
from tools.index_page import NOTE, README, index_page
from tools.release import built

ROOT = Path(__file__).parents[2]

# Each build takes seconds.
pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.long]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)


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

    assert {
        "CHANGELOG.md",
        "setup.py",
        "docs/writing.md",
        "conf/produce.yaml",
        "notebooks/quickstart.ipynb",
        "connector/embedded_kafka/README.md",
    } <= names
    assert expected - names == set()


def description(metadata: bytes) -> str:
    """The long description in a wheel's METADATA or a source distribution's PKG-INFO."""
    text = email.message_from_bytes(metadata, policy=email.policy.compat32).get_payload()
    assert isinstance(text, str)
    return text


def test_wheel_and_source_distribution_have_the_readme_as_an_index_can_show_it(wheel: Path, sdist: Path) -> None:
    page = index_page(README.read_text(encoding="utf-8"))
    with zipfile.ZipFile(wheel) as archive:
        of_the_wheel = archive.read(f"pyspark_kafka_eos-{__version__}.dist-info/METADATA")
    with tarfile.open(sdist) as archive:
        info = archive.extractfile(f"pyspark_kafka_eos-{__version__}/PKG-INFO")
        assert info is not None
        of_the_sdist = info.read()

    assert "](" not in page and NOTE in page
    assert description(of_the_wheel).strip() == description(of_the_sdist).strip() == page.strip()


def test_a_wheel_that_is_built_elsewhere_has_the_same_hash(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    """From the source distribution, on another day, by a builder who lets nobody read his files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    for path in unpacked.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
        path.chmod(0o700)

    usual = os.umask(0o077)
    try:
        again = built("wheel", unpacked, tmp_path)
    finally:
        os.umask(usual)

    assert hashlib.sha256(again.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_a_link_becomes_the_name_of_its_file() -> None:
    readme = "# A\n\nsee [it](docs/a.md#x), [docs/a.md](docs/a.md), [web](https://a.b)\n\n![p](x.svg)\n\n## B\n"

    assert index_page(readme) == (f"# A\n\nsee it (`docs/a.md`), `docs/a.md`, [web](https://a.b)\n\n{NOTE}\n\n## B\n")


def test_the_metadata_names_what_the_package_is_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"pyspark_kafka_eos-{__version__}.dist-info/METADATA").decode()

    for line in ("Requires-Python: >=3.10", "License: Apache-2.0", "Classifier: Typing :: Typed"):
        assert line in metadata
