"""The streaming sink behind `format("kafka_eos")`: the same tasks and the same commit as `ExactlyOnceWriter`.

Owns: Spark's calls to a sink (a writer per micro-batch, the rows of a task, commit, abort) and the process of
each.
Does not know: the protocol (`commit`), the cooperation of a batch's two processes (`commit.handover`).
Invariants:
- No task writes before this process owns the pipeline for this micro-batch.
- A task that Spark runs for a query or batch other than that of the take-over writes nothing.
- Commit returns only when the batch is committed, so Spark's commit log never runs ahead.
- With the weaker guarantees there is no take-over. The checkpoint is read only where a group gets source
  offsets.

Where Spark makes which call (tried on 4.0 to 4.3). For every micro-batch, after Spark has logged its offsets:
1. `streamWriter` in a Python worker on the driver. Spark pickles the writer to the tasks.
2. `write` in the tasks.
3. `streamWriter` once more in another driver-side worker, on an unpickled data source, then `commit` or
`abort`.

These workers have no SparkSession and receive neither the query nor the batch before commit. Spark keeps
them for the next batches, so connections last. The first call begins the batch. It finds query and batch in
the checkpoint; the tasks receive both from Spark and check them.

If a commit fails, Spark calls `abort` with all messages. After `query.stop()` a commit that has begun
continues by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_core.errors import InternalError, OptionsError
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.handover import Handover, begin, finish, give_up
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.options import SinkOptions, refuse_speculation, report_ignored
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.spark.checkpoint import Checkpoint
from pyspark_kafka_eos.spark.offset_log import begins_elsewhere
from pyspark_kafka_eos.spark.refusals import sentence_first
from pyspark_kafka_eos.spark.sink.attempt_answers import ask_driver
from pyspark_kafka_eos.spark.sink.rows import judge_schema, take_columns
from pyspark_kafka_eos.spark.sink.stage_attempts import require_one_attempt
from pyspark_kafka_eos.spark.sink.tasks import (
    BATCH_ID,
    QUERY_ID,
    SlotMessage,
    error_to_raise,
    final_with,
    read_messages,
    task_context,
    write_as_slot,
)
from pyspark_kafka_eos.spark.source.source_group import group_offsets, warn_of_a_loop

if TYPE_CHECKING:

    class _ArrowStreamWriter(DataSourceStreamWriter):
        """A streaming writer whose rows come as Arrow batches."""

else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as _ArrowStreamWriter
    except ImportError:
        # pyspark 4.0 checks for this class of batch writes to choose the form of streamed rows too.
        from pyspark.sql.datasource import DataSourceArrowWriter

        class _ArrowStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """A streaming writer whose rows come as Arrow batches."""


log = logging.getLogger(__name__)

_SPARKS_OWN = frozenset({"path", "queryname"})
"""Options that Spark adds to the user's: the argument of start() and the query's name."""

_FOREACH_BATCH = "use writeStream.foreachBatch(ExactlyOnceWriter(options))"


_NOT_TOLD = -1
"""The batch's number where there is no checkpoint to find it in, until Spark passes it."""


def open_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool, planning: bool) -> KafkaSinkWriter:
    """The writer of one micro-batch. `planning`: its tasks are still to run, so this call begins the batch.

    OptionsError and PipelineConflict, before anything is written, where the query cannot be written.
    """
    parsed = SinkOptions.parse({name: text for name, text in options.items() if name.lower() not in _SPARKS_OWN})
    _refuse(parsed, overwrite=overwrite)
    columns = judge_schema(schema, parsed.topic)
    writer = KafkaSinkWriter(parsed, columns)
    if planning:
        report_ignored(parsed)
        writer.begin()
    return writer


def _refuse(options: SinkOptions, *, overwrite: bool) -> None:
    problems: list[str] = []
    if overwrite:
        problems.append(
            "outputMode complete writes the whole result anew in every micro-batch, and a topic's records cannot be "
            "replaced: use outputMode append; or, to get every version of the result as records, " + _FOREACH_BATCH
        )
    if options.checkpoint_location is None and _needs_checkpoint(options):
        problems.append(
            "checkpointLocation is missing: the sink reads the batch's source offsets there, and Spark does not pass it a checkpoint "
            "that comes from spark.sql.streaming.checkpointLocation; set .option('checkpointLocation', ...) on the "
            f"writeStream, or {_FOREACH_BATCH}"
            + ("" if options.transactional else ", or leave out offsets.group and pipeline")
        )
    if problems:
        raise OptionsError.listing("this query cannot be written, and nothing was", problems)


