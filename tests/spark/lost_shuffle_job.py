"""An application of its own whose shuffle files are lost in the middle of a batch, with rows that a random salt has placed.

    python -m tests.spark.lost_shuffle_job <settings as JSON>

Owns: the plan, the loss, what is told of the end. Settings: folder, options; `way`: foreachBatch, format or df.write. One task after the
other runs (local[1]). The first one waits behind its last row until the files are gone; of a folder whose files are gone
already nothing is lost. Tells the error's text, "" where there was none.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS = 1000


def main(settings: dict[str, Any]) -> None:
    """The application."""
    from pyspark.sql import SparkSession

    from connector.local.java import require_java
    from pyspark_kafka_eos import register

    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    folder = Path(settings["folder"])
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    register(spark)
    threading.Thread(target=lose, args=(folder,), daemon=True).start()
    try:
        write(spark, settings)
        said = ""
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test sees it
        said = str(error) or type(error).__name__
    (folder / "said").write_text(said)
    spark.stop()


def write(spark: Any, settings: dict[str, Any]) -> None:
    """The rows, once, in the way that is asked for."""
    folder, options, way = Path(settings["folder"]), settings["options"], settings["way"]
    if way == "df.write":
        given = spark.range(0, ROWS, 1, 2).selectExpr("string(id) as value")
        salted(given, folder).write.format("kafka_eos").mode("append").options(**options).save()
        return
    (folder / "in").mkdir(exist_ok=True)
    for number in range(2):
        lines = "\n".join(str(number * ROWS // 2 + row) for row in range(ROWS // 2))
        (folder / "in" / f"{number}.txt").write_text(lines + "\n")
    given = spark.readStream.format("text").load(str(folder / "in"))
    query = salted(given, folder).writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    if way == "format":
        query = query.format("kafka_eos").options(**options)
    else:
        from connector import ExactlyOnceWriter

        query = query.foreachBatch(ExactlyOnceWriter(options))
    query.start().awaitTermination()


def salted(given: Any, folder: Path) -> Any:
    """The rows in two partitions by a random salt, and the wait."""
    from pyspark import TaskContext
    from pyspark.sql import functions as sf

    sealed, lost = folder / "sealed", folder / "lost"

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0 and not sealed.exists():
            sealed.touch()
            deadline = time.monotonic() + 60
            while not lost.exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    salt = sf.udf(lambda _: random.random(), "double").asNondeterministic()
    placed = given.withColumn("salt", salt("value")).repartition(2, "salt").select("value")
    return placed.mapInArrow(hold, "value string")


def lose(folder: Path) -> None:
    """Delete the shuffle's files once the first task waits; once for each folder."""
    if (folder / "lost").exists():
        return
    while not (folder / "sealed").exists():
        time.sleep(0.05)
    for path in (folder / "local").rglob("shuffle_*"):
        path.unlink(missing_ok=True)
    (folder / "lost").touch()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
