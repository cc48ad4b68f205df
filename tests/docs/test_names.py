"""Every setting, class, test and link that the guides name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.names import (
    ALERT,
    FOREIGN_CLASSES,
    FOREIGN_SETTINGS,
    classes_on,
    known_classes,
    known_settings,
    settings_on,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAMES = (
    "api", "comparison", "databricks", "deploying", "faq", "guarantee", "jobs", "migration", "operating", "options", "reading",
    "recipes", "runbook", "security", "sizing", "upgrading", "versions", "writing",
)  # fmt: skip
"""Not embedded-broker, which names the tests and tools of Kafka that were run on it, nor mending."""
GUIDES = [DOCS / f"{name}.md" for name in NAMES]
EVERY_GUIDE = pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)


def alerts() -> set[str]:
    groups = yaml.safe_load((DOCS / "prometheus-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"]}


@EVERY_GUIDE
def test_every_setting_that_a_guide_names_is_known(page: Path) -> None:
    # Topics and files of the examples.
    examples = {"orders.clean", "clean-orders:driver"}
    assert settings_on(page.read_text(encoding="utf-8")) - known_settings() - examples == set()


@EVERY_GUIDE
def test_every_class_that_a_guide_names_is_known(page: Path) -> None:
    assert classes_on(page.read_text(encoding="utf-8")) - known_classes() - alerts() == set()


@EVERY_GUIDE
def test_every_test_that_a_guide_names_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in named if f"def {name}(" not in code} == set()


@EVERY_GUIDE
def test_a_guide_is_reached_from_the_readme_or_from_another_guide(page: Path) -> None:
    others = [ROOT / "README.md", *(each for each in GUIDES if each != page)]
    assert any(f"{page.name}" in each.read_text(encoding="utf-8") for each in others)
    assert ALERT.match("ExactlyOnceQueryDown")


def test_a_name_of_another_project_is_listed_only_as_long_as_a_guide_uses_it() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in GUIDES)
    used = settings_on(text) | classes_on(text)
    assert {*FOREIGN_SETTINGS, *FOREIGN_CLASSES} - used == set()


def test_a_setting_and_a_class_that_nothing_has_are_seen() -> None:
    text = "Set `kafka.no.such.option=3`, read `kafka.client.id`, open `conf/x.yaml`, catch `NoSuchError`."
    assert settings_on(text) - known_settings() == {"kafka.no.such.option"}
    assert classes_on(text) - known_classes() == {"NoSuchError"}
