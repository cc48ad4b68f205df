"""Whether a reader ever sees a part of a micro-batch: looks at the last stable offsets while a job runs, judged
afterwards.

Owns: when to look, what a look means, the judgement.
Does not know: how the job commits, in which scope.
Invariants: a finding is a moment at which a read_committed reader could read some records of a batch and not the
others, and at which no coordinator was writing markers.

The argument. A read_committed reader can read exactly the committed records below the last stable offset (LSO) of their
partition; so what is visible at a moment follows from the LSOs of that moment and from which records are committed in
the end. (Aborted records never show; one read of everything at the end tells the committed ones.) Offsets of several
partitions cannot be asked for at one moment, and Kafka itself does not write the markers of one transaction at one
moment: after the coordinator has logged PrepareCommit it writes them one by one, which takes milliseconds and needs
nobody's further word. So a look is three steps: the LSOs (`first`), then waiting until no transaction of the pipeline
is in a Prepare state, then the LSOs again (`second`). LSOs only grow, so a batch of which anything is below `first`
began to show before the wait was over. Where its records are one transaction, that transaction had logged PrepareCommit
before `first` was complete; after the wait it is complete, and a coordinator says so only when every marker is written;
so everything is below `second`. Where they are several transactions, some may be open still: then a part shows, for as
long as it takes their owner to end them, and `second` has the one and not the other. No clock and no tolerance is
needed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import ClientSettings

_PREPARING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True)
class Look:
    """Last stable offsets by partition, before and after nothing was in a Prepare state."""

    first: Mapping[int, int]
    second: Mapping[int, int]


@dataclass(frozen=True)
class Record:
    """A committed record: where it stands and which batch it is of."""

    partition: int
    offset: int
    batch: int


@dataclass(frozen=True)
class PartSeen:
    """A batch of which a look saw some records and missed others."""

    batch: int
    seen: int
    of: int


def parts_seen(looks: Sequence[Look], records: Sequence[Record]) -> list[PartSeen]:
    """Every look at a part of a batch, in order. `records`: all committed ones, read when nothing changes any more."""
    sizes = Counter(record.batch for record in records)
    found: list[PartSeen] = []
    for look in looks:
        begun = {record.batch for record in records if record.offset < look.first[record.partition]}
        seen = Counter(record.batch for record in records if record.offset < look.second[record.partition])
        found += [PartSeen(batch, seen[batch], sizes[batch]) for batch in sorted(begun) if seen[batch] < sizes[batch]]
    return found


def different(looks: Sequence[Look]) -> list[Look]:
    """Looks that saw something new; a job's pauses are looked at many times."""
    return [look for before, look in zip([None, *looks], looks, strict=False) if look != before]


@dataclass
class Watcher:
    """Looks at a topic again and again until the block ends."""

    bootstrap_servers: str
    pipeline: str
    topic: str
    partitions: int = 4
    looks: list[Look] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> Watcher:
        self._stop = threading.Event()
        self._consumer = Consumer(self._settings())
        self._cluster = Cluster(ClientSettings((self.bootstrap_servers,)))
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        self._cluster.close()

    def records(self) -> list[Record]:
        """All committed records, by librdkafka; values begin with the batch's number and a point (`7.`)."""
        consumer = Consumer({**self._settings(), "enable.partition.eof": True})
        found: list[Record] = []
        ended: set[int] = set()
        try:
            consumer.assign([TopicPartition(self.topic, number, 0) for number in range(self.partitions)])
            while len(ended) < self.partitions:
                for message in consumer.consume(1000, timeout=0.2):
                    if message.error():
                        ended.add(message.partition())
                    else:
                        batch = int(message.value().split(b".")[0])
                        found.append(Record(message.partition(), message.offset(), batch))
        finally:
            consumer.close()
        return found

    def look(self) -> Look:
        """One look."""
        first = self._stable()
        while any(name.startswith(f"{self.pipeline}:") for name in admin.list_transactions(self._cluster, _PREPARING)):
            self._cluster.pause(1)
        return Look(first, self._stable())

    def _stable(self) -> dict[int, int]:
        return {
            number: self._consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=10.0)[1]
            for number in range(self.partitions)
        }

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                self.looks.append(self.look())
        except (ExactlyOnceError, Exception) as error:  # noqa: BLE001 -- the test reads why nobody watched
            self.failures.append(repr(error))

    def _settings(self) -> dict[str, str | bool]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "visibility",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
