"""What sending took: adding the numbers of several tasks, their JSON form, and where they are kept."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.model import Decision, Seal, Traffic

NUMBERS = st.integers(0, 2**50)
TRAFFIC = st.builds(Traffic, *[NUMBERS] * 7)


@given(TRAFFIC, TRAFFIC, TRAFFIC)
def test_the_order_of_tasks_does_not_matter(first: Traffic, second: Traffic, third: Traffic) -> None:
    assert (first + second) + third == first + (second + third)
    assert first + second == second + first
    assert Traffic.of_all([first, None, second]) == first + second


@given(TRAFFIC)
def test_it_is_read_back_as_it_was_written_also_with_fields_of_a_newer_version(traffic: Traffic) -> None:
    body = json.loads(json.dumps(traffic.to_json()))

    assert Traffic.from_json(body) == Traffic.from_json([*body, 5]) == traffic


def test_without_a_request_there_is_no_mean_and_without_a_task_no_traffic() -> None:
    assert Traffic().latency_mean_ms is None
    assert Traffic().batch_mean_bytes is None
    assert Traffic.of_all([None, None]) is None
    assert Traffic.from_json(None) is None


def test_means_are_of_all_requests_and_all_record_batches() -> None:
    both = Traffic(1, 2, 300, 4_000, 4_000) + Traffic(3, 4, 300, 8_000, 6_000)

    assert both.latency_mean_ms == 3.0
    assert both.batch_mean_bytes == 100.0
    assert both.longest_us == 6_000


def seal(slot: int, traffic: Traffic | None) -> Seal:
    return Seal(f"p:{slot}", slot, ProducerIdentity(5, 0), 2, records=1, traffic=traffic)


def test_a_task_reports_it_to_the_driver_and_the_ledger_keeps_it_once_for_the_batch() -> None:
    one = seal(0, Traffic(requests=3))
    decision = Decision("p", "q", 0, (one,), traffic=Traffic(requests=3))

    assert Seal.from_json(json.loads(json.dumps(one.to_driver()))).traffic == Traffic(requests=3)
    assert "traffic" not in one.to_json()
    assert Decision.from_bytes(decision.to_bytes()).traffic == Traffic(requests=3)
    assert decision.to_bytes().count(b"traffic") == 1


def test_a_repair_adds_what_the_slots_that_wrote_again_needed() -> None:
    kept, lost = seal(0, Traffic(requests=3)), seal(1, Traffic(requests=4))
    again = replace(lost, identity=ProducerIdentity(6, 0), traffic=Traffic(requests=5))
    decision = Decision("p", "q", 0, (kept, lost), traffic=Traffic(requests=7))

    repaired = decision.repaired_by((kept, again))

    assert (repaired.repaired, repaired.seals) == (1, (kept, again))
    assert repaired.traffic == Traffic(requests=12)
