"""Whether all seals of a batch come from one attempt of Spark's stage that wrote it.

Owns: the proof by the tasks' numbers, the question to Spark's driver, what follows from the answer.
Does not know: Kafka, how a batch is aborted and repeated.
Invariants:
- Tasks whose numbers leave no room for a second attempt of their stage are never asked about.
- What nobody can answer is neither a failure nor a proof: the batch goes on, and the log says so once.

Why: where a shuffle file is lost, Spark runs the stage that wrote it again, and then those tasks of the writing stage
that are not done yet, as its next attempt. Where the rows are not the same the second time (a random salt, the clock,
an order that nothing fixes), the new tasks' rows and those of the sealed ones are no partition of any one result: some
rows are there twice and others not at all. From pyspark 4.2 on Spark itself fails such a job where it finds that the
rows differ (seen on 4.2.1 and 4.3.0; 4.0.0 and 4.1.4 do not).

What a task knows. Python's TaskContext has the stage's number and not its attempt's. It has the task's own number,
though, which Spark counts over all tasks of the application in the order of their start. Between the last task of one
attempt and the first one of the next there are two others at least: the one that could not fetch, and one of the stage
that is run again. So where the numbers of n tasks lie within n + 1, there was one attempt. Where they do not, another
job may have run beside, and Spark is asked.

Sources: Spark's DAGScheduler (FetchFailed, ResubmitFailedStages), TaskSchedulerImpl (one number for each start of a
task).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import TaskContext

from kafka_core import runtime
from kafka_core.errors import AttemptRefused
from pyspark_kafka_eos.model import Seal, StageTask

log = logging.getLogger(__name__)

ONE_ATTEMPT = "spark.stage.maxConsecutiveAttempts"
"""With 1 Spark fails a job at the first shuffle file that is lost, so a stage has no second attempt."""

Ask = Callable[[int], int | None]
"""Stage -> the number of its newest attempt, None where Spark does not tell."""

_BETWEEN = 2
"""Tasks that start between two attempts of a stage, at least: one that could not fetch, one that writes the shuffle
again.
"""


def stage_task(context: TaskContext) -> StageTask | None:
    """What a task knows of its place in the stage; None where its stage has one attempt only, whatever happens."""
    if context.getLocalProperty(ONE_ATTEMPT) == "1":
        return None
    return StageTask(context.stageId(), context.taskAttemptId())


def require_one_attempt(seals: Sequence[Seal], ask: Ask) -> None:
    """AttemptRefused, with nothing decided, where the stage of these seals was attempted a second time."""
    tasks = [seal.stage for seal in seals if seal.stage is not None]
    if len({task.stage for task in tasks}) == 1 and _leave_no_room(tasks):
        return
    for stage in sorted({task.stage for task in tasks}):
        newest = ask(stage)
        if newest is None:
            _warn_once()
        elif newest > 0:
            raise AttemptRefused(
                f"Spark ran the batch's stage {stage} in {newest + 1} attempts, because files of a shuffle were lost: rows of a plan that "
                "is not reproducible would be missing or there twice; no record of the batch is visible; the batch is aborted and "
                "is to be done again",
                {"stage": stage, "attempts": newest + 1, "slots": len(seals)},
            )


def _leave_no_room(tasks: Sequence[StageTask]) -> bool:
    numbers = [task.number for task in tasks]
    between = max(numbers) - min(numbers) + 1 - len(numbers)
    return between < _BETWEEN


def ask_spark(context: Any) -> Ask:
    """Asks the SparkContext of this process; None for Spark Connect, which has none."""

    def ask(stage: int) -> int | None:
        if context is None:
            return None
        try:
            info = context.statusTracker().getStageInfo(stage)
        except Exception:  # noqa: BLE001 -- its class differs between what a platform forbids and a context that is stopped
            return None
        return None if info is None else int(info.currentAttemptId)

    return ask


class _Warned:
    done = False


_warned = runtime.PerProcess(_Warned)


def _warn_once() -> None:
    warned = _warned()
    if not warned.done:
        warned.done = True
        log.warning(
            "other jobs ran beside the batch, and Spark does not tell here whether its stage was attempted twice; where the plan is not "
            "reproducible (random numbers, the clock), set %s=1: Spark then fails a job whose shuffle files are lost",
            ONE_ATTEMPT,
        )
