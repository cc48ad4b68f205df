"""One history of a broker that forgets a marker, killed while the marker is being mended, and what the next run makes
of it.

Owns: playing such a history on the embedded broker, and what has to hold at its end.
Does not know: which histories there are (`test_mending`, `tests.chaos.mending`).
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass
from typing import Any

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import crash_points
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import Finished, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import (
    LEDGER,
    following,
    high_watermarks,
    last_stable_offsets,
    rows_of,
)

TIMEOUT_MS = 16 * 60 * 1000
"""Longer than any transaction may last: the longest that the connector asks for is 15 minutes."""


@dataclass(frozen=True)
class History:
    """`scope`: of the pipeline. `forgotten`: whose marker the broker forgets, "data" (one partition of several) or
    "ledger" (the decision's own). `killed_first`: where the run before the one that mends is killed, for a forgotten
    marker of the ledger, and for repairs. `point`: where the process is killed that mends. `late`: whether the next run
    begins only when every timeout is over.
    """

    scope: str
    forgotten: str
    point: str
    late: bool
    killed_first: str = "before-return"

    def __str__(self) -> str:
        return (
            f"{self.scope}, {self.forgotten}, {self.point}, {'late' if self.late else 'at once'}, {self.killed_first}"
        )


def play(broker: EmbeddedKafka, history: History) -> str:
    """Play it; AssertionError where something is lost, repeated, left open or stopped. Returns what the last run
    did.
    """
    settings = settings_for(broker)
    pipeline, topic = settings["options"]["pipeline"], settings["options"]["topic"]
    fault = _forget(broker, history, settings)
    if history.forgotten == "ledger" or history.killed_first != "before-return":
        _killed(_run(history, settings, history.killed_first), history.killed_first)
    if history.killed_first in crash_points.MENDING_POINTS:
        # So that what was to be mended is lost, and the next run has to repair it.
        broker.advance(TIMEOUT_MS)
    _killed(_run(history, settings, history.point), history.point)
    assert fault.fired == 1, "the marker was not forgotten"
    if history.late:
        broker.advance(TIMEOUT_MS)

    again = _run(history, settings)

    assert again.report.get("resumed") is True, again.report
    assert again.report["records"] == EXPECTED.total(), again.report
    assert _duplicates(read_all(broker, topic)) == ({}, {}), again.report
    assert last_stable_offsets(broker, topic) == high_watermarks(broker, topic)
    assert last_stable_offsets_of_ledger(broker, pipeline)
    assert committed_offsets(broker, settings) == settings["offsets"]
    after = _run(history, following(settings))
    assert after.report.get("resumed") is False, after.report
    assert _duplicates(read_all(broker, topic), rows_of(settings, following(settings))) == ({}, {})
    return "repaired" if again.report["repaired"] else "resumed"


def _forget(broker: EmbeddedKafka, history: History, settings: dict[str, Any]) -> Any:
    pipeline = settings["options"]["pipeline"]
    if history.forgotten == "ledger":
        name = f"{pipeline}:{'batch' if history.scope == 'batch' else 'driver'}"
        return broker.fault_at_marker(LEDGER, None, "forget", transactional_id=name, commit=True)
    name = f"{pipeline}:{'batch' if history.scope == 'batch' else '1'}"
    return broker.fault_at_marker(settings["options"]["topic"], None, "forget", transactional_id=name, commit=True)


def _run(history: History, settings: dict[str, Any], point: str = "") -> Finished:
    return run_child(settings, point, run_batch if history.scope == "batch" else None)


def _killed(finished: Finished, point: str) -> None:
    assert finished.exitcode == -signal.SIGKILL, f"{point} did not fire: {finished.report}"


def _duplicates(found: Counter[str], expected: Counter[str] = EXPECTED) -> tuple[dict[str, int], dict[str, int]]:
    """What is there too often, and what is missing; a few of each."""
    return dict(list((found - expected).items())[:3]), dict(list((expected - found).items())[:3])


def last_stable_offsets_of_ledger(broker: EmbeddedKafka, pipeline: str) -> bool:
    """Whether no reader of the ledger waits."""
    return last_stable_offsets(broker, LEDGER) == high_watermarks(broker, LEDGER)
