"""`ExactlyOnceWriter`: the function for `foreachBatch` that makes each micro-batch one unit in Kafka.

Owns: finding its query and checkpoint, running the slots as a Spark job, one driver per run.
Does not know: the protocol (`commit`), the encoding of rows.
Invariants:
- The writer returns only when the batch is committed, so Spark's commit log never runs ahead of Kafka.
- After any exception the next call starts over: it fences, reads the ledger, proves.
- The batch's plan has run to its end when the writer returns, also for a batch that was committed before:
  Spark saves state and watermark only then.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import reports
from pyspark_kafka_eos.commit.drivers import Driver, driver_for
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.model import LoggedOffsets, Seal
from pyspark_kafka_eos.operations.checks import Check, examine
from pyspark_kafka_eos.options import SinkOptions, refuse_async_progress, refuse_speculation, report_ignored
from pyspark_kafka_eos.spark.offset_log import begins_elsewhere, read_earlier, read_offsets
from pyspark_kafka_eos.spark.refusals import sentence_first
from pyspark_kafka_eos.spark.sink.query_identity import QueryIdentity, running_query
from pyspark_kafka_eos.spark.sink.rows import SESSION_ZONE, has_local_times, select_columns
from pyspark_kafka_eos.spark.sink.stage_attempts import ask_spark, require_one_attempt
from pyspark_kafka_eos.spark.sink.tasks import (
    RESULT_SCHEMA,
    error_to_raise,
    read_results,
    slot_task,
    tasks_of,
)
from pyspark_kafka_eos.spark.source.source_group import group_offsets, warn_of_a_loop
from pyspark_kafka_eos.spark.token_logins import with_token

log = logging.getLogger(__name__)

_Name = tuple[str, str, str]
"""A pipeline, as it is told from others in one process: the cluster's id, the ledger's topic, the name."""

_owners: dict[_Name, str] = {}
"""The query that has written a pipeline last."""
_calls: dict[_Name, tuple[str, int]] = {}
"""The run and batch that are being written, or were written last, of a pipeline."""
_owners_lock = threading.Lock()


class ExactlyOnceWriter:
    """Writes every micro-batch to Kafka exactly once, with the source offsets it came from.

    `options`: the names of Spark's Kafka sink (`kafka.bootstrap.servers`, `topic`, `kafka.*`) and `pipeline`, the
    stable name of this query's output. OptionsError naming every problem where they cannot work. Pass the
    writer to `foreachBatch`; one writer serves one query.
    """

    def __init__(self, options: Mapping[str, str | int | bool | float]) -> None:
        complete = with_token(options)
        self.options = SinkOptions.parse(complete)
        report_ignored(self.options)
        # Kept only where a token logs in: Spark renews it, so each batch asks for the newest.
        self._given = dict(options) if complete != options else None
        self.last_report: CommitReport | None = None
        self._driver: Driver | None = None
        self._run: str | None = None
        self._tasks: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark Connect pickles the function. Connections and the state of the run belong to this process.
        return {"options": self.options, "given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options = state["options"]
        self._given = state.get("given")
        self.last_report = None
        self._driver = None
        self._run = None
        self._tasks = None

    def validate(self, spark: SparkSession | None = None) -> list[Check]:
        """Check before the query starts: Spark's settings, brokers, rights, timeouts, topics, the ledger.

        Raises the first error that the first micro-batch would raise; otherwise returns all findings
        (`kafka-eos doctor` shows the same). Fences no producer, writes and creates nothing.
        """
        if spark is not None and self.options.transactional:
            refuse_speculation({"spark.speculation": _conf(spark, "spark.speculation", "false")})
        found = examine(self.options)
        for check in found:
            if check.error is not None:
                raise check.error
        return found

    @sentence_first
    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls it. Returns when the batch is committed, by this call or before.

        PipelineConflict, with nothing written, where this run has written the batch under this pipeline before, or the
        option checkpointLocation names another query's checkpoint; OptionsError where `batch_id` is not the running
        micro-batch's.
        """
        self._take_renewed_token()
        identity = QueryIdentity.of_session(frame.sparkSession, self.options)
        begins = self._driver is None or self._run != identity.run_id
        identity.require_running(frame.sparkSession, batch_id, begins=begins)
        if begins:
            identity.require_own_checkpoint(frame.sparkSession, batch_id)
        with _only_call(self.options, identity, batch_id):
            self._write_or_resume(frame, batch_id, identity)

    def _take_renewed_token(self) -> None:
        if self._given is None:
            return
        options = SinkOptions.parse(with_token(self._given))
        if options != self.options:
            # The driver's connections log in with the old one, which ends soon. A new driver goes on from the ledger.
            self.options, self._driver = options, None

    def _write_or_resume(self, frame: DataFrame, batch_id: int, identity: QueryIdentity) -> None:
        try:
            if self._driver is None or self._run != identity.run_id:
                resumed = self._start(frame, identity, batch_id)
                if resumed is not None:
                    self.last_report = resumed
                    reports.publish(self.options.pipeline, identity.query_id, resumed, _name_of(self.options))
                    return
            self._write(frame, batch_id, identity)
        except BaseException as error:
            # The driver's state may be stale now; the next call begins with the ledger.
            self._driver = None
            if _is_interruption(error):
                raise QueryStopped(_STOPPED) from None
            raise

    def _start(self, frame: DataFrame, identity: QueryIdentity, batch_id: int) -> CommitReport | None:
        """Take the pipeline over. Returns a report where the batch is committed already; its rows were drawn
        nevertheless."""
        spark = frame.sparkSession
        if self.options.transactional:
            refuse_speculation({"spark.speculation": _conf(spark, "spark.speculation", "false")})
            _refuse_async_progress(spark, identity)
            _claim(self.options, identity, spark)
        cluster = Cluster.shared(self.options.client, self.options.max_block_ms)
        beside = _beside(self.options, identity)
        checkpoint = identity.checkpoint
        earlier = None if checkpoint is None else partial(read_earlier, spark, checkpoint)
        driver = driver_for(cluster, self.options, identity.query_id, beside, OffsetLog(earlier, begins_elsewhere))
        plan_has_run = False

        def replay(slots: frozenset[int]) -> list[Seal]:
            nonlocal plan_has_run
            seals = self._run_slots(driver, frame, batch_id, slots)
            plan_has_run = True
            return seals

        resumed = driver.start(batch_id, replay, _source_offsets(spark, identity, batch_id))
        if resumed is not None and not plan_has_run:
            self._run_slots(driver, frame, batch_id, frozenset())
        self._driver, self._run = driver, identity.run_id
        return resumed

    def _write(self, frame: DataFrame, batch_id: int, identity: QueryIdentity) -> None:
        driver = self._driver
        assert driver is not None
        lines = _source_offsets(frame.sparkSession, identity, batch_id)
        cluster = Cluster.shared(self.options.client, self.options.max_block_ms)
        offsets = group_offsets(cluster, self.options, lines)

        def run_slots(slots: frozenset[int] | None) -> list[Seal]:
            seals = self._run_slots(driver, frame, batch_id, slots)
            warn_of_a_loop(cluster, self.options, lines, offsets, seals)
            return seals

        self.last_report = driver.process(batch_id, run_slots, lines, offsets, lambda: self._tasks)
        crash_points.reached("before-return")
        report = self.last_report
        reports.publish(self.options.pipeline, identity.query_id, report, _name_of(self.options))
        log.info(
            "batch %d of %s: %d records, %d slots, committed in %.1f ms, %.0f s left",
            batch_id, self.options.pipeline, report.records, report.slots, report.commit_ms, report.left_ms / 1000,
        )  # fmt: skip

    def _run_slots(self, driver: Driver, frame: DataFrame, batch_id: int, only: frozenset[int] | None) -> list[Seal]:
        """Run the batch as a Spark job; returns the seals, or aborts the written records and raises."""
        rows = select_columns(frame, self.options.topic)
        plan = driver.plan(batch_id, only)
        if has_local_times(frame.schema):
            # Tasks are told the session's zone only where it is set, and by default it is the JVM's.
            plan = plan.in_zone(str(frame.sparkSession.conf.get(SESSION_ZONE)))
        seals: list[Seal] = []
        try:
            sealing = rows.mapInArrow(slot_task(plan), RESULT_SCHEMA)
            results = sealing.collect()
            self._tasks = tasks_of(sealing)
            seals, failures = read_results((row[0], row[1], row[2]) for row in results)
            if failures:
                raise error_to_raise(failures)
            if only is None:
                require_one_attempt(seals, ask_spark(getattr(frame.sparkSession, "_sc", None)))
        except BaseException as error:
            if only is None:
                driver.abandon(batch_id, seals, f"{type(error).__name__}: {error}"[:500])
            raise
        return seals


