"""What is run in each row of the matrix, by the row's Python and against the wheel.

    python -m tests.matrix.job <settings as JSON>

Owns: three small applications: the sink by format, killed after its decision and started again; foreachBatch, with a
restart; a DataFrame written, read, streamed on by the source, and the ledger as a DataFrame.
Does not know: whether the output is right, which another client judges in another process.
Settings: folder, servers, topics (by name), mode. The last line of the output is the versions and the seconds, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.matrix.expected import AFTER_THE_DECISION, BATCHES, ROWS


def main(settings: dict[str, Any]) -> None:
    """The three applications, one after the other."""
    from tests.pyspark_kafka_eos.spark.sink.sink_job import run_job

    seconds: dict[str, float] = {}
    connect = settings["mode"] == "connect"
    for way in ("format", "foreachBatch"):
        began = time.monotonic()
        folder = Path(settings["folder"], way)
        folder.mkdir()
        job = {
            "folder": str(folder), "way": way, "rows": ROWS, "batches": BATCHES - 1, "connect": connect,
            "options": {
                "kafka.bootstrap.servers": settings["servers"], "topic": settings["topics"][way], "pipeline": f"matrix-{way}",
            },
        }  # fmt: skip
        # On Connect the function runs in a process of the server's, out of a crash point's reach: it gets a restart
        # only.
        killed = way == "format" or not connect
        first = run_job(**job, crash=AFTER_THE_DECISION) if killed else run_job(**job)
        if first.exitcode != (-signal.SIGKILL if killed else 0) or first.said:
            sys.exit(f"{way}: the first run ended with {first.exitcode}, {first.said}\n{first.log[-6000:]}")
        again = run_job(**{**job, "batches": BATCHES})
        if (again.exitcode, again.said) != (0, ""):
            sys.exit(f"{way}: the second run ended with {again.exitcode}, {again.said}\n{again.log[-6000:]}")
        seconds[way] = round(time.monotonic() - began, 1)
    # An application of its own: the third one has its session in its process, as users have.
    began = time.monotonic()
    ended = os.spawnv(
        os.P_WAIT, sys.executable,
        [sys.executable, "-m", "tests.matrix.job", json.dumps({**settings, "tables": True})],
    )  # fmt: skip
    if ended:
        sys.exit(f"the tables ended with {ended}")
    seconds["tables"] = round(time.monotonic() - began, 1)
    import pyspark

    import pyspark_kafka_eos

    print(
        json.dumps({
            "python": sys.version.partition(" ")[0], "pyspark": pyspark.__version__, "seconds": seconds,
            "package": pyspark_kafka_eos.__file__,
        })
    )  # fmt: skip


def tables(settings: dict[str, Any]) -> None:
    """df.write, spark.read, a stream from Kafka to Kafka, the ledger."""
    from embedded_kafka.real.java import require_java
    from tests.pyspark_kafka_eos.spark.sink.sink_job import session

    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(settings["folder"], "tables")
    folder.mkdir()
    spark = session(folder, {"connect": settings["mode"] == "connect"})
    servers = {"kafka.bootstrap.servers": settings["servers"]}
    topics = settings["topics"]
    frame = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
    frame.write.format("kafka_eos").options(**servers, topic=topics["write"], pipeline="matrix-write").mode(
        "append"
    ).save()
    source = {**servers, "subscribe": topics["write"], "startingOffsets": "earliest"}
    read = spark.read.format("kafka_eos").options(**source).load()
    count = read.selectExpr("cast(value as string) as value").distinct().count()
    if count != ROWS:
        sys.exit(f"the batch source read {count} of {ROWS} rows")
    query = (
        spark.readStream.format("kafka_eos").options(**source).load().selectExpr("cast(value as string) as value")
        .writeStream.format("kafka_eos").options(**servers, topic=topics["stream"], pipeline="matrix-stream")
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    if not query.awaitTermination(300):
        sys.exit("the stream from Kafka to Kafka does not end")
    ledger = spark.read.format("kafka_eos").options(**servers, ledger="matrix-stream").load()
    decided = ledger.selectExpr("status", "records").collect()
    if {row["status"] for row in decided} != {"decided"} or sum(row["records"] for row in decided) != ROWS:
        sys.exit(f"the ledger has {decided}")
    spark.stop()


if __name__ == "__main__":
    # So that it ends its applications; SIGINT would be ignored where the shell that began all this ignores it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = json.loads(sys.argv[1])
    (tables if given.get("tables") else main)(given)
