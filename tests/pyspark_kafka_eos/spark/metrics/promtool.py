"""Prometheus's own judge of alert rules, `promtool test rules`, over metrics that were scraped minute by minute.

Owns: where promtool is found, the form in which it takes series, which alerts it found firing.
Does not know: what the alerts are about.
Invariants: the rules are those of the documents' file; a series that a scrape lacks is stale from there on, as for
Prometheus.

promtool is the one on the PATH, else the one of Debian's package `prometheus` (Ubuntu's is alike), unpacked into the
user's cache without being installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded_kafka.real.cache import cache_dir, making
from tests.support import debian

RULES = Path(__file__).parents[4] / "docs" / "prometheus-alerts.yaml"
WITHIN_S = 120

Scrape = Mapping[str, float]
"""Series, as PromQL writes one, -> its value."""


@cache
def promtool() -> str:
    """Its path; the test is skipped where there is none and none can be had."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    kept = cache_dir() / "promtool"
    try:
        with making(kept) as unfinished:
            if unfinished is not None:
                _unpack(unfinished)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no promtool on the PATH, and none from Debian's packages: {error!r}")
    return str(kept / "promtool")


def _unpack(into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="promtool-") as name:
        debian.unpack(Path(name), "prometheus")
        shutil.move(Path(name, "usr", "bin", "promtool"), into / "promtool")


def severities() -> dict[str, str]:
    """Every alert of the file, and how bad it is."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}


Expected = Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]
"""Alert -> minute -> what fires then: each with its `exp_labels`, and its `exp_annotations` if those are asked for."""


def judge(scrapes: Sequence[Scrape], expected: Expected, *, annotations: bool = False) -> str:
    """Give promtool a scrape for each minute from 0 on; returns what it objects to, nothing where all is as
    expected.
    """
    tests = [
        {"alertname": alert, "eval_time": f"{minute}m", "exp_alerts": list(alerts)}
        for alert, by_minute in expected.items()
        for minute, alerts in by_minute.items()
    ]
    return _asked(scrapes, {"alert_rule_test": tests}, _rules(annotations))


def evaluate(scrapes: Sequence[Scrape], expression: str, minute: int, expected: Scrape) -> str:
    """The same about an expression: the samples that it has to have at a minute."""
    samples = [{"labels": series, "value": value} for series, value in expected.items()]
    test = {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}
    return _asked(scrapes, {"promql_expr_test": [test]}, _rules(annotations=False))


def _asked(scrapes: Sequence[Scrape], tests: Mapping[str, Any], rules_of_the_test: Any) -> str:
    series = sorted({name for scrape in scrapes for name in scrape})
    values = [{"series": each, "values": _values(scrapes, each)} for each in series]
    test = {"interval": "1m", "input_series": values, **tests}
    with tempfile.TemporaryDirectory(prefix="promtool-") as name:
        rules, asked = Path(name, "rules.yaml"), Path(name, "test.yaml")
        rules.write_text(json.dumps(rules_of_the_test), encoding="utf-8")  # JSON is YAML
        whole = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
        asked.write_text(json.dumps(whole), encoding="utf-8")
        answer = subprocess.run(
            [promtool(), "test", "rules", str(asked)],
            capture_output=True, text=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip
    said = answer.stdout + answer.stderr
    assert ("SUCCESS" in said) == (answer.returncode == 0), said
    return "" if answer.returncode == 0 else said


def _rules(annotations: bool) -> Any:
    """The rules; promtool compares the texts of alerts too, which most tests are not about."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            if not annotations:
                del rule["annotations"]
    return rules


def _values(scrapes: Sequence[Scrape], series: str) -> str:
    values, there = [], False
    for scrape in scrapes:
        value = scrape.get(series)
        if value is not None:
            values.append(repr(value).replace("inf", "Inf"))
        else:
            values.append("stale" if there else "_")
        there = value is not None
    return " ".join(values)