_STOPPED = (
    "the micro-batch was interrupted by query.stop(); no record of it is decided or visible; "
    "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
)
"""Spark's stream thread distinguishes a stop from a failure by these exact words in the text of Python's
exception. Its pattern overflows the stack on a text as long as a Java stack trace, so the original text
cannot be passed on."""

# query.stop() cancels the query's jobs before it interrupts the thread, so a batch may end by either. Spark 4 cancels
# with a reason of its own, older ones with the group's.
_INTERRUPTED = re.compile(
    r"java\.lang\.InterruptedException|ClosedByInterruptException|InterruptedIOException"
    r"|cancelled part of cancelled job group|cancelled Query \[[^\n]*\] was stopped"
)


class QueryStopped(RuntimeError):
    """The batch was abandoned because the query is being stopped."""


def _is_interruption(error: BaseException) -> bool:
    """Also where another error was raised from it: Python's text of that one has Java's whole stack trace in it."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is each for each in seen):
        seen.append(link)
        # Spark's thread gets the same links as text: a context that "from None" suppresses is not in it.
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return any(_INTERRUPTED.search(str(each)) for each in seen)


def _source_offsets(spark: SparkSession, identity: QueryIdentity, batch_id: int) -> LoggedOffsets:
    return LoggedOffsets(()) if identity.checkpoint is None else read_offsets(spark, identity.checkpoint, batch_id)


def _refuse_async_progress(spark: SparkSession, identity: QueryIdentity) -> None:
    context = getattr(spark, "_sc", None)
    query = None if context is None else running_query(spark, context, identity.query_id)
    if query is not None:
        refuse_async_progress(str(query.getClass().getName()))


def _name_of(options: SinkOptions) -> _Name:
    # By the cluster's id, which is asked for once: other bootstrap servers may be the same cluster's.
    cluster = Cluster.shared(options.client, options.max_block_ms)
    return (
        cluster.cluster_id() or str(options.client.bootstrap_servers),
        options.ledger_topic,
        options.pipeline,
    )


def _claim(options: SinkOptions, identity: QueryIdentity, spark: SparkSession) -> None:
    """Refuse a second live query of this process under the pipeline's name before it fences the first."""
    name = _name_of(options)
    with _owners_lock:
        owner = _owners.get(name)
        context = getattr(spark, "_sc", None)
        foreign = owner is not None and owner != identity.query_id
        if foreign and context is not None and running_query(spark, context, str(owner)) is not None:
            raise PipelineConflict(
                f"pipeline {options.pipeline!r} is in use by another running query; nothing was written; give each "
                "query its own pipeline name",
                {"pipeline": options.pipeline, "running_query": owner, "this_query": identity.query_id},
            )
        _owners[name] = identity.query_id


