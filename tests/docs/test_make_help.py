"""`make help` shows every target in one of its groups, and CI and CONTRIBUTING call targets that are there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^\.PHONY: ([a-z-]+)$", MAKEFILE, re.MULTILINE)


def test_every_target_is_shown_once_under_a_group() -> None:
    # Of a make that runs the tests, a make within it would inherit flags and say which directory it enters.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(["make", "help"], cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
    groups = re.findall(r"^GROUPS := (.*)$", MAKEFILE, re.MULTILINE)[0].split(",")

    assert sorted(re.findall(r"^  make (\S+) +\S", shown, re.MULTILINE)) == sorted(TARGETS)
    assert [line for line in shown.splitlines() if not line.startswith(" ")] == groups


def test_ci_and_the_page_for_contributors_call_targets_that_are_there() -> None:
    in_ci = re.findall(r"^for target in (.*); do$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)[0]
    called = re.findall(r"[a-z-]+(?= |\"|$)", re.sub(r"\"([a-z-]+) [^\"]*\"", r"\1", in_ci))
    page = re.findall(r"^    make ([a-z-]+) ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    assert len(called) >= 5 and len(page) >= 5
    assert set(called) | set(page) <= set(TARGETS)
