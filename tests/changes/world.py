"""The world of one cell: clusters, topics, a query with its settings, and an independent reader who counts.

Owns: what there is and what is set, feeding the source, the judge.
Does not know: which changes there are, when they come.
Invariants:
- The reader is librdkafka, read_committed. It is asked for every row by its value, and for the row's key and time.
- What a change deletes is read first: a record that readers had seen counts, whatever became of its topic.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from tests.changes.processes import ManyProcesses, many_processes
from tests.changes.small_spark import Checkpoint, Query, Row, named_partition, task_contexts

SOURCE, OUTPUT, DEAD, LEDGER = "src", "out", "dead", DEFAULT_LEDGER_TOPIC
TURNS = f"{LEDGER}-turns"
PIPELINE = "orders"
LARGE = 1000
"""Bytes that a record of the output may have: of each batch one row is larger."""
PARTITIONS = {SOURCE: 2, OUTPUT: 3, DEAD: 2}
ROWS = 12
"""Of a batch: enough for three slots that each write to several partitions."""

_QUIET = {"log_level": 0, "log.connection.close": False}
_WAIT_S = 30.0

Seen = tuple[str, bytes | None, int]
"""Value, key, time of a record."""


@dataclass
class World:
    """See the module. `sink`, `source`: the clusters on which the query has them now."""

    many: ManyProcesses
    directory: Path
    way: str
    scope: str
    version: int
    clusters: dict[str, EmbeddedKafka] = field(default_factory=dict)
    sink: str = "first"
    source: str = "first"
    parallelism: int = 3
    sink_options: dict[str, str] = field(default_factory=dict)
    source_options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)
    jobs: list[list[Row]] = field(default_factory=list)
    fed: dict[str, Seen] = field(default_factory=dict)
    excused: set[str] = field(default_factory=set)
    """Rows that a change itself took away before the query could read them."""
    shifts: tuple[int, ...] = (0,)
    """By how much a record's time may differ from the one that it was fed with, in ms; all of a batch by the same."""
    any_time: bool = False
    """The topic gives the records times of its own."""
    deleted: Counter[Seen] = field(default_factory=Counter)
    """What readers had seen in topics that a change has deleted."""
    outputs: list[tuple[str, str]] = field(default_factory=list)
    undo: Callable[[], None] | None = None
    """Puts back what the change changed, where that can be."""
    at_the_end: Callable[[], None] = lambda: None
    """Looks at what is there when the query has nothing more to read, or is refused."""

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint(self.directory / "checkpoint")
        self._admins: dict[str, AdminClient] = {}
        self._fed_on: dict[str, set[str]] = {}
        self._times = 1_700_000_000_000
        self.outputs = [("first", OUTPUT), ("first", DEAD)]

    # ---- clusters and topics

    def start_cluster(self, name: str) -> EmbeddedKafka:
        """A cluster with the job's topics."""
        config = {"transaction.version": str(self.version)}
        broker = EmbeddedKafka(
            data_dir=self.directory / name, in_process=True, config={"log.retention.ms": "-1", **config}
        )
        self.clusters[name] = broker.start()
        for topic, partitions in PARTITIONS.items():
            limit = {"max.message.bytes": str(LARGE)} if topic == OUTPUT else {}
            self.create(topic, partitions, cluster=name, **limit)
        return broker

    def address(self, cluster: str) -> str:
        """Of the cluster."""
        return self.clusters[cluster].bootstrap_servers

    def admin(self, cluster: str = "first") -> AdminClient:
        """Another client's."""
        if cluster not in self._admins:
            self._admins[cluster] = AdminClient({"bootstrap.servers": self.address(cluster), **_QUIET})
        return self._admins[cluster]

    def create(self, topic: str, partitions: int, *, cluster: str = "first", **settings: str) -> None:
        """A topic, by another client."""
        _done(self.admin(cluster).create_topics([NewTopic(topic, partitions, 1, config=settings)]))

    def make_anew(self, topic: str, partitions: int | None = None, cluster: str = "first") -> None:
        """Delete a topic and create it again. What its readers had seen is kept in mind."""
        count = partitions or self.partitions(topic, cluster)
        if (cluster, topic) in self.outputs:
            self.deleted += self.visible([(cluster, topic)])
        settings = {"cleanup.policy": "compact"} if topic == LEDGER else {}
        _done(self.admin(cluster).delete_topics([topic]))
        self.create(topic, count, cluster=cluster, **settings)

    def partitions(self, topic: str, cluster: str = "first") -> int:
        """How many a topic has; 0 where there is none."""
        found = self.admin(cluster).list_topics(timeout=_WAIT_S).topics.get(topic)
        return len(found.partitions) if found is not None else 0

    def topic_id(self, topic: str, cluster: str = "first") -> str:
        """Of the topic that has the name now."""
        found = self.admin(cluster).describe_topics(TopicCollection([topic]))[topic].result(_WAIT_S)
        return str(UUID(bytes=base64.b64decode(f"{found.topic_id}==", altchars=b"-_")))

    def add_partitions(self, topic: str, count: int, cluster: str = "first") -> None:
        """To so many."""
        _done(self.admin(cluster).create_partitions([NewPartitions(topic, count)]))

    def set(self, topic: str, cluster: str = "first", **settings: str) -> None:
        """Settings of a topic, `_` for a point."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        _done(self.admin(cluster).incremental_alter_configs([changed]))

    def delete_records(self, topic: str, cluster: str = "first", at: int = -1) -> None:
        """All records of a topic, or those before an offset."""
        if (cluster, topic) in self.outputs:
            self.deleted += self.visible([(cluster, topic)])
        parts = [TopicPartition(topic, each, at) for each in range(self.partitions(topic, cluster))]
        _done(self.admin(cluster).delete_records(parts))

    def lose_newest(self, topic: str, partition: int, cluster: str = "first", records: int = 3) -> None:
        """An unclean election, without so many records of the partition, and what else was in their first one's
        batch.
        """
        reader = Consumer({"bootstrap.servers": self.address(cluster), "group.id": "judge", **_QUIET})
        try:
            end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_WAIT_S)[1]
        finally:
            reader.close()
        self.clusters[cluster].elect_leader(topic, partition, lost_from=max(0, end - records))

    def commit_to_the_end(self, group: str) -> None:
        """As another query whose sink has this group, and which has read all that is there."""
        reader = Consumer({"bootstrap.servers": self.address(self.source), "group.id": group, **_QUIET})
        try:
            places = [TopicPartition(SOURCE, each) for each in range(self.partitions(SOURCE, self.source))]
            for each in places:
                each.offset = reader.get_watermark_offsets(each, timeout=_WAIT_S)[1]
            reader.commit(offsets=places, asynchronous=False)
        finally:
            reader.close()

    def in_source(self) -> Counter[Seen]:
        """What the source has."""
        return self._read(self.source, SOURCE)

    # ---- the query

    def start(self) -> Query:
        """A run of the query under the settings of now, in processes of its own."""
        sink = {
            "kafka.bootstrap.servers": self.address(self.sink), "pipeline": PIPELINE, "topic": OUTPUT, "dead.letter.topic": DEAD,
            "transaction.scope": self.scope, "kafka.delivery.timeout.ms": "30000", **self.sink_options,
        }  # fmt: skip
        source = {
            "kafka.bootstrap.servers": self.address(self.source), "subscribe": SOURCE, "startingOffsets": "earliest",
            **self.source_options,
        }  # fmt: skip
        sink = {name: text for name, text in sink.items() if text}
        return Query(
            self.many, self.checkpoint, self.way, sink, source, self.parallelism, self.conf, self.hooks, self.jobs
        )  # fmt: skip

    def feed(self, count: int = ROWS, topic: str = SOURCE) -> None:
        """New rows in the source, one of which cannot be written to the output."""
        first, partitions = len(self.fed), self.partitions(topic, self.source)
        producer = Producer({"bootstrap.servers": self.address(self.source), "linger.ms": 0, **_QUIET})
        job: list[Row] = []
        for number in range(first, first + count):
            key, at = f"k{number}".encode(), self._times + number * 1000
            value = f"r{number}" + {5: "-bad", 7: "-large" + "x" * 2 * LARGE}.get(number % ROWS, "")
            self.fed[value] = (value, key, at)
            self._fed_on.setdefault(self.source, set()).add(value)
            producer.produce(topic, value, key, partition=number % partitions, timestamp=at)
            job.append((key, value, named_partition(value), at))
        producer.flush(_WAIT_S)
        self.jobs.append(job)

    def fed_on(self, cluster: str) -> set[str]:
        """The rows whose source was there when they came."""
        return self._fed_on.get(cluster, set())

    def newest_decision(self) -> tuple[bytes, bytes, int]:
        """Key, value and partition of the newest record under the pipeline's key."""
        reader = Consumer({"bootstrap.servers": self.address(self.sink), "group.id": "judge", "isolation.level": "read_uncommitted",
            "enable.partition.eof": True, **_QUIET})  # fmt: skip
        try:
            parts = range(self.partitions(LEDGER, self.sink))
            reader.assign([TopicPartition(LEDGER, each, 0) for each in parts])
            found, ended = [], 0
            while ended < len(parts):
                for message in reader.consume(500, timeout=0.05):
                    ended += message.error() is not None
                    if message.error() is None and message.key() == PIPELINE.encode() and message.value():
                        found.append((message.key(), message.value(), message.partition()))
            return found[-1]
        finally:
            reader.close()

    def decided_batch(self) -> int:
        """The batch of the newest decision."""
        return int(json.loads(self.newest_decision()[1])["batch_id"])

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        """A record, by another client."""
        producer = Producer({"bootstrap.servers": self.address(self.sink), **_QUIET})
        producer.produce(topic, value, key, partition=partition)
        producer.flush(_WAIT_S)

    # ---- the judge

    def visible(self, places: list[tuple[str, str]] | None = None) -> Counter[Seen]:
        """What readers of committed records see, in the outputs and among the dead letters."""
        found: Counter[Seen] = Counter()
        for cluster, topic in self.outputs if places is None else places:
            found += self._read(cluster, topic)
        return found

    def _read(self, cluster: str, topic: str) -> Counter[Seen]:
        count = self.partitions(topic, cluster)
        found: Counter[Seen] = Counter()
        if not count:
            return found
        reader = Consumer({
            "bootstrap.servers": self.address(cluster), "group.id": "judge", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10,
            **_QUIET,
        })  # fmt: skip
        try:
            # Asked by number: librdkafka takes half a second longer to find a beginning by itself.
            places = [TopicPartition(topic, each) for each in range(count)]
            for each in places:
                each.offset = reader.get_watermark_offsets(each, timeout=_WAIT_S)[0]
            reader.assign(places)
            ended: set[int] = set()
            deadline = time.monotonic() + _WAIT_S
            while len(ended) < count:
                assert time.monotonic() < deadline, f"{topic} was not read to its end"
                for message in reader.consume(500, timeout=0.05):
                    if message.error():
                        ended.add(message.partition())
                    else:
                        value = message.value().decode()
                        at = 0 if topic.startswith(DEAD) or self.any_time else message.timestamp()[1]
                        found[value, message.key(), at] += 1
            return found
        finally:
            reader.close()

    def verdict(self, *, whole: bool) -> list[str]:
        """What is wrong with the output: rows that are there too often, that were never fed, and where the query is at
        its end (`whole`) those that are missing.
        """
        seen, counts = Counter[Seen](), Counter[str]()
        doubled: set[str] = set()
        for cluster in self.clusters:
            here = self.visible([place for place in self.outputs if place[0] == cluster])
            # A query that has moved to another cluster has no place where it could see what the first one has.
            here += self.deleted if cluster == "first" else Counter()
            numbers = Counter[str]()
            for (value, _, _), number in here.items():
                numbers[value] += number
            doubled |= {value for value, number in numbers.items() if number > 1}
            seen += here
        problems = []
        shifts: dict[int, set[int]] = {}
        for (value, key, at), number in seen.items():
            counts[value] += number
            fed = self.fed.get(value)
            if fed is None:
                problems.append(f"{value} was never fed")
            elif fed[1] != key or (at and at - fed[2] not in self.shifts):
                problems.append(f"{value[:12]} has key {key!r} and time {at}, fed with {fed[1]!r} and {fed[2]}")
            elif at:
                shifts.setdefault(list(self.fed).index(value) // ROWS, set()).add(at - fed[2])
        problems += [f"batch {batch} has times of {len(each)} zones" for batch, each in shifts.items() if len(each) > 1]
        missing = sorted(value for value in self.fed if value not in counts and value not in self.excused)
        if doubled:
            problems.append(f"{len(doubled)} rows come more than once: {_names(sorted(doubled))}")
        if whole and missing:
            problems.append(f"{len(missing)} of {len(self.fed)} rows are missing: {_names(missing)}")
        return problems


def _names(values: list[str]) -> str:
    return ", ".join(value[:12] for value in values[:5])


def _done(answers: dict[Any, Any]) -> None:
    for each in answers.values():
        each.result(_WAIT_S)


@contextmanager
def world(way: str, scope: str, version: int) -> Iterator[World]:
    """A world with one cluster and its topics. Nothing of it is left."""
    with (
        tempfile.TemporaryDirectory(prefix="changes-", ignore_cleanup_errors=True) as directory,
        many_processes() as many,
        task_contexts(),
    ):
        made = World(many, Path(directory), way, scope, version)
        try:
            made.start_cluster("first")
            yield made
        finally:
            many.end_all()
            made._admins.clear()
            for broker in made.clusters.values():
                broker.stop()
