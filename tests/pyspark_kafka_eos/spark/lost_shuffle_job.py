"""An application of its own whose shuffle files are lost in the middle of a batch, with rows that a random salt has
placed.

    python -m tests.pyspark_kafka_eos.spark.lost_shuffle_job <port> <Spark's settings as JSON>

Owns: the plan, the loss, what is told of the end. Reads one play a line, as JSON: folder, way (foreachBatch, format or
df.write), options, whether Spark is told that the salts are others the second time (declared), and whether the files
are to be lost (lose). Answers each with how many files were deleted, and the error's text, "" where there was none. One
task runs after the other (local[1]). The first one of a play waits behind its last row until the files are gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_kafka_eos import ExactlyOnceWriter, register

ROWS = 1000
_HELD_AT_MOST_S = 60.0
"""Half could let a task go before a busy driver has deleted the files; double only delays a failure."""


def main(port: int, settings: dict[str, str]) -> None:
    """The application."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        for line in lines:
            lines.write(json.dumps(play(spark, json.loads(line))) + "\n")
            lines.flush()
    spark.stop()


def play(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """Write the rows, once, in the way that is asked for."""
    with Loss(Path(spark.conf.get("spark.local.dir") or "")) as loss:
        port = loss.port if settings["lose"] else None
        placed = salted(given(spark, settings), port, declared=settings["declared"])
        try:
            write(placed, settings)
            said = ""
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test sees it
            said = str(error) or type(error).__name__
    return {"said": said, "deleted": loss.deleted}


class Loss:
    """Deletes the shuffles' files when the first task says that it has its rows, and lets it go then. Later tasks find
    nobody.
    """

    def __init__(self, local: Path) -> None:
        self.deleted = 0
        self._local = local
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._lose, daemon=True)

    def __enter__(self) -> Loss:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread where nobody came, which a close alone does not.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(_HELD_AT_MOST_S)
        self._listening.close()

    def _lose(self) -> None:
        with contextlib.suppress(OSError):
            held, _ = self._listening.accept()
            self._listening.close()
            with held:
                for path in self._local.rglob("shuffle_*"):
                    path.unlink(missing_ok=True)
                    self.deleted += 1


def given(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """The numbers; as files that a stream reads, where it is one."""
    if settings["way"] == "df.write":
        return spark.range(0, ROWS, 1, 2).selectExpr("string(id) as value")
    files = Path(settings["folder"], "in")
    files.mkdir(exist_ok=True)
    for number in range(2):
        lines = "\n".join(str(number * ROWS // 2 + row) for row in range(ROWS // 2))
        (files / f"{number}.txt").write_text(lines + "\n")
    return spark.readStream.format("text").load(str(files))


def write(placed: DataFrame, settings: dict[str, Any]) -> None:
    """The rows of one batch."""
    way, options = settings["way"], settings["options"]
    if way == "df.write":
        placed.write.format("kafka_eos").mode("append").options(**options).save()
        return
    query = placed.writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", str(Path(settings["folder"], "checkpoint")))
    if way == "format":
        query = query.format("kafka_eos").options(**options)
    else:
        query = query.foreachBatch(ExactlyOnceWriter(options))
    query.start().awaitTermination()


def salted(numbers: DataFrame, port: int | None, *, declared: bool) -> DataFrame:
    """The rows in two partitions by a random salt. `port`: whom the first task tells that it has its rows, and waits
    for.
    """

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if port is not None and context is not None and context.partitionId() == 0:
            # Refused: the files are gone already.
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", port), _HELD_AT_MOST_S) as held,
            ):
                held.recv(1)

    salt = sf.udf(lambda _: random.random(), "double")
    if declared:
        salt = salt.asNondeterministic()
    placed = numbers.withColumn("salt", salt("value")).repartition(2, "salt").select("value")
    return placed.mapInArrow(hold, "value string")


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
