"""The query, the run and the checkpoint that a micro-batch belongs to, from what Spark tells a function of `foreachBatch`.

Owns: finding the query by the calling thread, by the frame's session, or by the checkpoint; whether a number is that of its running batch.
Does not know: what is written.
Invariants:
- A frame that is of no running query is refused.
- A number that is not the running micro-batch's is refused: under an older one the rows would be taken for committed, and left out.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from connector.errors import OptionsError, PipelineConflict
from connector.options import SinkOptions
from connector.spark.java import java_class
from connector.spark.offset_log import is_newest, is_passed
from connector.spark.tasks import BATCH_ID, QUERY_ID


class QueryIdentity:
    """The query, run and checkpoint of a micro-batch: by its thread, or by its frame's session in a thread of the function's own."""

    def __init__(
        self, query_id: str, run_id: str, checkpoint: str | None, batch_id: str | None = None
    ) -> None:
        """`batch_id`: the micro-batch that Spark has told the calling thread of; None where it has not, as on Spark Connect."""
        self.query_id = query_id
        self.run_id = run_id
        self.checkpoint = checkpoint
        self.batch_id = batch_id

    def require_running(self, spark: SparkSession, batch_id: int, *, begins: bool) -> None:
        """OptionsError where `batch_id` is not that of the running micro-batch. `begins`: this is the run's first batch here; where only
        the checkpoint can tell, it is asked then."""
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

    @staticmethod
    def of(spark: SparkSession, options: SinkOptions) -> QueryIdentity:
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
        checkpoint = options.checkpoint_location or _checkpoint_of(query, query_id)
        # Spark passes the run to neither tasks nor functions. Its id is also the job group, which a function
        # may change.
        run_id = context.getLocalProperty("spark.jobGroup.id") if query is None else query.runId().toString()
        return QueryIdentity(str(query_id), str(run_id), checkpoint, context.getLocalProperty(BATCH_ID))

    @staticmethod
    def _from_checkpoint(spark: SparkSession, options: SinkOptions) -> QueryIdentity:
        import json

        if options.checkpoint_location is None:
            raise OptionsError(
                "on Spark Connect the writer cannot see the query's checkpoint; give it the option checkpointLocation too"
            )
        path = f"{options.checkpoint_location.rstrip('/')}/metadata"
        query_id = str(json.loads(spark.read.text(path).collect()[0][0])["id"])
        return QueryIdentity(query_id, query_id, options.checkpoint_location)


def _query_of_session(spark: SparkSession) -> Any:
    """The running query whose batches have this session, None where there is none.

    Spark clones the session of a query for its batches, so a frame of a batch, and all that is made of it, has a session
    that no other query has.
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


def _checkpoint_of(query: Any, query_id: str) -> str:
    """Where the running query keeps its checkpoint. Asked of Spark, so it cannot differ from the one that
    Spark uses."""
    if query is None:
        raise PipelineConflict(
            "Spark does not list the running query, so its checkpoint and the batch's source offsets are "
            "unknown; nothing was written; give the writer the query's own checkpointLocation",
            {"query": query_id},
        )
    return str(query.resolvedCheckpointRoot())


__all__ = ["QueryIdentity", "running_query"]
