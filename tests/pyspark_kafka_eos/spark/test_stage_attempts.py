"""Seals of two attempts of a stage are not decided together: told by the tasks' numbers, or by asking Spark."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from kafka_core.errors import AttemptRefused
from pyspark_kafka_eos.model import Seal, StageTask
from pyspark_kafka_eos.spark.sink import attempt_answers, stage_attempts
from pyspark_kafka_eos.spark.sink.stage_attempts import ask_spark, require_one_attempt, stage_task


def seals(*numbers: int, stage: int = 7) -> list[Seal]:
    """Of tasks with these numbers, each the next slot."""
    return [Seal(f"p:{slot}", slot, None, 0, stage=StageTask(stage, number)) for slot, number in enumerate(numbers)]


def nobody(stage: int) -> int | None:
    raise AssertionError("nobody was to be asked")


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((5,), id="one task"),
        pytest.param((5, 6, 7), id="in order"),
        pytest.param((7, 5, 6), id="in another order"),
        pytest.param((5, 6, 8), id="one other start between, which no second attempt does with"),
    ],
)
def test_tasks_that_leave_no_room_for_a_second_attempt_are_not_asked_about(numbers: tuple[int, ...]) -> None:
    require_one_attempt(seals(*numbers), nobody)


def test_where_a_stage_has_one_attempt_only_by_sparks_setting_nobody_is_asked() -> None:
    context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
    context._localProperties = {stage_attempts.ONE_ATTEMPT: "1"}

    assert stage_task(context) is None
    require_one_attempt([Seal("p:0", 0, None, 0), Seal("p:1", 1, None, 0)], nobody)


def test_a_task_tells_its_stage_and_its_own_number() -> None:
    context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
    context._localProperties, context._stageId, context._taskAttemptId = {}, 7, 123

    assert stage_task(context) == StageTask(7, 123)


def test_a_stage_that_was_attempted_twice_is_refused_with_its_number() -> None:
    asked: list[int] = []

    def second(stage: int) -> int:
        asked.append(stage)
        return 1

    # The case as it was seen: 2 sealed, 3 could not fetch, 4 and 5 wrote the shuffle again, 6 is the second attempt's.
    with pytest.raises(AttemptRefused, match=r"stage 7 in 2 attempts.*no record of the batch is visible") as refused:
        require_one_attempt(seals(2, 6), second)

    assert asked == [7]
    assert refused.value.facts == {"stage": 7, "attempts": 2, "slots": 2}


def test_a_stage_beside_which_other_jobs_ran_goes_on_where_spark_says_that_it_had_one_attempt() -> None:
    require_one_attempt(seals(2, 6, 90), lambda stage: 0)


def test_what_nobody_can_answer_goes_on_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    stage_attempts._warned().done = False

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            require_one_attempt(seals(2, 6), lambda stage: None)

    assert caplog.text.count(f"set {stage_attempts.ONE_ATTEMPT}=1") == 1


@pytest.mark.parametrize("answer", [None, 0, 3])
def test_sparks_answer_is_the_number_of_the_stages_newest_attempt(answer: int | None) -> None:
    info = None if answer is None else SimpleNamespace(currentAttemptId=answer)
    context = SimpleNamespace(statusTracker=lambda: SimpleNamespace(getStageInfo=lambda stage: info))

    assert ask_spark(context)(7) == answer
    assert ask_spark(None)(7) is None


def test_a_worker_is_answered_by_the_process_that_registered_the_format() -> None:
    # Without a context of Spark the answer is that nobody knows; that it comes at all is what is shown here.
    jvm = SimpleNamespace(pid=lambda: os.getppid())
    handle = SimpleNamespace(current=lambda: jvm)
    java = SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle))
    attempt_answers.close()
    attempt_answers.answer(SimpleNamespace(_jvm=SimpleNamespace(java=java)))
    try:
        assert attempt_answers._answering.listening is not None
        assert attempt_answers.ask_driver()(0) in (None, 0)
    finally:
        attempt_answers.close()
    assert attempt_answers.ask_driver()(0) is None
