"""What an executor runs: one Spark task is one slot. Rows come in as Arrow batches, one row with the outcome
goes out.

Owns: the slot's number (Spark's partition id), the form in which a seal or a refusal is sent to the driver.
Does not know: options, the ledger, the decision.
Invariants:
- A failure that another attempt may fix is raised, so Spark retries the task.
- A failure that no attempt can fix (bad rows, missing rights) is returned, so the driver raises it unchanged,
  once, with its class.
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
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kafka_core.errors import (
    AttemptRefused,
    AuthorizationFailed,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
    UnsupportedVersion,
    UserError,
)
from pyspark_kafka_eos.model import Basis, Seal
from pyspark_kafka_eos.model.handed_over import HandedOver, refuse_other_versions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.sink.rows import SESSION_ZONE, LocalTimes
from pyspark_kafka_eos.spark.sink.stage_attempts import stage_task
from pyspark_kafka_eos.spark.workers import make_ready

if TYPE_CHECKING:
    # Only a sink by format has a handover; every other worker would import the whole driver for it.
    from pyspark.sql import DataFrame

    from pyspark_kafka_eos.commit.handover import Handover

RESULT_SCHEMA = StructType(
    [
        StructField("slot", IntegerType()),
        StructField("seal", StringType()),
        StructField("failure", StringType()),
    ]
)
"""Not as a text: the JVM would parse it for every micro-batch."""

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The local properties in which Spark tells a micro-batch's thread, and its tasks, the query and the batch's number."""

FINAL = (UserError, AuthorizationFailed, ProtocolViolation, UnknownTopic, UnsupportedVersion)
"""Failures that no other attempt can fix."""

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
            seal = json.dumps(write_as_slot(plan, context, batches).to_driver())
        except final_with(plan) as error:
            failure = pickled(error)
        yield result_of(slot, seal, failure)

    return run


def final_with(plan: WritePlan | SharedPlan) -> tuple[type[ExactlyOnceError], ...]:
    """Failures that no other attempt of a task can fix. With one transaction for all tasks that is every
    failure: the whole batch is done again."""
    return (ExactlyOnceError,) if isinstance(plan, SharedPlan) else FINAL


def task_context() -> TaskContext:
    """Prepare this worker for its task; return the task's context."""
    make_ready()
    context = TaskContext.get()
    assert context is not None
    return context


def write_as_slot(plan: WritePlan | SharedPlan, context: TaskContext, batches: Iterable[pa.RecordBatch]) -> Seal:
    """Write a task's rows as its slot, in the slot's own transaction or in the one of all tasks."""
    slot = context.partitionId()
    settings = plan if isinstance(plan, WritePlan) else plan.writing
    # A planned zone comes first: the decided records of a batch have their times by it, whatever the session has now.
    times = LocalTimes(settings.basis.time_zone or context.getLocalProperty(SESSION_ZONE))
    rows = map(times.to_instants, batches)
    written = write_slot(plan, slot, rows) if isinstance(plan, WritePlan) else write_shared(plan, slot, rows)
    basis = replace(written.basis or Basis(), time_zone=times.used)
    return replace(written, attempt=context.attemptNumber(), stage=stage_task(context), basis=basis)


def result_of(slot: int, seal: str | None, failure: str | None) -> pa.RecordBatch:
    """One row of `RESULT_SCHEMA`: the seal as JSON, or the pickled failure in base64."""
    return pa.RecordBatch.from_pydict({"slot": [slot], "seal": [seal], "failure": [failure]}, _ARROW_SCHEMA)


def pickled(error: ExactlyOnceError) -> str:
    """A refusal as text for a row; `read_results` decodes it."""
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
    """How many tasks Spark ran to collect this frame; None where it does not report this (Spark Connect).

    Read from the executed plan, so Spark plans and computes nothing for it.
    """
    try:
        return int(collected._jdf.queryExecution().toRdd().getNumPartitions())
    except Exception:  # noqa: BLE001 -- its class differs between classic, Connect and what a platform forbids
        return None


class SlotMessage(HandedOver, WriterCommitMessage):
    """The result of a task of a sink by format: its seal, or its refusal.

    `handover`: the run that began the batch, where the committing process has no other source for it.
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
    """The seals and the refusals of a batch's tasks, and which run began it. A task that finally failed has
    no message. WrongInstallation where an executor has another version of this package."""
    refuse_other_versions(messages)
    found = [message for message in messages if isinstance(message, SlotMessage)]
    seals = [message.seal for message in found if message.seal is not None]
    failures = [message.failure for message in found if message.failure is not None]
    return seals, failures, found[0].handover if found else None


def error_to_raise(failures: list[ExactlyOnceError]) -> ExactlyOnceError:
    """The failure to raise: one that no attempt can fix, if there is one; otherwise a cause rather than a
    consequence."""
    final = [each for each in failures if isinstance(each, FINAL)]
    causes = [each for each in failures if not isinstance(each, AttemptRefused)]
    return [*final, *causes, *failures][0]
