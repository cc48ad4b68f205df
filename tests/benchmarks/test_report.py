"""What the benchmark says of its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.children import Child, ChildFailed, cpu_seconds
from benchmarks.report import TLS_TARGET, Run, broker_ratios, ratios, source_ratios, summarise, tls_ratios


def _runs(variant: str, seconds: list[float], cpu_seconds: float = 1.0) -> list[Run]:
    return [Run(variant, 100, number, 1_000_000, each, cpu_seconds) for number, each in enumerate(seconds, 1)]


def test_a_summary_is_the_median_of_the_rounds_with_the_slowest_and_fastest_beside_it() -> None:
    (summary,) = summarise(_runs("exactly-once", [2.0, 1.0, 4.0]))
    assert summary.records_per_s == 500_000
    assert (summary.slowest_records_per_s, summary.fastest_records_per_s) == (250_000, 1_000_000)
    assert summary.megabytes_per_s == 50.0
    assert summary.runs == 3


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, "reached"), (1.4, "MISSED")])
def test_exactly_once_is_compared_with_the_better_of_the_two_jvm_sinks(seconds: float, verdict: str) -> None:
    runs = _runs("default", [4.0]) + _runs("tuned", [2.0]) + _runs("ours", [seconds])
    found = ratios(summarise(runs), ("default", "tuned"), "ours", "limit", "newest")
    assert found[0].value == pytest.approx(2.0 / seconds, rel=1e-3)
    assert verdict in found[0].verdict


def test_scope_batch_is_compared_with_scope_task_and_with_the_better_jvm_sink() -> None:
    runs = _runs("default", [4.0]) + _runs("tuned", [2.0]) + _runs("ours", [1.0]) + _runs("ours-batch", [1.6])
    found = ratios(summarise(runs), ("default", "tuned"), "ours", "limit", "newest")
    assert [(each.name, each.verdict.split()[-1]) for each in found[:2]] == [
        ("scope=batch / scope=task", "reached"),
        ("scope=batch / the better JVM sink", "reached"),
    ]
    assert [round(each.value, 3) for each in found[:2]] == [0.625, 1.25]


def test_a_target_is_not_judged_where_its_peer_was_not_run() -> None:
    assert ratios(summarise(_runs("ours", [1.0])), ("default", "tuned"), "ours", "limit", "newest") == []


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, "reached"), (1.4, "MISSED")])
def test_our_source_is_compared_with_the_jvm_source_beside_it(seconds: float, verdict: str) -> None:
    runs = _runs("theirs", [2.0], 3.0) + _runs("ours", [seconds], 1.5)
    speed, cpu = source_ratios(summarise(runs), "theirs", ("ours", "ours-newest"))
    assert speed.value == pytest.approx(2.0 / seconds, rel=1e-3)
    assert verdict in speed.verdict
    assert (cpu.value, cpu.target) == (2.0, None)


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, "reached"), (1.4, "MISSED")])
def test_the_embedded_broker_is_compared_with_kafka_where_both_were_run(seconds: float, verdict: str) -> None:
    both = summarise(_runs("kafka", [2.0]) + _runs("embedded", [seconds]))
    (ratio,) = broker_ratios(both, "kafka", "embedded")
    assert ratio.value == pytest.approx(2.0 / seconds, rel=1e-3)
    assert verdict in ratio.verdict
    assert broker_ratios(both[1:], "kafka", "embedded") == []


def test_cpu_time_of_a_process_counts_children_that_have_ended() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert cpu_seconds(os.getpid()) - before >= 0.25


def test_a_child_that_fails_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with (
        Child(sys.executable, "benchmarks.no_such_module", log=tmp_path / "log") as child,
        pytest.raises(ChildFailed, match="no_such_module"),
    ):
        child.ask("anything")


def test_tls_is_compared_with_the_same_way_without_it_and_with_the_jvm_sink_with_it() -> None:
    runs = [
        Run("jvm", 1024, 1, records=100, seconds=1.0, cpu_seconds=1),
        Run("jvm-tls", 1024, 1, records=50, seconds=1.0, cpu_seconds=1),
        Run("ours", 1024, 1, records=200, seconds=1.0, cpu_seconds=1),
        Run("ours-tls", 1024, 1, records=150, seconds=1.0, cpu_seconds=1),
        # Its way without TLS was not run.
        Run("other-tls", 1024, 1, records=150, seconds=1.0, cpu_seconds=1),
    ]

    found = {each.name: (each.value, each.target) for each in tls_ratios(summarise(runs), "jvm")}

    assert found == {
        "jvm: with TLS / without": (0.5, None),
        "ours: with TLS / without": (0.75, TLS_TARGET),
        "TLS: ours / the JVM sink": (3.0, None),
    }
