"""Flights in, flights with their airline and plane out; every micro-batch exactly once.

    spark-submit spark_jobs/enrich_flights.py --conf-file conf/enrich_flights.yaml

Owns: the transformation, and the order in which a job starts: its file, Spark, the brokers, the query.
Does not know: how a batch is committed.
Ends with 0 when the trigger's work is done or SIGTERM asked for the end, 2 when the file or an option is wrong, 1 when the
query failed (the next start goes on where it stopped).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector import ExactlyOnceWriter
from connector.errors import ExactlyOnceError, OptionsError
from spark_jobs import flights
from spark_jobs.config import ConfigError, JobConfig, load_config, read_spark_defaults


def enrich(records: DataFrame, airlines: DataFrame, planes: DataFrame) -> DataFrame:
    """The output's records (key, value) for the input's: the flight's JSON with its airline and plane added.

    Left joins: a flight of an unknown airline or plane stays, without them. A value that is no flight stops the query
    (FAILFAST): guessing would either lose it or write something that nobody sent.
    """
    parsed = records.select(
        "key",
        F.from_json(F.col("value").cast("string"), flights.FLIGHT_SCHEMA, {"mode": "FAILFAST"}).alias(
            "flight"
        ),
    )
    wide = parsed.select("key", "flight.*")
    joined = wide.join(F.broadcast(airlines), "carrier", "left").join(F.broadcast(planes), "tailnum", "left")
    names = [name for name in joined.columns if name != "key"]
    return joined.select("key", F.to_json(F.struct(*names)).alias("value"))


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


def run(config: JobConfig) -> None:
    """Run the query until it ends. Raises what stopped it; the checkpoint and the ledger say where to go on."""
    writer = ExactlyOnceWriter(config.sink_options)
    spark = session(config)
    # Spark's INFO lines would bury the few that matter here.
    spark.sparkContext.setLogLevel("WARN")
    writer.validate(spark)
    airlines, planes = (spark.createDataFrame(table) for table in (flights.airlines(), flights.planes()))
    records = spark.readStream.format("kafka_eos").options(**config.source_options).load()
    query = (
        enrich(records, airlines, planes)
        .writeStream.queryName(config.app_name)
        .foreachBatch(writer)
        .option("checkpointLocation", config.checkpoint_location)
        .trigger(**_trigger(config))
        .start()
    )
    query.awaitTermination()


def _trigger(config: JobConfig) -> dict[str, Any]:
    if config.trigger.available_now:
        return {"availableNow": True}
    return {"processingTime": config.trigger.processing_time}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="enrich_flights.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--conf-file", type=Path, required=True, help="YAML file, such as conf/enrich_flights.yaml"
    )
    options = parser.parse_args(arguments)
    try:
        run(load_config(options.conf_file))
    except (ConfigError, OptionsError, flights.DataSetMissing) as error:
        print(f"enrich_flights: {error}", file=sys.stderr)
        return 2
    except ExactlyOnceError as error:
        print(f"enrich_flights: {type(error).__name__}: {error}\nwho acts: {error.who_acts}", file=sys.stderr)
        return 1
    except StreamingQueryException as error:
        print(f"enrich_flights: the query stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
