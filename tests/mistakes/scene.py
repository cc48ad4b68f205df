"""One Spark, one embedded broker, and what an error of a query says.

Owns: queries that are started with a mistake and waited for; the first line of what their user reads.
Does not know: which mistakes there are.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC as LEDGER
from tests.support.committed import committed

WITHIN_S = 180
_LOOK_AGAIN_AFTER_S = 0.2
OURS = re.compile(r"kafka_core\.errors\.(\w+): (.*)")
"""Python's line of one of our errors in the text that Spark makes of it."""


@dataclass(frozen=True)
class Told:
    """What the user was told: after how many seconds, an error of which class (None: the query went on), and its first
    line, or what was noted.
    """

    seconds: float
    kind: str | None
    line: str


class Scene:
    """A session, a broker with topics `t1`, `t2`, `out` and `small`, and a folder for checkpoints."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark, self.servers, self.folder = spark, servers, folder
        topics = [NewTopic(name, 2, 1) for name in ("t1", "t2", "out", "out2")]
        topics.append(NewTopic("small", 2, 1, config={"max.message.bytes": "2000"}))
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics(topics).values():
            made.result(30)
        self.fill("t1", 20)

    def fill(self, topic: str, records: int) -> None:
        """Put records into a topic, as anybody might."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(records):
            producer.produce(topic, str(number))
        assert producer.flush(30) == 0

    def checkpoint(self) -> str:
        """A new one."""
        return tempfile.mkdtemp(dir=self.folder)

    def rows(self, *columns: str) -> DataFrame:
        """A stream of ten rows a batch, with a number `value`."""
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        return source.selectExpr(*(columns or ("cast(value as string) as value",)))

    def records(self, **options: str) -> DataFrame:
        """A stream of the source by format."""
        given = {"kafka.bootstrap.servers": self.servers, **options}
        return self.spark.readStream.format("kafka_eos").options(**given).load()

    def write(
        self,
        frame: DataFrame | None = None,
        *without: str,
        mode: str = "append",
        batches: int = 1,
        every: str = "0 seconds",
        **options: str,
    ) -> None:
        """Run a query that writes, until it has failed or has written some batches. `every`: the time between two."""
        with self.running(frame, *without, mode=mode, batches=batches, every=every, **options):
            pass

    @contextmanager
    def running(
        self,
        frame: DataFrame | None = None,
        *without: str,
        mode: str = "append",
        batches: int = 1,
        every: str = "0 seconds",
        **options: str,
    ) -> Iterator[None]:
        """A query that has written some batches and goes on; `without`: names of options that are usual and not
        given.
        """
        given = {
            "kafka.bootstrap.servers": self.servers, "topic": "out", "pipeline": f"p{time.time_ns()}",
            "checkpointLocation": self.checkpoint(), **options,
        }  # fmt: skip
        for name in without:
            del given[name]
        writing = (self.rows() if frame is None else frame).writeStream.format("kafka_eos").outputMode(mode)
        with self._running(writing.options(**given).trigger(processingTime=every).start(), batches):
            yield

    @contextmanager
    def running_function(self, function: Callable[[DataFrame, int], None], *, batches: int) -> Iterator[None]:
        """The same of a query by foreachBatch, over `rows`."""
        writing = self.rows().writeStream.foreachBatch(function)
        with self._running(writing.option("checkpointLocation", self.checkpoint()).start(), batches):
            yield

    @contextmanager
    def _running(self, query: StreamingQuery, batches: int) -> Iterator[None]:
        until = time.monotonic() + WITHIN_S
        try:
            while query.lastProgress is None or int(query.lastProgress["batchId"]) + 1 < batches:
                if query.awaitTermination(_LOOK_AGAIN_AFTER_S):
                    break
                assert time.monotonic() < until, f"neither failed nor written within {WITHIN_S} s"
            yield
        finally:
            query.stop()

    def warnings_of(self, pipeline: str, *, expected: bool = False) -> str:
        """What the pipeline's decisions note; with `expected` the first note is waited for."""
        until = time.monotonic() + WITHIN_S
        while not (found := self._noted(pipeline)) and expected:
            assert time.monotonic() < until, f"no decision of {pipeline} had a note within {WITHIN_S} s"
            time.sleep(_LOOK_AGAIN_AFTER_S)
        return found

    def _noted(self, pipeline: str) -> str:
        settings = {"bootstrap.servers": self.servers}
        topics = AdminClient(settings).list_topics(LEDGER, timeout=WITHIN_S).topics
        values = committed(settings, LEDGER, len(topics[LEDGER].partitions), WITHIN_S)
        decisions = [found for found in map(json.loads, filter(None, values)) if found.get("pipeline") == pipeline]
        return " ".join(warning for each in decisions for warning in each.get("warnings", ()))


def told(act: Callable[[], str | None]) -> Told:
    """Do it, and read what its user would."""
    began = time.monotonic()
    try:
        noted = act()
    except Exception as error:  # noqa: BLE001  Spark's and ours, of whatever class
        seconds, text = time.monotonic() - began, str(error)
        # The last one: a cause is printed before what was raised from it.
        found = OURS.findall(text)
        kind, line = found[-1] if found else (type(error).__name__, text.strip().splitlines()[0])
        return Told(seconds, kind, line)
    return Told(time.monotonic() - began, None, noted or "")
