"""The table of breaches fits docs/rules.md and the code, and what plays it tells a failed test from code that cannot
run.
"""

from __future__ import annotations

import ast
import json

import pytest

from tests.rules.__main__ import chosen
from tests.rules.breaches import BREACHES
from tests.rules.play import Result, Seen, Verdict, read_outcomes
from tests.rules.report import complaints
from tests.rules.table import Breach, Row, row_of, rows
from tests.simulation.planted.table import BUGS
from tests.simulation.witnesses import PLANTED
from tests.support.planting import Planted

SEQUENCES = "pyspark_kafka_eos.client.writing.sequences:on_next"
ROW = Row(
    "section",
    "a rule",
    "000",
    "machines.sequences",
    "`pyspark_kafka_eos/client/writing/test_sequences_rules.py::test_at_most_five`",
)


def test_every_rule_with_a_test_is_broken_and_every_breach_is_of_such_a_rule() -> None:
    all_rows = rows()
    broken = [row_of(breach, all_rows) for breach in BREACHES]

    assert [row.rule for row in all_rows if row.tests and row not in broken] == []
    assert [row.rule for row in broken if not row.tests] == []
    assert len(all_rows) > 70


def test_no_breach_is_there_twice() -> None:
    assert len(set(BREACHES)) == len(BREACHES)
    assert len({(breach.rule, breach.planted.name) for breach in BREACHES}) == len(BREACHES)


EVERY = [*(breach.planted for breach in BREACHES), *BUGS, *PLANTED]


@pytest.mark.parametrize("planted", EVERY, ids=[f"{planted.where}: {planted.name}" for planted in EVERY])
def test_every_planted_change_fits_the_code(planted: Planted) -> None:
    for path, changed in planted.files().items():
        assert changed != path.read_text(encoding="utf-8")
        ast.parse(changed)


# ---- the sample


def test_a_sample_depends_on_the_seed_alone_and_leaves_out_what_has_no_test() -> None:
    all_rows = rows()
    samples = [chosen(all_rows, 10, seed, "") for seed in ("one", "one", "two")]

    assert samples[0] == samples[1] != samples[2]
    assert all(len(set(sample)) == 10 for sample in samples)
    whole = chosen(all_rows, None, "", "")
    assert whole == [row for row in all_rows if row.tests] == chosen(all_rows, 1000, "x", "")


# ---- what is seen


def lines(*entries: dict[str, str]) -> str:
    return "\n".join(json.dumps(entry) for entry in entries)


def ended(name: str, when: str, outcome: str) -> dict[str, str]:
    return {"kind": "test", "name": name, "when": when, "outcome": outcome}


def test_only_a_failure_in_a_tests_body_counts_as_one() -> None:
    seen = read_outcomes(
        lines(
            {"kind": "code", "path": "/copy/connector/pyspark_kafka_eos/__init__.py"},
            ended("passes", "setup", "passed"), ended("passes", "call", "passed"), ended("passes", "teardown", "passed"),
            ended("fails", "setup", "passed"), ended("fails", "call", "failed"),
            ended("has no broker", "setup", "failed"),
            ended("leaves something", "call", "passed"), ended("leaves something", "teardown", "failed"),
            {"kind": "left out", "name": "is for Apache Kafka"},
        ),
        ["passes", "fails", "has no broker", "leaves something", "is for Apache Kafka", "never began"],
    )  # fmt: skip

    assert seen.code == "/copy/connector/pyspark_kafka_eos/__init__.py"
    assert (seen.passed, seen.failed) == ({"passes"}, {"fails"})
    assert seen.broken == {"has no broker", "leaves something", "never began"}
    assert seen.left_out == {"is for Apache Kafka"}


def test_a_test_with_parameters_fails_if_it_fails_for_one_of_them() -> None:
    seen = read_outcomes(lines(ended("it", "call", "passed"), ended("it", "call", "failed")), ["it"])

    assert (seen.passed, seen.failed, seen.broken) == (set(), {"it"}, set())


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (Seen(failed=frozenset(["a"])), Verdict.CAUGHT),
        (Seen(failed=frozenset(["a"]), broken=frozenset(["b"])), Verdict.CAUGHT),
        (Seen(failed=frozenset(["a"]), timed_out=True), Verdict.CAUGHT),
        (Seen(passed=frozenset(["a"])), Verdict.SURVIVED),
        (Seen(broken=frozenset(["a"])), Verdict.UNUSABLE),
        (Seen(passed=frozenset(["a"]), timed_out=True), Verdict.UNUSABLE),
    ],
)
def test_a_breach_is_caught_by_a_failed_test_and_by_nothing_else(seen: Seen, verdict: Verdict) -> None:
    assert Result(Breach("a rule", Planted("something", SEQUENCES, "", "")), ROW, seen).verdict is verdict


def test_what_is_not_pinned_is_said() -> None:
    breach = Breach("a rule", Planted("something", SEQUENCES, "", ""))
    (name,) = ROW.tests

    assert complaints([Result(breach, ROW, Seen(failed=frozenset([name])))], [ROW]) == []
    assert len(complaints([Result(breach, ROW, Seen(passed=frozenset([name])))], [ROW])) == 2
    assert complaints([], [ROW]) == ["never played: a rule"]
