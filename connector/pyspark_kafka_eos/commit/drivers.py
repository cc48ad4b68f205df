"""The driver of a pipeline's batches: the one choice by the options.

Owns: that choice.
Does not know: how any of them commits.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.plain import PlainDriver
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.options import SinkOptions

Driver = PerTask | WholeBatch | PlainDriver
"""One run of one query. All have `start`, `plan`, `process` and `abandon`."""


def driver_for(
    cluster: Cluster,
    options: SinkOptions,
    query_id: str,
    beside: Collection[str] = (),
    offset_log: OffsetLog | None = None,
) -> Driver:
    """The driver that the options select. `beside`: other pipelines that this run of the query writes. `offset_log`: of
    a streaming query with a checkpoint.
    """
    if not options.transactional:
        return PlainDriver(cluster, options)
    driver = pipeline_driver(cluster, options, query_id)
    driver.run.beside, driver.run.offset_log = beside, offset_log
    return driver


def pipeline_driver(
    cluster: Cluster, options: SinkOptions, query_id: str, before: Run | None = None
) -> PerTask | WholeBatch:
    """A run, with the scope that the options name to commit its batches. `before`: as `Run` takes it."""
    run = Run(cluster, options, query_id, before)
    return WholeBatch(run) if options.scope == "batch" else PerTask(run)