def _beside(options: SinkOptions, identity: QueryIdentity) -> frozenset[str]:
    """The other pipelines of this ledger that this run of the query has written, or is writing."""
    *here, own = _name_of(options)
    with _owners_lock:
        names = [name for name, (run_id, _) in _calls.items() if run_id == identity.run_id]
    return frozenset(name for *where, name in names if where == here) - {own}


@contextmanager
def _only_call(options: SinkOptions, identity: QueryIdentity, batch_id: int) -> Iterator[None]:
    """Refuse a second call for a batch that this run has written, or is writing, under the same pipeline.

    The ledger has one decision per batch. With a second one, no process could determine after a crash which
    rows were written before it, and another writer would take the batch for done and leave its rows out. A
    call that raised does not count. Without transactions nothing is decided, and the rows of two calls are
    written like those of one.
    """
    if not options.transactional:
        yield
        return
    pipeline = _name_of(options)
    call = (identity.run_id, batch_id)
    with _owners_lock:
        if _calls.get(pipeline) == call:
            raise PipelineConflict(
                f"the writer of pipeline {options.pipeline!r} was called a second time for batch {batch_id}; "
                "the rows of the first call are committed or being written, those of this call are not "
                "written. A batch is one unit of one pipeline: give each frame a writer with a pipeline of "
                "its own, with adopt.checkpoint=true once, and the next start writes these rows too; or, "
                "from a new checkpoint on, pass the union of the frames to one call",
                {"pipeline": options.pipeline, "batch": batch_id, "query": identity.query_id},
            )
        _calls[pipeline] = call
    try:
        yield
    except BaseException:
        with _owners_lock:
            if _calls.get(pipeline) == call:
                del _calls[pipeline]
        raise


def _conf(spark: SparkSession, name: str, default: str) -> str:
    try:
        return str(spark.conf.get(name, default))
    except Exception:  # noqa: BLE001 -- its class differs between classic and Connect
        # Serverless compute hides settings that a user cannot change; speculation is off there.
        return default


__all__ = ["ExactlyOnceWriter"]
