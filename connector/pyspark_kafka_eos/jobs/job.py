"""The common part of every job: its command line, its Spark session, one query from start to end, its exit
codes.

Owns: the order in which a job starts (its file, Spark, the brokers, the query), SIGTERM, the messages at its
end.
Does not know: what a job reads, transforms and writes.
Invariants:
- Nothing is started before the file has passed its checks.
- After any kind of end, a restarted job continues where it stopped.

Exit codes:
- 0: the trigger's work is done, or SIGTERM ended this process.
- 1: the query failed.
- 2: configuration error in the file or an option; do not retry.
SIGTERM to `spark-submit` itself goes to its JVM, which stops everything at once and exits with 143: as safe
as any other crash, only less orderly.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafka_core.errors import ExactlyOnceError, OptionsError
from pyspark_kafka_eos.jobs.config import AnyConfig, ConfigError, JobConfig, load_config, read_spark_defaults
from pyspark_kafka_eos.spark.registration import register

_LOOK_AGAIN_AFTER_S = 1
"""How often the job checks for SIGTERM. Half only polls Spark more often; at ten times this the reaction to
SIGTERM takes a third of the 30 s after which schedulers usually send SIGKILL."""


class CannotStart(Exception):
    """Something that the job needs is missing where it runs; the message names it. Nothing was written."""


def main(
    prepare: Callable[[SparkSession, AnyConfig], DataStreamWriter],
    form: type[AnyConfig],
    about: str | None,
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
) -> int:
    """Run the job with the file that the command line names; returns the exit code.

    `prepare` returns the job's own part of the query; its name, checkpoint and trigger come from the file,
    which has the form `form`. `about`: the job's docstring. `prog`: the words that start it; by default the script's
    name.
    """
    parser = argparse.ArgumentParser(prog=prog, description=(about or "").partition("\n")[0])
    parser.add_argument("--conf-file", type=Path, required=True, help="YAML file, as `kafka-eos job init` writes it")
    options = parser.parse_args(arguments)
    name = parser.prog.removesuffix(".py")
    try:
        run(prepare, load_config(options.conf_file, form))
    except (ConfigError, OptionsError, CannotStart) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ExactlyOnceError as error:
        acts = error.who_acts_at_the_end or error.who_acts
        print(f"{name}: {type(error).__name__}: {error}\nwho acts: {acts}", file=sys.stderr)
        return 1
    except StreamingQueryException as error:
        print(f"{name}: the query stopped: {error}", file=sys.stderr)
        return 1
    return 0


def run(prepare: Callable[[SparkSession, AnyConfig], DataStreamWriter], config: AnyConfig) -> None:
    """Run the query until it ends, or until SIGTERM. Raises the error that stopped it."""
    spark = session(config)
    # Spark's INFO lines would hide the few that matter here.
    spark.sparkContext.setLogLevel("WARN")
    # A job runs where its cluster has it run; without a cache for the kernels it is only slower to start.
    register(spark, require_cache=False)
    query = (
        prepare(spark, config)
        .queryName(config.app_name)
        .option("checkpointLocation", config.checkpoint_location)
        .trigger(**config.trigger.arguments)
        .start()
    )
    _await_end(query)


def session(config: JobConfig) -> SparkSession:
    """A Spark session with the settings of the file `spark_defaults` wherever spark-submit and the cluster set none."""
    from pyspark import SparkContext

    # Starts the JVM first, so settings from spark-submit are visible and take precedence.
    SparkContext._ensure_initialized()
    from pyspark import SparkConf

    given = SparkConf()
    builder = SparkSession.builder.appName(config.app_name)
    settings = {} if config.spark_defaults is None else read_spark_defaults(config.spark_defaults)
    for name, value in settings.items():
        if not given.contains(name):
            builder = builder.config(name, value)
    return builder.getOrCreate()


def _await_end(query: StreamingQuery) -> None:
    """Return when the query has ended; SIGTERM stops it. A micro-batch being written at that moment is
    abandoned. The next start repeats it, or finishes it if it is decided."""
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        while not query.awaitTermination(_LOOK_AGAIN_AFTER_S):
            if asked:
                query.stop()
                return
    finally:
        signal.signal(signal.SIGTERM, before)
