"""Flights in, flights with their airline and plane out; every micro-batch exactly once.

    spark-submit spark_jobs/enrich_flights.py --conf-file conf/enrich_flights.yaml

Owns: the transformation, and the query around it.
Does not know: how a batch is committed.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_kafka_eos.jobs.config import KafkaToKafka
from pyspark_kafka_eos.jobs.job import CannotStart, main
from pyspark_kafka_eos.jobs.to_kafka import to_kafka
from spark_jobs import flights


def enrich(records: DataFrame, airlines: DataFrame, planes: DataFrame) -> DataFrame:
    """The output's records (key, value) for the input's: the flight's JSON with its airline and plane added.

    Left joins: a flight of an unknown airline or plane stays, without them. A value that is not a flight
    stops the query (FAILFAST): guessing would either lose it or write a record that was never sent.
    """
    parsed = records.select(
        "key",
        F.from_json(F.col("value").cast("string"), flights.FLIGHT_SCHEMA, {"mode": "FAILFAST"}).alias("flight"),
    )
    wide = parsed.select("key", "flight.*")
    joined = wide.join(F.broadcast(airlines), "carrier", "left").join(F.broadcast(planes), "tailnum", "left")
    names = [name for name in joined.columns if name != "key"]
    return joined.select("key", F.to_json(F.struct(*names)).alias("value"))


def prepare(spark: SparkSession, config: KafkaToKafka) -> DataStreamWriter:
    """The query, not yet started. Raises every error that can be found before it starts."""
    try:
        airlines, planes = (spark.createDataFrame(table) for table in (flights.airlines(), flights.planes()))
    except flights.DataSetMissing as error:
        raise CannotStart(str(error)) from error
    records = spark.readStream.format("kafka_eos").options(**config.source_options).load()
    return to_kafka(enrich(records, airlines, planes), config)


if __name__ == "__main__":
    sys.exit(main(prepare, KafkaToKafka, __doc__))
