"""The query, the run and the checkpoint that a micro-batch belongs to, from what Spark tells a function of
`foreachBatch`.

Owns: finding the query by the calling thread, by the frame's session, or by the checkpoint; whether a number is that of
its running batch; whether the option checkpointLocation names the query's own checkpoint.
Does not know: what is written.
Invariants:
- A frame that is of no running query is refused.
- Where Spark tells the query's checkpoint, that one is read, whatever the option names; and an option that names
  another query's is refused: with its source offsets the consumer group would get those of the other, and an older
  checkpoint would not be noticed.
- A number that is not the running micro-batch's is refused: under an older one the rows would be taken for committed,
  and left out.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from kafka_core.errors import OptionsError, PipelineConflict
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.java import java_class
from pyspark_kafka_eos.spark.offset_log import is_committed, is_newest, is_passed, read_text
from pyspark_kafka_eos.spark.sink.tasks import BATCH_ID, QUERY_ID


class QueryIdentity:
    """The query, run and checkpoint of a micro-batch: by its thread, or by its frame's session in a thread of the
    function's own.
    """

    def __init__(
        self,
        query_id: str,
        run_id: str,
        checkpoint: str | None,
        batch_id: str | None = None,
        *,
        named: str | None = None,
        told_by_spark: bool = True,
    ) -> None:
        """`checkpoint`: the query's own, None where Spark does not tell. `batch_id`: the micro-batch that Spark has
        told the calling thread of; None where it has not, as on Spark Connect. `named`: what the option
        checkpointLocation says. `told_by_spark`: whether the query is known from Spark, not from that checkpoint.
        """
        self.query_id = query_id
        self.run_id = run_id
        self.checkpoint = checkpoint or named
        self.batch_id = batch_id
        self._own = checkpoint
        self._named = named
        self._told_by_spark = told_by_spark

    def require_running(self, spark: SparkSession, batch_id: int, *, begins: bool) -> None:
        """OptionsError where `batch_id` is not that of the running micro-batch. `begins`: this is the run's first batch
        here; where only the checkpoint can tell, it is asked then.
        """
        if self.batch_id == str(batch_id) or self.checkpoint is None:
            return
        if self.batch_id is None:
            running = "a later one"
            wrong = begins and is_passed(spark, self.checkpoint, batch_id)
        else:
            # A thread that the function keeps from one batch to the next may have an older batch's number.
            running = f"batch {self.batch_id}"
            wrong = not is_newest(spark, self.checkpoint, batch_id)
        if wrong:
            raise OptionsError(
                f"the writer was called for batch {batch_id}, but the running micro-batch is {running}; nothing was written, because under "
                "another number rows are left out or written twice. Call it with the number that Spark gave the function: "
                "foreachBatch(writer), or foreachBatch(lambda df, batch_id: writer(df, batch_id))",
                {"batch": batch_id, "running_batch": self.batch_id, "query": self.query_id},
            )

    def require_own_checkpoint(self, spark: SparkSession, batch_id: int) -> None:
        """PipelineConflict where the option checkpointLocation names another query's checkpoint. It may read a file:
        ask once per run.

        Spark Connect does not tell which query runs. There an own checkpoint is known by its commit log, which does not
        have the running batch yet; another query's that is at the same batch at this moment is not told from it.
        """
        named = self._named
        if named is None:
            return
        if not self._told_by_spark:
            if is_committed(spark, named, batch_id):
                raise self._of_another(
                    f"the checkpoint of query {self.query_id}, which has finished batch {batch_id} already; the running query begins "
                    f"batch {batch_id}, so this is another one's checkpoint, or a copy",
                    "set it to what the query's own writeStream has as checkpointLocation",
                )
            return
        own = self._own
        if own is not None and _plain(own) == _plain(named):
            return
        # Another name may lead to the same place (a link, s3a: for s3:), so the ids decide.
        found = _query_of(spark, named)
        if found != self.query_id:
            raise self._of_another(
                f"the checkpoint of query {found}; the running query is {self.query_id}"
                + (f", and its checkpoint is {own}" if own else ""),
                "leave the option out, Spark tells the writer the query's own checkpoint"
                if own
                else "set it to what the query's own writeStream has as checkpointLocation",
            )

    def _of_another(self, whose: str, way_on: str) -> PipelineConflict:
        return PipelineConflict(
            f"the writer's option checkpointLocation names {self._named}, {whose}; nothing was written: the batch's source offsets would be "
            f"those of another query; {way_on}",
            {"checkpoint": self._named or "", "query": self.query_id},
        )

    @staticmethod
    def of_session(spark: SparkSession, options: SinkOptions) -> QueryIdentity:
        context = getattr(spark, "_sc", None)
        if context is None:
            return QueryIdentity._from_checkpoint(spark, options)
        query_id = context.getLocalProperty(QUERY_ID)
        query = _query_of_session(spark) if query_id is None else running_query(spark, context, query_id)
        if query_id is None and query is None:
            raise OptionsError(
                "this frame is no micro-batch of a running query: pass the writer to writeStream.foreachBatch, or call it there with "
                "the function's own frame; nothing was written. Where the function calls it in threads, and the frame comes from another "
                "session, give them the query by pyspark.inheritable_thread_target"
            )
        query_id = query.id().toString() if query_id is None else query_id
        named = options.checkpoint_location
        checkpoint = _checkpoint_of(query, query_id, needed=named is None)
        # Spark passes the run to neither tasks nor functions. Its id is also the job group, which a function
        # may change.
        run_id = context.getLocalProperty("spark.jobGroup.id") if query is None else query.runId().toString()
        told = context.getLocalProperty(BATCH_ID)
        return QueryIdentity(str(query_id), str(run_id), checkpoint, told, named=named)

    @staticmethod
    def _from_checkpoint(spark: SparkSession, options: SinkOptions) -> QueryIdentity:
        named = options.checkpoint_location
        if named is None:
            raise OptionsError(
                "on Spark Connect the writer cannot see the query's checkpoint; give it the option checkpointLocation too"
            )
        query_id = _query_of(spark, named)
        return QueryIdentity(query_id, query_id, None, named=named, told_by_spark=False)


def _query_of_session(spark: SparkSession) -> Any:
    """The running query whose batches have this session, None where there is none.

    Spark clones the session of a query for its batches, so a frame of a batch, and all that is made of it, has a
    session that no other query has.
    """
    session = spark._jsparkSession
    try:
        running = list(session.sharedState().activeStreamingQueries().values())
        return next((query for query in running if query.sparkSessionForStream().equals(session)), None)
    except Exception:  # noqa: BLE001 -- a platform may forbid such questions to the JVM, with a class of its own
        return None


def running_query(spark: SparkSession, context: Any, query_id: str) -> Any:
    """The running query of this id, None where Spark lists none."""
    # From the state that all sessions share: a batch runs in a clone of the query's session, and the clone's
    # own list of streaming queries is empty.
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    return running.get(java_class(context, "java.util.UUID").fromString(query_id))


def _checkpoint_of(query: Any, query_id: str, *, needed: bool) -> str | None:
    """Where the running query keeps its checkpoint. Asked of Spark, so it cannot differ from the one that
    Spark uses. `needed`: no option names one, so Spark has to tell; None where it does not."""
    if query is not None:
        try:
            return str(query.resolvedCheckpointRoot())
        except Exception:
            # A platform may forbid the question; then the option is what there is.
            if needed:
                raise
    elif needed:
        raise PipelineConflict(
            "Spark does not list the running query, so its checkpoint and the batch's source offsets are "
            "unknown; nothing was written; give the writer the query's own checkpointLocation",
            {"query": query_id},
        )
    return None


def _query_of(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query that a checkpoint belongs to. Spark writes it before a query's first batch."""
    try:
        return str(json.loads(read_text(spark, f"{checkpoint.rstrip('/')}/metadata"))["id"])
    except Exception as error:
        raise OptionsError(
            f"the writer's option checkpointLocation names {checkpoint}, where no query's metadata can be read ({type(error).__name__}), so it "
            "is not the checkpoint of the running query; nothing was written; set it to what the query's own writeStream has as "
            "checkpointLocation, or leave it out: it is needed on Spark Connect only",
            {"checkpoint": checkpoint},
        ) from error


def _plain(location: str) -> str:
    """A location in one form: Spark shows that of a local path with its scheme."""
    scheme, _, rest = location.rstrip("/").partition("file:")
    return location.rstrip("/") if scheme else "/" + rest.lstrip("/")


__all__ = ["QueryIdentity", "running_query"]
