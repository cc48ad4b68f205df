"""A fault that could never fire is refused when it is asked for, in words that name what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedded_kafka import EmbeddedKafka, FaultHandle
from embedded_kafka.faults.fault import PLACES, Fault, StepFault, asked_for
from embedded_kafka.faults.steps import STEPS, is_step
from kafka_core.errors import OptionsError

Ask = Callable[[EmbeddedKafka], FaultHandle]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda kafka: kafka.fault("EndTx", "delay"), r"unknown API 'EndTx'; did you mean EndTxn\b.*; known: .*, Fetch, "),
        (lambda kafka: kafka.fault_in_answer("Fetsh", "empty"), r"unknown API 'Fetsh'; did you mean Fetch\b"),
        (lambda kafka: kafka.fault_at_leader("t", 0, "stale-leader", api="Fetsh"), r"unknown API 'Fetsh'; did you mean Fetch\b"),
        (lambda kafka: kafka.fault("EndTxn", "drop"), r"unknown action of a fault in requests 'drop'; .*known: cut, delay, drop-answer, drop-request, error"),
        (lambda kafka: kafka.fault_in_answer("Fetch", "tear"), r"unknown action of a fault in answers 'tear'; .*slow-store, torn"),
        (lambda kafka: kafka.fault_at_step("end-prepared", "stopp"), r"action of a fault in a step 'stopp'; did you mean stop\?; known: delay, kill, stop"),
        (lambda kafka: kafka.fault_at_marker("t", 0, "lat"), r"action of a fault in a marker 'lat'; did you mean late\?; known: forget, late"),
        (lambda kafka: kafka.fault_at_leader("t", 0, "stale"), r"action of a fault in a leader's place 'stale'; did you mean stale-leader\?"),
        (lambda kafka: kafka.fault_at_step("marker-writen:1", "stop"), r"unknown step 'marker-writen:1'; did you mean marker-written:<n>"),
        (lambda kafka: kafka.fault_at_step("x", "stop"), r"unknown step 'x'; known: .*end-completed, end-prepared, init-logged"),
        (lambda kafka: kafka.fault("EndTxn", "error", code="NOT_COORDINATR"), r"unknown error code 'NOT_COORDINATR'; did you mean NOT_COORDINATOR"),
        (lambda kafka: kafka.fault("EndTxn", "delay", times=-1), "times must be a whole number, 1 or more, not -1"),
        (lambda kafka: kafka.fault("EndTxn", "delay", topic=7), "topic must be a string or None, not 7"),
        (lambda kafka: kafka.fault("EndTxn", "delay", topic=b"t"), "cannot be asked for fault: "),
        (lambda kafka: kafka.fault_at_leader("t", None, "stale-leader"), "refused fault_at_leader: .*partition must not be None"),  # type: ignore[arg-type]
        (lambda kafka: kafka.fault_at_step("x", "stop"), "refused fault_at_step: "),
    ],
)  # fmt: skip
def test_what_there_is_not_is_refused_with_what_is_near(broker: EmbeddedKafka, ask: Ask, said: str) -> None:
    with pytest.raises(OptionsError, match=said) as refused:
        ask(broker)
    assert "Error:" not in str(refused.value), "the name of an exception says nothing to a test's author"


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": 0}, {"times": "1"}, {"times": None}, {"times": 1.5}, {"times": True}, {"skip": -1}, {"delay_ms": -1},
        {"delay_ms": "1"}, {"after_bytes": -1}, {"batches": -1}, {"partition": "0"}, {"partition": -1}, {"below": "1"},
        {"end": -1}, {"last_stable_offset": "x"}, {"other_partition": 0.5}, {"topic": 1}, {"client_id": 1},
        {"transactional_id": 1}, {"commit": "yes"},
    ],
    ids=str,
)  # fmt: skip
def test_no_value_is_taken_with_which_a_fault_could_never_fire(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        asked_for("wire", "delay", api="Produce", **wrong)


def test_every_step_and_every_action_that_is_named_is_one() -> None:
    for step in (*STEPS, "*"):
        Fault(StepFault.STOP, step=step.replace("<n>", "12"))
    assert not any(map(is_step, ("marker-written:<n>", "marker-written:0", "marker-written:", "*", "")))
    documented = (EmbeddedKafka.fault_at_step.__doc__ or "").replace("marker-written:1", "marker-written:<n>")
    assert all(f'"{step}"' in documented for step in STEPS)
    by_place = {
        "wire": EmbeddedKafka.fault, "answer": EmbeddedKafka.fault_in_answer, "step": EmbeddedKafka.fault_at_step,
        "marker": EmbeddedKafka.fault_at_marker, "leader": EmbeddedKafka.fault_at_leader,
    }  # fmt: skip
    for place, method in by_place.items():
        assert all(f'"{action.value}"' in (method.__doc__ or "") for action in PLACES[place])
