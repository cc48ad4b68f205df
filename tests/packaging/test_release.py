"""What is handed out beside the wheel, and what is pinned on the way to it."""

from __future__ import annotations

import hashlib
import json
import re
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.support.wheel import ROOT
from tools.audit import judged
from tools.bill_of_materials import pins, required, written

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PRODUCT = ROOT / "requirements" / "product.txt"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(wheel: Path) -> str:
    return written(wheel, PRODUCT)


@pytest.fixture(scope="module")
def bill(text: str) -> Any:
    return json.loads(text)


def test_the_bill_names_the_wheel_and_every_pin_with_its_hashes(bill: Any, wheel: Path) -> None:
    root = bill["metadata"]["component"]
    assert root["purl"] == f"pkg:pypi/pyspark-kafka-eos@{root['version']}"
    assert root["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert root["licenses"] == [{"license": {"id": "Apache-2.0"}}]

    text = PRODUCT.read_text()
    named = {(each["name"], each["version"]) for each in bill["components"]}
    assert named == set(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    assert sum(len(each["hashes"]) for each in bill["components"]) == text.count("--hash=sha256:")


def test_what_every_install_has_is_told_from_what_an_extra_has(bill: Any) -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    ours = {re.split(r"[ <>=]", line)[0].lower() for line in lines if line and not line.startswith("#")}

    always = {each["name"] for each in bill["components"] if each["scope"] == "required"}

    assert ours < always and {"llvmlite", "pydantic-core"} < always
    assert not always & {"pyspark", "rich", "botocore", "cryptography"}


def test_what_is_installed_here_has_its_licence_and_who_needs_it(bill: Any) -> None:
    here = [each for each in bill["components"] if _installed(each["name"]) == each["version"]]
    assert len(here) > 30 and [each["name"] for each in here if not each.get("licenses")] == []

    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    (numba,) = (each for each in needs if each.startswith("pkg:pypi/numba@"))
    assert any(each.startswith("pkg:pypi/llvmlite@") for each in needs[numba])
    assert numba in needs[bill["metadata"]["component"]["bom-ref"]]


def test_the_same_wheel_has_the_same_bill(text: str, wheel: Path) -> None:
    assert written(wheel, PRODUCT) == text


def _installed(name: str) -> str:
    try:
        return version(name)
    except Exception:  # noqa: BLE001 -- of another system, or Python
        return ""


def test_a_lock_is_read_with_its_markers_and_parents() -> None:
    lock = (
        "a==1 ; python_version < '3.11' \\\n    --hash=sha256:bb \\\n    --hash=sha256:aa\n    # via p (setup.cfg)\n"
        "b-c==2 \\\n    --hash=sha256:cc\n    # via\n    #   a\n    #   p (setup.cfg)\nd==3 \\\n    --hash=sha256:dd\n    # via p (setup.cfg)\n"
    )

    first, second, third = pins(lock)

    assert (first.name, first.version, first.hashes, first.needed_by) == ("a", "1", ["aa", "bb"], {"p"})
    assert "3.11" in first.marker and second.needed_by == {"a", "p"}
    assert required([first, second, third], "p", ["a"]) == {"a", "b-c"}


# ---- pins


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_of_every_lock_has_a_hash(lock: Path) -> None:
    parts = re.split(r"\n(?=\S)", lock.read_text().strip())
    assert [part for part in parts if not part.startswith("#") and "--hash=sha256:" not in part] == []


def test_the_wheel_is_made_by_the_setuptools_of_the_lock() -> None:
    (pinned,) = re.findall(r'"setuptools==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert f"\nsetuptools=={pinned} " in (ROOT / "requirements" / "test.txt").read_text()


def test_nothing_is_installed_without_hashes_by_the_makefile() -> None:
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    of_the_project = "--no-deps --no-build-isolation"
    assert lines and [line for line in lines if "--require-hashes" not in line and of_the_project not in line] == []


def test_what_the_product_requires_is_what_was_tested() -> None:
    tested = set(re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements" / "test.txt").read_text(), re.MULTILINE))
    assert set(re.findall(r"^([\w.-]+==\S+)", PRODUCT.read_text(), re.MULTILINE)) <= tested


# ---- the audit never takes silence for health


WEAK = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}
WELL = {"name": "b", "version": "1", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "acts", "said"),
    [
        ([WELL], False, "no known weakness in 1 pins"),
        ([WELL, WEAK], True, "a 1: CVE-1"),
        ([SKIPPED, WEAK], True, "a 1: CVE-1"),
        ([WELL, SKIPPED], True, "1 of 2 pins were not looked up: c"),
        ([SKIPPED], False, "NOT AUDITED"),
        (None, False, "NOT AUDITED"),
    ],
)
def test_what_is_said_of_a_lock(dependencies: Any, acts: bool, said: str) -> None:
    output = "no network" if dependencies is None else json.dumps({"dependencies": dependencies})

    wrong, line = judged("x.txt", output)

    assert (wrong, said in line) == (acts, True), line
