"""What is done through a door: each part of the product once, small, from its first connection to its end.

Owns: the five uses, and the judgement of each: what the operator wrote before, or finds afterwards with librdkafka.
Does not know: brokers, ways to log in.
Invariants: outputs are read as committed, by a client that shares no code with the product, and compared record by
record.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.cli.app import app
from tests.security.ways import Door
from tests.support.committed import Unreadable
from tests.support.committed import committed as committed_values

ROWS, PARTITIONS = 20, 2
_FORMAT = "kafka_eos"
_WAIT_S = 120.0
_numbers = itertools.count(1)


class Differs(Exception):
    """The records are not those that they should be."""


@dataclass(frozen=True)
class Scene:
    """One door with a topic that has `ROWS` records."""

    spark: SparkSession
    door: Door
    source: str
    folder: Path

    @property
    def values(self) -> list[str]:
        """The records of the source's topic."""
        return [f"{self.source} {number}" for number in range(ROWS)]

    def read(self) -> DataFrame:
        """The source as a stream."""
        reader = self.spark.readStream.format(_FORMAT).options(**self.door.given)
        return reader.options(subscribe=self.source, startingOffsets="earliest").load()

    def fresh(self, use: str) -> tuple[str, str, dict[str, str]]:
        """A name for a pipeline with an output of its own, a checkpoint, and the sink's options."""
        name = f"{use}-{next(_numbers)}"
        make_topics(self.door, [name])
        options = {**self.door.given, "topic": name, "pipeline": name, "ledger.topic": f"{name}.ledger"}
        return name, str(self.folder / name), options


def prepared(spark: SparkSession, door: Door, folder: Path) -> Scene:
    """A scene with its records in place."""
    scene = Scene(spark, door, f"in-{next(_numbers)}", folder)
    make_topics(door, [scene.source])
    producer = Producer(dict(door.operator))
    for number, value in enumerate(scene.values):
        producer.produce(scene.source, value.encode(), partition=number % PARTITIONS)
    if producer.flush(_WAIT_S):
        raise Differs("the operator could not write the source's records")
    return scene


def make_topics(door: Door, names: Iterable[str]) -> None:
    """Make topics; they exist afterwards."""
    admin = AdminClient(dict(door.operator))
    # An answer of the token callback arrives in poll().
    admin.poll(0)
    for answer in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        answer.result(_WAIT_S)


def committed(door: Door, topic: str) -> Counter[str]:
    """Every committed value of a topic, as librdkafka reads it."""
    try:
        return Counter(value.decode() for value in committed_values(door.operator, topic, PARTITIONS, _WAIT_S))
    except Unreadable as error:
        raise Differs(str(error)) from error


def _same(found: Iterable[str], expected: Iterable[str]) -> str:
    """`20 = 20`; Differs where they are not equal."""
    seen, wanted = Counter(found), Counter(expected)
    if seen != wanted:
        missing, beyond = wanted - seen, seen - wanted
        raise Differs(f"{missing.total()} records missing, {beyond.total()} too many")
    return f"{wanted.total()} = {seen.total()}"


def source(scene: Scene) -> str:
    """A stream is read to its end; its rows are the operator's records."""
    _, checkpoint, _ = scene.fresh("source")
    rows: list[str] = []

    def take(frame: DataFrame, _batch: int) -> None:
        rows.extend(row.value for row in frame.selectExpr("cast(value as string) as value").collect())

    _finish(scene.read().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint), "the source")
    return _same(rows, scene.values)


def sink(scene: Scene) -> str:
    """A stream from Kafka to Kafka by format, its offsets in the pipeline's group."""
    name, checkpoint, options = scene.fresh("format")
    writer = scene.read().selectExpr("value").writeStream.format(_FORMAT).options(**options)
    _finish(writer.option("checkpointLocation", checkpoint), "the sink")
    return _same(committed(scene.door, name).elements(), scene.values)


def each_batch(scene: Scene) -> str:
    """The same by foreachBatch."""
    name, checkpoint, options = scene.fresh("each")
    writer = scene.read().selectExpr("value").writeStream.foreachBatch(ExactlyOnceWriter(options))
    _finish(writer.option("checkpointLocation", checkpoint), "foreachBatch")
    return _same(committed(scene.door, name).elements(), scene.values)


def batch(scene: Scene) -> str:
    """A DataFrame, without a pipeline."""
    name, _, options = scene.fresh("write")
    frame = scene.spark.range(ROWS).selectExpr("concat('row ', id) as value")
    given = {key: value for key, value in options.items() if key not in ("pipeline", "ledger.topic")}
    frame.write.format(_FORMAT).options(**given).mode("append").save()
    return _same(committed(scene.door, name).elements(), [f"row {number}" for number in range(ROWS)])


def doctor(scene: Scene) -> str:
    """`kafka-eos doctor` on the sink and its source finds nothing wrong."""
    name, _, options = scene.fresh("doctor")
    kafka = {key.removeprefix("kafka."): value for key, value in scene.door.given.items()}
    body = {
        "kafka": kafka,
        "source": {"subscribe": scene.source},
        "sink": {key: value for key, value in options.items() if not key.startswith("kafka.")},
    }
    file = scene.folder / f"{name}.yaml"
    file.touch(mode=0o600)
    # A dollar begins a variable of the environment there.
    file.write_text(yaml.safe_dump(body).replace("$", "$$"))
    done = CliRunner().invoke(app, ["doctor", "-c", str(file)], env={**os.environ, "COLUMNS": "200"})
    if done.exit_code != 0:
        raise Differs(f"exit code {done.exit_code}: {done.output}")
    return "exit code 0"


USES: dict[str, Callable[[Scene], str]] = {
    "source": source,
    "sink by format": sink,
    "foreachBatch": each_batch,
    "df.write": batch,
    "doctor": doctor,
}
"""The columns of the table."""


def _finish(writer: object, what: str) -> None:
    query = writer.trigger(availableNow=True).start()  # type: ignore[attr-defined]
    try:
        if not query.awaitTermination(_WAIT_S):
            raise Differs(f"{what} did not end within {_WAIT_S:.0f} s")
    finally:
        query.stop()
