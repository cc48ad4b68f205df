"""What an executor runs: one Spark task is one slot. Rows in as Arrow batches, one row out that says how it went.

Owns: the slot's number (Spark's partition id), the form in which a seal or a refusal travels to the driver.
Does not know: options, the ledger, the decision.
Invariants: a failure that another attempt may mend is raised, so Spark retries the task; one that no attempt can mend
(bad rows, missing rights) is returned, so the driver raises it as it is, once, with its class.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from connector.errors import (
    AttemptRefused,
    AuthorizationFailed,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
    UnsupportedVersion,
    UserError,
)
from connector.model import Seal
from connector.slot.plan import SharedPlan, WritePlan
from connector.slot.shared_writer import write_shared
from connector.slot.writer import write_slot
from connector.spark.workers import make_ready

if TYPE_CHECKING:
    # Only a sink by format carries one; every other worker would import the whole driver for it.
    from pyspark.sql import DataFrame

    from connector.commit.handover import Handover

RESULT_SCHEMA = "slot int, seal string, failure string"

FINAL = (UserError, AuthorizationFailed, ProtocolViolation, UnknownTopic, UnsupportedVersion)
"""What no other attempt can mend."""

_ARROW_SCHEMA = pa.schema(
    [pa.field("slot", pa.int32()), pa.field("seal", pa.string()), pa.field("failure", pa.string())]
)


def slot_task(plan: WritePlan | SharedPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: writes the task's rows as its slot and yields one row of `RESULT_SCHEMA`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = task_context()
        slot = context.partitionId()
        seal: str | None = None
        failure: str | None = None
        try:
            seal = json.dumps(write_as_slot(plan, context, batches).to_json())
        except final_with(plan) as error:
            failure = pickled(error)
        yield result_of(slot, seal, failure)

    return run


def final_with(plan: WritePlan | SharedPlan) -> tuple[type[ExactlyOnceError], ...]:
    """What no other attempt of a task can mend: in one transaction of all tasks nothing, the whole batch is done again."""
    return (ExactlyOnceError,) if isinstance(plan, SharedPlan) else FINAL


def task_context() -> TaskContext:
    """The task that this worker runs, for which it is made ready."""
    make_ready()
    context = TaskContext.get()
    assert context is not None
    return context


def write_as_slot(
    plan: WritePlan | SharedPlan, context: TaskContext, batches: Iterable[pa.RecordBatch]
) -> Seal:
    """Write a task's rows as its slot, whichever way they came, in the slot's transaction or in that of all."""
    slot = context.partitionId()
    written = (
        write_slot(plan, slot, batches) if isinstance(plan, WritePlan) else write_shared(plan, slot, batches)
    )
    return replace(written, attempt=context.attemptNumber())


def result_of(slot: int, seal: str | None, failure: str | None) -> pa.RecordBatch:
    """One row of `RESULT_SCHEMA`: the seal as JSON, or the pickled failure in base64."""
    return pa.RecordBatch.from_pydict({"slot": [slot], "seal": [seal], "failure": [failure]}, _ARROW_SCHEMA)


def pickled(error: ExactlyOnceError) -> str:
    """A refusal as it travels in a row; `read_results` takes it out."""
    return base64.b64encode(pickle.dumps(error)).decode()


def read_results(
    rows: Iterable[tuple[int, str | None, str | None]],
) -> tuple[list[Seal], list[ExactlyOnceError]]:
    """The seals and the refusals of a batch's tasks."""
    seals: list[Seal] = []
    failures: list[ExactlyOnceError] = []
    for _, seal, failure in rows:
        if failure is not None:
            failures.append(pickle.loads(base64.b64decode(failure)))
        elif seal is not None:
            seals.append(Seal.from_json(json.loads(seal)))
    return seals, failures


def tasks_of(collected: DataFrame) -> int | None:
    """How many tasks Spark ran to collect this frame; None where it does not say (Spark Connect).

    Asked of the plan that was run, so nothing is planned or computed for it.
    """
    try:
        return int(collected._jdf.queryExecution().toRdd().getNumPartitions())
    except Exception:  # noqa: BLE001 -- its class differs between classic, Connect and what a platform forbids
        return None


class SlotMessage(WriterCommitMessage):
    """The same from a task of a sink by format: its seal, or its refusal.

    `handover`: who began the batch, where the process that commits has nobody else to tell it.
    """

    def __init__(
        self, seal: Seal | None, failure: ExactlyOnceError | None = None, handover: Handover | None = None
    ) -> None:
        self.seal = seal
        self.failure = failure
        self.handover = handover


def read_messages(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[list[Seal], list[ExactlyOnceError], Handover | None]:
    """The seals and the refusals of a batch's tasks, and who began it. A task that failed for good has no message."""
    found = [message for message in messages if isinstance(message, SlotMessage)]
    seals = [message.seal for message in found if message.seal is not None]
    failures = [message.failure for message in found if message.failure is not None]
    return seals, failures, found[0].handover if found else None


def gravest(failures: list[ExactlyOnceError]) -> ExactlyOnceError:
    """The failure to raise: one that no attempt can mend, where there is one, else a cause rather than its consequences."""
    final = [each for each in failures if isinstance(each, FINAL)]
    causes = [each for each in failures if not isinstance(each, AttemptRefused)]
    return [*final, *causes, *failures][0]
