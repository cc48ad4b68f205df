"""The programs of docs/recipes.md about Delta tables, each run in an application of its own that is killed or comes to
its end.

    python -m tests.docs.recipes_delta SETTINGS_AS_JSON

Owns: the session with the page's settings, the rows, where the application dies. Settings: `program`: a key of
PROGRAMS; bootstrap, topic, folder, jars; `rounds`: [first, last] of the rows that come before each run of the program,
an empty round for none; `crash`: where the last of these runs dies, a point of the commit for a program that writes to
Kafka, else one of `dying`, for which `agent` is Byteman's jar;
`result`: where its outcome is written at its end.
Does not know: what is right.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.recipes import PAGE, changed
from tests.support.spark_session import SMALL, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADINGS = TO_KAFKA, TO_DELTA = "From a Delta table to Kafka", "From Kafka to a Delta table"


def section(heading: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def blocks_of(heading: str) -> list[str]:
    """The pieces of Python under a heading of the page."""
    return re.findall(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)


def delta() -> tuple[str, str, str]:
    """The artifact that the page has Spark fetch: group, name, version."""
    (found,) = re.findall(r"--packages (\S+):(\S+):(\S+)", section(TO_KAFKA))
    return found


def delta_settings() -> dict[str, str]:
    """The settings that the page has Spark start with."""
    return dict(re.findall(r"--conf ([\w.]+)=(\S+)", section(TO_KAFKA)))


def delta_to_kafka() -> str:
    """The whole program."""
    (program,) = blocks_of(TO_KAFKA)
    return program


def kafka_to_delta() -> str:
    """The rows, and Delta's own sink."""
    rows, by_format, _ = blocks_of(TO_DELTA)
    return rows + by_format


def kafka_to_delta_by_foreach_batch() -> str:
    """The same rows, and the function."""
    rows, _, by_foreach_batch = blocks_of(TO_DELTA)
    return rows + by_foreach_batch


PROGRAMS: Mapping[str, Callable[[], str]] = {
    "delta-to-kafka": delta_to_kafka,
    "kafka-to-delta": kafka_to_delta,
    "kafka-to-delta-foreachBatch": kafka_to_delta_by_foreach_batch,
}


def table_of(folder: Path) -> Path:
    return folder / "table"


def checkpoint_of(folder: Path) -> Path:
    return folder / "checkpoint"


def program_of(settings: Mapping[str, Any]) -> str:
    """The page's program with the test's places for the page's."""
    name, folder = settings["program"], Path(settings["folder"])
    to_kafka = name == "delta-to-kafka"
    places = {
        '"broker:9092"': json.dumps(settings["bootstrap"]),
        '"/tables/orders"': json.dumps(str(table_of(folder))),
        f'"/checkpoints/orders-to-{"kafka" if to_kafka else "delta"}"': json.dumps(checkpoint_of(folder).as_uri()),
    }
    if to_kafka:
        places['topic="orders", pipeline="orders-to-kafka"'] = (
            f'topic="{settings["topic"]}", pipeline="{settings["topic"]}"'
        )
    else:
        places['subscribe="orders"'] = f'subscribe="{settings["topic"]}"'
    return changed(PROGRAMS[name](), places)


def main(settings: Mapping[str, Any]) -> None:
    """The application."""
    folder = Path(settings["folder"])
    crash, to_kafka = settings.get("crash", ""), settings["program"] == "delta-to-kafka"
    if crash and to_kafka:
        from tests.pyspark_kafka_eos.spark.sink import crashing_sink

        os.environ.update({
            crashing_sink.POINT: crash, crashing_sink.PROOF: str(folder / "crash"), crashing_sink.GROUP: str(os.getpgid(0)),
        })  # fmt: skip
    spark = session(folder, settings)
    program = program_of(settings)
    feed = _feed_table if to_kafka else _feed_topic
    for number, rows in enumerate(settings["rounds"], 1):
        if rows:
            feed(spark, settings, *rows)
        if crash and to_kafka and number == len(settings["rounds"]):
            spark.dataSource.register(crashing_sink.CrashingSource)
            program = changed(program, {'format("kafka_eos")': 'format("kafka_eos_crashing")'})
        exec(compile(program, PAGE.name, "exec"), {"spark": spark})
    table = spark.read.format("delta").load(str(table_of(folder)))
    values = [row[0] for row in table.select("id" if to_kafka else "value").collect()]
    Path(settings["result"]).write_text(json.dumps(values))
    spark.stop()


def session(folder: Path, settings: Mapping[str, Any]) -> SparkSession:
    from pyspark_kafka_eos import register

    confs = {
        **SMALL,
        "spark.jars": settings["jars"],
        **delta_settings(),
        # 50 tasks to read a log of four lines.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    if settings.get("crash") and settings["program"] != "delta-to-kafka":
        rule = folder / "crash.btm"
        rule.write_text(dying(settings["crash"], folder / "crash"))
        confs["spark.driver.extraJavaOptions"] = f"-javaagent:{settings['agent']}=script:{rule}"
    spark = spark_session(folder, confs)
    register(spark)
    return spark


def dying(where: str, proof: Path) -> str:
    """A rule for Byteman by which the driver dies as Delta writes a version into its log. `where`: ENTRY or EXIT, and
    the version; at the entry the batch's files are there and no version has them, at the exit Delta knows of the batch
    and Spark does not.
    """
    moment, _, version = where.partition(":")
    # SIGKILL for the driver's Python; its JVM, which cannot send itself one, ends without its shutdown hooks.
    return f"""\
RULE the driver dies
CLASS io.delta.storage.HDFSLogStore
METHOD write
AT {moment}
BIND driver : java.lang.ProcessHandle = java.lang.ProcessHandle.of({os.getpid()}L).get()
IF $1.getName().equals("{int(version):020}.json")
DO traceOpen("proof", "{proof}"), traceln("proof", "reached"), traceClose("proof"), driver.destroyForcibly(), killJVM()
ENDRULE
"""


def _feed_table(spark: SparkSession, settings: Mapping[str, Any], first: int, last: int) -> None:
    """Rows in two files, so that the batch has two tasks."""
    rows = spark.range(first, last, 1, 2).selectExpr("id", "concat('item ', id) AS item")
    rows.write.format("delta").mode("append").save(str(table_of(Path(settings["folder"]))))


def _feed_topic(_: SparkSession, settings: Mapping[str, Any], first: int, last: int) -> None:
    """A committed record for each number, and an aborted one for each before them and after them."""
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": settings["bootstrap"], "transactional.id": f"feed-{settings['topic']}", "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(60)
    for kept in (False, True, False):
        producer.begin_transaction()
        for number in range(first, last):
            value = f"item {number}" if kept else f"aborted {number}"
            producer.produce(settings["topic"], value, key=str(number))
        assert producer.flush(60) == 0
        if kept:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
