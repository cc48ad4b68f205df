"""A Spark application with the JVM's own Kafka source and sink, run by the Python that has pyspark 4.0.0.

    python spark_job.py <bootstrap servers> <jars> <source topic> <target topic> <directory for checkpoints>

Prints one line of JSON: how many rows each step has seen. Knows nothing of this project.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame

from tests.support.spark_session import SMALL, spark_session

ROWS = 1_000


def main(bootstrap_servers: str, jars: str, source: str, target: str, directory: str) -> None:
    """Batch write, batch read, and twice a stream from topic to topic that goes on where it was."""
    spark = spark_session(directory, {**SMALL, "spark.jars": jars}, log_level="ERROR")
    address = {"kafka.bootstrap.servers": bootstrap_servers}

    def write(first: int) -> None:
        rows = spark.range(first, first + ROWS, 1, 2)
        columns = rows.selectExpr("CAST(id AS STRING) AS key", "CAST(concat('v', id) AS STRING) AS value")
        columns.write.format("kafka").options(**address).option("topic", source).save()

    def read(topic: str) -> DataFrame:
        options = {
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }
        return spark.read.format("kafka").options(**address, **options).load()

    def stream() -> None:
        options = {"subscribe": source, "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka").options(**address, **options).load()
        writer = rows.select("key", "value").writeStream.format("kafka").options(**address).option("topic", target)
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()

    write(0)
    seen = {"batch": read(source).count(), "distinct": read(source).select("value").distinct().count()}
    stream()
    seen["first run"] = read(target).count()
    write(ROWS)
    stream()
    seen["second run"] = read(target).count()
    seen["keys"] = read(target).select("key").distinct().count()
    print(json.dumps(seen))  # noqa: T201  what the test reads
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