def _needs_checkpoint(options: SinkOptions) -> bool:
    # Without transactions only the group's offsets need the checkpoint.
    return options.transactional or bool(options.offsets_group)


class KafkaSinkWriter(_ArrowStreamWriter):
    """One micro-batch's writer. Spark pickles it to the tasks after the batch has begun."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self.options = options
        self._columns = dict(columns)
        self._begun: tuple[WritePlan | SharedPlan, Handover] | None = None

    def begin(self) -> None:
        """Take the pipeline over for the batch that Spark runs next; finish that batch if it is decided."""
        checkpoint = self._checkpoint()
        if checkpoint is None:
            self._begun = begin(self._cluster(), self.options, "", _NOT_TOLD, ())
            return
        query_id = checkpoint.query_id()
        batch_id = checkpoint.newest_batch()
        lines = checkpoint.source_offsets(batch_id)
        offset_log = OffsetLog(checkpoint.earlier_offsets, begins_elsewhere)
        self._begun = begin(self._cluster(), self.options, query_id, batch_id, lines, offset_log)

    @sentence_first
    def write(self, iterator: Iterator[Any]) -> SlotMessage:
        """On an executor: write the task's rows as its slot."""
        if self._begun is None:
            raise InternalError("a task got a writer whose micro-batch was not begun; nothing was written")
        plan, handover = self._begun
        context = task_context()
        try:
            batch_id = self._require_this_batch(context, handover)
            rows = (take_columns(batch, self._columns) for batch in iterator)
            if isinstance(plan, WritePlan):
                # Without a checkpoint Spark's task context is the first source of the batch's number.
                plan = replace(plan, batch_id=batch_id)
            seal = write_as_slot(plan, context, rows)
        except final_with(plan) as error:
            return SlotMessage(None, error, handover)
        return SlotMessage(seal, handover=handover)

    @sentence_first
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: decide and end the batch. Raises a task's refusal, or why it is not committed."""
        seals, failures, handover = read_messages(messages)
        if failures:
            raise error_to_raise(failures)
        if handover is None or handover.batch_id not in (batchId, _NOT_TOLD):
            raise InternalError(
                "the micro-batch's messages are not those of its tasks; the batch is not decided, and no record of it is visible",
                {"batch": batchId, "messages": len(messages)},
            )
        if handover.repair is None:
            require_one_attempt(seals, ask_driver())
        checkpoint = self._checkpoint()
        lines = () if checkpoint is None else checkpoint.source_offsets(batchId)
        told = _told(handover, batchId)
        offsets = group_offsets(self._cluster(), self.options, lines)
        warn_of_a_loop(self._cluster(), self.options, lines, offsets, seals)
        report = finish(self._cluster(), self.options, told, seals, lines, offsets, tasks=len(messages))
        crash_points.reached("before-return")
        log.info(
            "batch %d of %s: %d records, %d slots, committed in %.1f ms, %.0f s left",
            batchId, self.options.pipeline, report.records, report.slots, report.commit_ms, report.left_ms / 1000,
        )  # fmt: skip

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: abort what is open unless the batch is decided. Never hides the original error."""
        seals, failures, handover = read_messages(messages)
        if handover is None:
            log.info("batch %d failed in its tasks; the next run ends the transactions they left open", batchId)
            return
        reason = f"Spark gave up batch {batchId}: {failures[0] if failures else 'see its error'}"[:500]
        give_up(self.options, _told(handover, batchId), seals, reason)

    def _checkpoint(self) -> Checkpoint | None:
        location, wanted = self.options.checkpoint_location, _needs_checkpoint(self.options)
        return Checkpoint(location) if wanted and location is not None else None

    def _cluster(self) -> Cluster:
        return Cluster.shared(self.options.client, self.options.max_block_ms)

    def _require_this_batch(self, context: TaskContext, handover: Handover) -> int:
        """The batch that Spark runs; PipelineConflict where the writer began another one."""
        # Spark passes the session's settings to the tasks, but not to the workers on the driver.
        if self.options.transactional:
            refuse_speculation({"spark.speculation": context.getLocalProperty("spark.speculation") or "false"})
        query_id = context.getLocalProperty(QUERY_ID)
        batch_id = context.getLocalProperty(BATCH_ID)
        checkpoint = self._checkpoint()
        if checkpoint is not None:
            checkpoint.require(handover.query_id, handover.batch_id, (query_id, batch_id))
        return int(batch_id or _NOT_TOLD)


def _told(handover: Handover, batch_id: int) -> Handover:
    return replace(handover, batch_id=batch_id) if handover.batch_id == _NOT_TOLD else handover


__all__ = ["KafkaSinkWriter", "open_writer"]
