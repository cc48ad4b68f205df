"""`df.write.format("kafka_eos").mode("append").save()`: the batch writer, whose methods run in several processes.

Owns: the choice of columns, the meaning of Spark's save modes.
Does not know: the decision and its moment (`commit.dataframe_write`).
Invariants:
- No record is written unless `writer` returned.
- A retried task fences its predecessor (scope=batch: it is refused where the predecessor may have written).
- Only the winning attempt's message reaches the commit.

Seen on pyspark 4.0.0 and 4.3.0: Spark asks for the writer once per save, in a Python process beside the driver, before
any task. Spark pickles the object to the tasks and to a second such process, where it calls commit or abort. If commit
raises, Spark calls abort with the same messages. Spark itself refuses modes other than append and overwrite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_core.errors import ExactlyOnceError, OptionsError
from pyspark_kafka_eos.commit.dataframe_write import Begun, abort, begin, commit, compare, named
from pyspark_kafka_eos.options import OptionValue, SinkOptions, report_ignored
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


def open_writer(options: Mapping[str, OptionValue], schema: StructType, overwrite: bool) -> BatchWriter:
    """Check options and columns, then take the pipeline over. Raises before anything is written."""
    if overwrite:
        raise OptionsError(
            'mode("overwrite") is refused: records of a topic cannot be replaced; nothing was written. Use '
            'mode("append"); to begin with an empty topic, delete it or its records with Kafka\'s own tools first'
        )
    parsed = SinkOptions.parse(dict(options), "batch")
    columns = judge_schema(schema, parsed.topic)
    report_ignored(parsed)
    return BatchWriter(begin(named(parsed)), columns)


class BatchWriter(DataSourceArrowWriter):
    """One save: `write` in each task, then `commit` or `abort` beside the driver."""

    def __init__(self, begun: Begun, columns: Mapping[str, int]) -> None:
        self.begun = begun
        self.columns = dict(columns)

    @sentence_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SlotMessage:
        """In a task: write its rows as its slot. Of a write that is committed already they are measured, or not even
        computed.
        """
        plan = self.begun.plan
        if plan is None:
            return SlotMessage(None)
        try:
            _refuse_unnumbered(self.begun, task_context())
            rows = (take_columns(batch, self.columns) for batch in iterator)
            return SlotMessage(write_as_slot(plan, task_context(), rows))
        except ExactlyOnceError as error:
            # Rows that are only measured fail nothing: the write is committed.
            if self.begun.decided is None and not isinstance(error, final_with(plan)):
                raise
            return SlotMessage(None, error)

    @sentence_first
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After all tasks: decide and end. Raises a task's refusal with its class; Spark then calls abort."""
        seals, failures, _ = read_messages(messages)
        if self.begun.decided is not None:
            compare(self.begun, seals, failures, len(messages))
            return
        if failures:
            raise error_to_raise(failures)
        if self.begun.handover is not None and self.begun.handover.repair is None:
            require_one_attempt(seals, ask_driver())
        commit(self.begun, seals, len(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task or the commit failed. A decided batch stays decided."""
        seals, _, _ = read_messages(messages)
        abort(self.begun, seals, "Spark gave up")


def _refuse_unnumbered(begun: Begun, context: TaskContext) -> None:
    """Refuse a write inside a micro-batch whose number nothing gives: Spark may run the micro-batch again. Only the
    tasks know: Spark passes what it knows of a query to them, and not to the worker that begins a write.
    """
    options = begun.options
    batch_id = context.getLocalProperty(BATCH_ID)
    if batch_id is None or options.batch_id is not None or options.ephemeral or not options.transactional:
        return
    raise OptionsError(
        f"batch.id is missing: df.write with pipeline={options.pipeline} is called in micro-batch {batch_id} of a streaming query, and Spark "
        "runs a micro-batch again after a failure, which would write its rows twice; nothing was written. Give the write the number of "
        "the micro-batch: .option('batch.id', batch_id); or call ExactlyOnceWriter(options)(frame, batch_id)",
        {
            "pipeline": options.pipeline,
            "batch": int(batch_id),
            "query": context.getLocalProperty(QUERY_ID),
        },
    )


__all__ = ["BatchWriter", "open_writer"]
