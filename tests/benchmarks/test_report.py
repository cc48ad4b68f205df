"""What the benchmark says of its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.children import JAVA, PYTHON, Child, ChildFailed, Used, between, cpu_seconds, usage
from benchmarks.report import (
    TLS_TARGET,
    Ratio,
    Run,
    all_ratios,
    at_once_ratios,
    broker_ratios,
    codec_ratios,
    composite_ratios,
    sink_ratios,
    source_ratios,
    summarise,
    tls_ratios,
)


def _runs(variant: str, seconds: list[float], cpu_seconds: float = 1.0) -> list[Run]:
    return [Run(variant, 100, number, 1_000_000, each, cpu_seconds) for number, each in enumerate(seconds, 1)]


def test_a_summary_is_the_median_of_the_rounds_with_the_slowest_and_fastest_beside_it() -> None:
    (summary,) = summarise(_runs("exactly-once", [2.0, 1.0, 4.0]))
    assert summary.records_per_s == 500_000
    assert (summary.slowest_records_per_s, summary.fastest_records_per_s) == (250_000, 1_000_000)
    assert summary.megabytes_per_s == 50.0
    assert summary.runs == 3


def _judged(found: list[Ratio]) -> dict[str, tuple[float, str]]:
    return {each.name: (round(each.value, 3), each.verdict.split(": ")[-1]) for each in found}


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, "reached"), (1.1, "MISSED")])
def test_exactly_once_is_compared_with_the_better_of_the_two_jvm_sinks(seconds: float, verdict: str) -> None:
    runs = _runs("jvm-default", [4.0]) + _runs("jvm-tuned", [2.0]) + _runs("exactly-once", [seconds])

    found = _judged(sink_ratios(summarise(runs)))

    assert found["exactly-once / the better JVM sink"] == (round(2.0 / seconds, 3), verdict)


def test_a_cost_is_judged_the_other_way_round() -> None:
    runs = _runs("jvm-default", [2.0], 4.0) + _runs("jvm-tuned", [2.0], 2.0)

    for ours, verdict in ((0.9, "reached"), (1.1, "MISSED")):
        found = _judged(sink_ratios(summarise(runs + _runs("exactly-once", [1.0], ours))))
        assert found["CPU: exactly-once / the better JVM sink"] == (ours / 2, verdict)


def test_scope_batch_is_compared_with_scope_task_on_the_same_pyspark() -> None:
    runs = _runs("exactly-once-newest", [1.0]) + _runs("exactly-once-newest-batch", [1.6])
    runs += _runs("exactly-once", [1.0]) + _runs("exactly-once-batch", [1.1])

    assert _judged(sink_ratios(summarise(runs))) == {
        "exactly-once-batch / exactly-once": (0.909, "reached"),
        "exactly-once-newest-batch / exactly-once-newest": (0.625, "MISSED"),
    }


def test_the_composite_limit_is_the_hand_over_to_python_and_ready_made_batches() -> None:
    runs = _runs("count", [1.0], 0.5) + _runs("limit", [1.0], 0.5)
    runs += _runs("exactly-once", [1.0], 1.1) + _runs("exactly-once-batch", [1.0], 1.4)

    found = _judged(composite_ratios(summarise(runs)))

    assert list(found.values()) == [(1.1, "reached"), (1.4, "MISSED")]
    assert all("1.00 s per million" in name for name in found)
    assert composite_ratios(summarise(runs[1:])) == []


def test_both_parts_of_the_limit_at_once_are_shown_without_a_target() -> None:
    runs = _runs("ready-made-newest", [1.0], 0.8) + _runs("exactly-once-newest-batch", [1.0], 1.2)

    (found,) = at_once_ratios(summarise(runs))

    assert (round(found.value, 3), found.target, found.verdict) == (1.5, None, "")
    assert "0.80 s per million" in found.name
    assert at_once_ratios(summarise(runs[1:])) == []


def test_a_target_is_not_judged_where_its_peer_was_not_run() -> None:
    assert all_ratios(summarise(_runs("exactly-once", [1.0]))) == []


@pytest.mark.parametrize(("seconds", "verdict"), [(0.6, "reached"), (0.7, "MISSED")])
def test_our_source_is_compared_with_the_jvm_source_beside_it(seconds: float, verdict: str) -> None:
    runs = _runs("source-jvm", [2.0], 3.0) + _runs("source-ours", [seconds], 1.5)

    speed, cpu = source_ratios(summarise(runs))

    assert speed.value == pytest.approx(2.0 / seconds, rel=1e-3)
    assert verdict in speed.verdict
    assert (cpu.value, cpu.target) == (0.5, None)


@pytest.mark.parametrize(("seconds", "verdict"), [(1.0, "reached"), (1.4, "MISSED")])
def test_the_embedded_broker_is_compared_with_kafka_where_both_were_run(seconds: float, verdict: str) -> None:
    both = summarise(_runs("limit", [2.0]) + _runs("limit-embedded", [seconds]))

    (ratio,) = broker_ratios(both)

    assert ratio.value == pytest.approx(2.0 / seconds, rel=1e-3)
    assert verdict in ratio.verdict
    assert broker_ratios(both[1:]) == []


def test_both_sides_compress_where_a_codec_is_compared() -> None:
    runs = _runs("jvm-tuned", [4.0], 4.0) + _runs("jvm-tuned-lz4", [2.0], 3.0)
    runs += _runs("exactly-once-lz4", [1.0], 1.5)

    assert _judged(codec_ratios(summarise(runs))) == {
        "exactly-once-lz4 / the JVM sink": (2.0, ""),
        "CPU: exactly-once-lz4 / the JVM sink": (0.5, ""),
    }


def test_cpu_time_of_a_process_counts_children_that_have_ended() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert cpu_seconds(os.getpid()) - before >= 0.25


def test_cpu_time_of_a_child_that_began_and_ended_is_counted() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = usage(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    used = between(before, usage(os.getpid()))
    assert used[PYTHON] >= 0.25
    # This process may have a Spark, whose Java does little.
    assert used[JAVA] < 0.25


def test_a_worker_that_ends_takes_nothing_with_it_that_it_had_used_before() -> None:
    before = {1: Used(JAVA, 0, 10.0, 0.0), 2: Used(PYTHON, 1, 1.0, 5.0), 3: Used(PYTHON, 2, 7.0, 0.0)}
    not_waited_for = {1: Used(JAVA, 0, 11.0, 0.0), 2: Used(PYTHON, 1, 1.5, 5.0)}
    waited_for = {1: Used(JAVA, 0, 11.0, 0.0), 2: Used(PYTHON, 1, 1.5, 12.25)}
    begun = {**before, 4: Used(PYTHON, 2, 0.5, 0.0)}

    assert between(before, not_waited_for) == {JAVA: 1.0, PYTHON: 0.5}
    assert between(before, waited_for) == {JAVA: 1.0, PYTHON: 0.75}
    assert between(before, begun) == {JAVA: 0.0, PYTHON: 0.5}


def test_a_child_that_fails_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with (
        Child(sys.executable, "benchmarks.no_such_module", log=tmp_path / "log") as child,
        pytest.raises(ChildFailed, match="no_such_module"),
    ):
        child.ask("anything")


def test_tls_is_compared_with_the_same_way_without_it_and_with_the_jvm_sink_with_it() -> None:
    runs = [
        Run("jvm-tuned", 1024, 1, records=100, seconds=1.0, cpu_seconds=1),
        Run("jvm-tuned-tls", 1024, 1, records=50, seconds=1.0, cpu_seconds=1),
        Run("ours", 1024, 1, records=200, seconds=1.0, cpu_seconds=1),
        Run("ours-tls", 1024, 1, records=150, seconds=1.0, cpu_seconds=1),
        # Its way without TLS was not run.
        Run("other-tls", 1024, 1, records=150, seconds=1.0, cpu_seconds=1),
    ]

    found = {each.name: (each.value, each.target) for each in tls_ratios(summarise(runs))}

    assert found == {
        "jvm-tuned: with TLS / without": (0.5, None),
        "ours: with TLS / without": (0.75, TLS_TARGET),
        "TLS: ours / the JVM sink": (3.0, None),
    }
