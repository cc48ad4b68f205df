"""What every job has in common: its command line, its Spark session, one query from start to end, its exit codes.

Owns: the order in which a job starts (its file, Spark, the brokers, the query), SIGTERM, what is said when it ends.
Does not know: what a job reads, transforms and writes.
Invariants: nothing is started before the file is found right; a job that ends, however it ends, goes on where it stopped
when it is started again.

Exit codes: 0 when the trigger's work is done or SIGTERM asked this process for the end; 2 when the file or an option is
wrong, so that starting again is no use; 1 when the query failed. SIGTERM to `spark-submit` itself goes to its JVM, which
takes everything down at once and ends with 143: as safe as any other death, only less tidy.
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

from connector.errors import ExactlyOnceError, OptionsError
from spark_jobs.config import AnyConfig, ConfigError, JobConfig, load_config, read_spark_defaults

_LOOK_AGAIN_AFTER_S = 1
"""How often the job looks whether SIGTERM has come. At half it only asks Spark oftener; at ten times this the answer to
SIGTERM takes a third of the 30 s after which schedulers usually send SIGKILL."""


class CannotStart(Exception):
    """Something that the job needs is missing where it runs; the message says what. Nothing was written."""


def main(
    prepare: Callable[[SparkSession, AnyConfig], DataStreamWriter],
    form: type[AnyConfig],
    about: str | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the job with the file that the command line names; returns the exit code.

    `prepare` gives the query as far as it is the job's own; its name, checkpoint and trigger come from the file, which has
    the form `form`. `about`: the job's docstring.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--conf-file", type=Path, required=True, help="YAML file, as those in conf/")
    options = parser.parse_args(arguments)
    name = parser.prog.removesuffix(".py")
    try:
        run(prepare, load_config(options.conf_file, form))
    except (ConfigError, OptionsError, CannotStart) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ExactlyOnceError as error:
        print(f"{name}: {type(error).__name__}: {error}\nwho acts: {error.who_acts}", file=sys.stderr)
        return 1
    except StreamingQueryException as error:
        print(f"{name}: the query stopped: {error}", file=sys.stderr)
        return 1
    return 0


def run(prepare: Callable[[SparkSession, AnyConfig], DataStreamWriter], config: AnyConfig) -> None:
    """Run the query until it ends, or until SIGTERM. Raises what stopped it."""
    spark = session(config)
    # Spark's INFO lines would bury the few that matter here.
    spark.sparkContext.setLogLevel("WARN")
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

    # Starts the JVM, so that what spark-submit was told is seen as set and wins.
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
    """Return when the query has ended; SIGTERM stops it. A micro-batch that is being written then is given up and done
    again by the next start, or, if it is decided, finished by it."""
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        while not query.awaitTermination(_LOOK_AGAIN_AFTER_S):
            if asked:
                query.stop()
                return
    finally:
        signal.signal(signal.SIGTERM, before)
