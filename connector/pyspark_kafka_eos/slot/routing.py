"""Where the rows of a slot go: finds topics, assigns partitions, packs records into open sections.

Owns: a slot's topics with their rules, the memory that open sections share, how an error describes the row.
Does not know: transactions, how a section is sent, what becomes of rows that cannot be written.
Invariants:
- A batch whose rows are refused leaves nothing of itself in a section.
- Where unwritable rows do not fail the batch, a slot waits only once for a new topic to appear in the metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_core import runtime
from kafka_core.errors import InvalidRow, RetriableError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS
from pyspark_kafka_eos.client.requests.topic_settings import topic_rules
from pyspark_kafka_eos.model import Basis, Expired, RoutedTopic, TopicRules
from pyspark_kafka_eos.records import (
    BATCH_OVERHEAD_BYTES,
    Partitioner,
    RecordColumns,
    Section,
    SectionWriter,
    encode_topics,
    topic_seed,
)
from pyspark_kafka_eos.records.judging import (
    Reasons,
    TopicIndex,
    broken_rules,
    expired,
    judge,
    legal_name,
    refused,
    require_times,
)
from pyspark_kafka_eos.slot.plan import WritePlan

SECTIONS_BYTES = 64 * 1024 * 1024
"""Memory for the sections that a task is filling, over all partitions: with more than 64 of them batches get smaller
than 1 MB. Double would leave too little of a worker's 512 MB; half costs a wide topic its large batches."""

SMALLEST_SECTION_BYTES = 16 * 1024
"""Java's default batch size: below it the header and the request outweigh the records."""


Bytes = npt.NDArray[np.int64]


class Router:
    """Rows of one slot in, sections for `where` out. Not for several threads.

    Rows without a key go to one partition until it has the plan's `sticky_bytes` of them, then to the next. The first
    one depends on slot and batch, so that a job with one task does not fill one partition only.
    """

    def __init__(self, cluster: Cluster, plan: WritePlan, slot: int) -> None:
        self.plan = plan
        self.slot = slot
        self._cluster = cluster
        self._topics: list[str] = []
        self._where: list[TopicPartition] = []
        self._rules: list[TopicRules] = []
        self._ruled = dict(plan.basis.topics)
        self._judged_ms = plan.basis.judged_ms or plan.planned_ms or int(runtime.time() * 1000)
        self._timed = False
        self._expired: list[Expired] = []
        self._routed: dict[str, RoutedTopic] = {}
        self._decided = plan.routes.of_slot(slot)
        self._followed: dict[str, RoutedTopic] = {}
        self._asked_again: set[str] = set()
        begin = slot + max(0, plan.batch_id)
        self._partitioner = Partitioner([], sticky_start=begin, sticky_bytes=plan.sticky_bytes)
        self._sections: SectionWriter | None = None
        self._unknown: set[str] = set()
        self._unknown_since = 0.0

    def pack(self, batch: pa.RecordBatch) -> Iterator[Section]:
        """The batch's sections as they get full. InvalidRow or UnknownTopic: nothing of it was packed."""
        topic_index = self._topic_index(batch)
        try:
            columns = _columns(batch)
            sections = self._sections_for(columns, batch, topic_index)
            self._require_taken(columns, topic_index)
            targets = self._partitioner.assign(columns, topic_index, _partitions(batch))
            self._note_expired(columns, topic_index)
            return sections.append(columns, targets, int(runtime.time() * 1000))
        except InvalidRow as error:
            self._look_again(error)
            raise self._explain(error, batch) from None

    def pack_fitting(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Iterator[Section], pa.RecordBatch, Bytes]:
        """Pack rows that can be refused for their size only. Returns (the rows that fit, their sections as
        they get full, the rows that are too large, how many bytes each of these would take)."""
        columns = _columns(batch)
        topic_index = self._topic_index(batch)
        sections = self._sections_for(columns, batch, topic_index)
        targets = self._partitioner.assign(columns, topic_index, _partitions(batch))
        sizes, fits = sections.fits(columns, targets)
        self._note_expired(columns, topic_index)
        kept = batch.filter(pa.array(fits))
        full = sections.append(_columns(kept), targets[fits], int(runtime.time() * 1000))
        return kept, full, batch.filter(pa.array(~fits)), sizes[~fits]

    def flush(self) -> Iterator[Section]:
        """What is left."""
        return self._sections.flush() if self._sections is not None else iter(())

    def where(self, section: Section) -> TopicPartition:
        """Where a section goes."""
        return self._where[section.partition]

    def limit_of(self, topic: str) -> int | None:
        """The largest record batch that the topic takes, None where no row went there."""
        return self._rules[self._topics.index(topic)].max_batch_bytes if topic in self._topics else None

    def judge(self, batch: pa.RecordBatch) -> Reasons:
        """Why each row cannot be written, but for its size."""
        return judge(batch, self.plan.topic, self.partitions_of, self.rules_of, self._judged_ms)

    def rules_of(self, topic: str) -> TopicRules:
        """What a topic takes: as the decision has it, where the batch is decided, else by the topic's settings."""
        known = self._ruled.get(topic)
        if known is not None:
            return known
        return replace(topic_rules(self._cluster, topic), must_keep=self.plan.on_expired == "refuse")

    @property
    def basis(self) -> Basis:
        """What the rows so far were judged by."""
        return Basis("", self._judged_ms if self._timed else 0, tuple(zip(self._topics, self._rules, strict=False)))

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, 0 where it does not exist."""
        try:
            self._find_topic(topic)
        except UnknownTopic:
            return 0
        # Those that this task has sections for: partitions that are added meanwhile are the next task's.
        return (self._routed.get(topic) or self._route_by(topic)).partitions

    def _route_by(self, topic: str) -> RoutedTopic:
        if topic not in self._followed:
            self._followed[topic] = routed_as_decided(self._cluster, topic, self.plan, self.slot)
        return self._followed[topic]

    @property
    def topics(self) -> Collection[RoutedTopic]:
        """The topics of the rows so far, as they are routed by."""
        return self._routed.values()

    def _sections_for(self, columns: RecordColumns, batch: pa.RecordBatch, topic_index: TopicIndex) -> SectionWriter:
        if self._sections is None:
            self._sections = SectionWriter(
                0,
                np.zeros(0, dtype=np.int64),
                explicit_timestamps=columns.timestamp_ms is not None,
                digest_seeds=np.zeros(0, dtype=np.uint64),
            )
        self._timed = self._timed or columns.timestamp_ms is not None
        for index in range(len(self._rules), len(self._topics)):
            self._add_topic(index, self._sections, batch, topic_index)
        return self._sections

    def _add_topic(
        self,
        index: int,
        sections: SectionWriter,
        batch: pa.RecordBatch,
        topic_index: TopicIndex,
    ) -> None:
        topic = self._topics[index]
        rules = self.rules_of(topic)
        limit = rules.max_batch_bytes
        # What a decided batch was judged by may be more than the topic takes by now.
        now = limit if topic not in self._ruled else topic_rules(self._cluster, topic).max_batch_bytes
        routed = self._route_by(topic)
        if topic not in self._decided and _highest_partition(batch, topic_index, index) >= routed.partitions:
            # A row names a partition that may have been added since this process asked.
            routed = routed_topic(self._cluster, topic, refresh=True)
        self._routed[topic] = routed
        count = routed.partitions
        share = max(SMALLEST_SECTION_BYTES, SECTIONS_BYTES // (len(self._where) + count))
        usable = max(1, min(self.plan.batch_bytes, limit, now, share) - BATCH_OVERHEAD_BYTES)
        # A record that is alone in its batch may use all that the topic allows, however small batch_bytes is.
        alone = max(1, limit - BATCH_OVERHEAD_BYTES)
        if self.plan.compression != "none":
            alone = self.plan.max_unpacked_bytes
        if self.plan.max_request_bytes is not None:
            alone = min(alone, self.plan.max_request_bytes)
        self._partitioner.add_topic(count)
        seeds = np.full(count, topic_seed(topic), dtype=np.uint64)
        sections.grow(count, seeds, np.full(count, usable, dtype=np.int64), hard_limit_bytes=alone)
        self._rules.append(rules)
        self._where.extend(TopicPartition(topic, number) for number in range(count))

    @property
    def expired(self) -> tuple[Expired, ...]:
        """The rows so far that are older than their topics' retention."""
        return Expired.of_all(self._expired)

    def _note_expired(self, columns: RecordColumns, topic_index: TopicIndex) -> None:
        for index, rows, oldest_ms in expired(self._rules, topic_index, columns.timestamp_ms, self._judged_ms):
            keeps_ms = self._rules[index].keeps_ms
            assert keeps_ms is not None
            self._expired.append(Expired(self._topics[index], rows, oldest_ms, keeps_ms))

    def _require_taken(self, columns: RecordColumns, topic_index: TopicIndex) -> None:
        """InvalidRow for the first row that its topic would not take."""
        stamps = columns.timestamp_ms
        broken = broken_rules(self._rules, topic_index, columns.key, stamps, self._judged_ms, columns.num_rows)
        if broken:
            reason, row = min(((reason, int(np.argmax(bad))) for reason, bad in broken), key=lambda each: each[1])
            rules = self._rules[topic_index if isinstance(topic_index, int) else int(topic_index[row])]
            stamp = None if stamps is None else int(stamps[row])
            raise refused(reason, rules, stamp, self._judged_ms, row)

    def _topic_index(self, batch: pa.RecordBatch) -> TopicIndex:
        # The option wins over the column, as in Spark's sink.
        if self.plan.topic is not None:
            if not self._topics:
                self._topics.append(self.plan.topic)
            return 0
        codes, names = encode_topics(batch.column("topic"))
        missing = np.flatnonzero(codes < 0)
        if len(missing):
            raise InvalidRow(
                "a row has no topic: its topic column is null and the option topic is not set; nothing of the "
                "micro-batch is visible; set the option topic or give every row one",
                {"row": int(missing[0]), "slot": self.slot},
            )
        for name in names:
            if name not in self._topics:
                self._find_topic(name)
                self._topics.append(name)
        mapping = np.array([self._topics.index(name) for name in names], dtype=np.int32)
        return mapping.take(codes).astype(np.int32)

    def _find_topic(self, name: str) -> None:
        """UnknownTopic where a topic that a row names does not exist. With dead letters, an unknown topic is requested
        once, and only the first one gets the time that a new topic may take: there may be as many names as rows.
        """
        if self.plan.dead_letter_topic is None:
            self._cluster.topic(name)
            return
        # A topic that a decided batch does not know was made since: its rows were dead letters.
        made_since = bool(self._ruled) and name not in self._ruled
        if made_since or name in self._unknown or not legal_name(name):
            raise UnknownTopic("a row names a topic that does not exist", {"topic": name})
        waited_ms = (runtime.monotonic() - self._unknown_since) * 1000 if self._unknown_since else 0
        try:
            self._cluster.topic(name, new_topic_ms=max(0, NEW_TOPIC_MS - round(waited_ms)))
        except UnknownTopic:
            self._unknown_since = self._unknown_since or runtime.monotonic() - NEW_TOPIC_MS / 1000
            self._unknown.add(name)
            raise

    def _look_again(self, error: InvalidRow) -> None:
        """RetriableError where the partition that a row names has been added since this task began. Asked once for each
        topic.
        """
        index, partition = error.facts.get("topic_index"), error.facts.get("partition")
        if not isinstance(index, int) or not isinstance(partition, int) or partition < 0:
            return
        topic = self._topics[index]
        if topic in self._asked_again or topic in self._decided:
            return
        self._asked_again.add(topic)
        count = len(self._cluster.topic(topic, refresh=True).leaders)
        if partition < count:
            raise RetriableError(
                "the topic has more partitions than when this task began; the task has to run again, which Spark does where "
                "spark.task.maxFailures allows it; else start the query again; nothing of the micro-batch is visible",
                {"topic": topic, "partition": partition, "partitions": count, "slot": self.slot},
            )

    def _explain(self, error: InvalidRow, batch: pa.RecordBatch) -> InvalidRow:
        """The same error with the facts by which the user finds the row: its topic and key."""
        row = error.facts.get("row")
        facts = {name: value for name, value in error.facts.items() if name not in ("topic_index", "row")}
        if isinstance(row, int) and row < batch.num_rows:
            facts["topic"] = self.plan.topic or batch.column("topic")[row].as_py()
            key = batch.column("key")[row].as_py() if "key" in batch.schema.names else None
            facts["key"] = _readable(key)
        facts["slot"] = self.slot
        message = error.message
        if facts.get("limit_bytes") == BATCH_OVERHEAD_BYTES + self.plan.max_unpacked_bytes:
            message = (
                f"a record has more than {self.plan.max_unpacked_bytes} bytes before compression, and max.unpacked.bytes allows no more; "
                "nothing was packed. Make the row smaller, or raise the option here and where the topic is read"
            )
        return type(error)(f"{message}; nothing of the micro-batch is visible", facts)


def _columns(batch: pa.RecordBatch) -> RecordColumns:
    names = batch.schema.names
    stamps: npt.NDArray[np.int64] | None = None
    if "timestamp" in names:
        stamps = require_times(batch.column("timestamp"))
    return RecordColumns(
        key=batch.column("key") if "key" in names else None,
        value=batch.column("value"),
        headers=batch.column("headers") if "headers" in names else None,
        timestamp_ms=stamps,
        num_rows=batch.num_rows,
    )


def _partitions(batch: pa.RecordBatch) -> pa.Array | None:
    return batch.column("partition") if "partition" in batch.schema.names else None


def _highest_partition(batch: pa.RecordBatch, topic_index: TopicIndex, index: int) -> int:
    """The highest that a row of one topic names, -1 where none names any."""
    own = _partitions(batch)
    if own is not None and not isinstance(topic_index, int):
        own = own.filter(pa.array(topic_index == index))
    found = None if own is None else pc.max(own).as_py()
    return -1 if found is None else int(found)


def routed_topic(cluster: Cluster, topic: str, *, refresh: bool = False) -> RoutedTopic:
    """A topic as rows are routed by it from now on."""
    known = cluster.topic(topic, refresh=refresh)
    return RoutedTopic(topic, known.topic_id, len(known.leaders))


def routed_as_decided(cluster: Cluster, topic: str, plan: WritePlan, slot: int) -> RoutedTopic:
    """As `routed_topic`, but in the replay of a decided batch as that batch was routed. Asks the cluster once more in a
    replay, and where the plan doubts what this worker knows of the topic.

    A recreated topic is routed as it is now, because everything that the batch wrote there is gone. Where the slot
    sends to some partitions only, the others are routed by as they were: their shares are compared, nothing is sent
    there.
    """
    decided = plan.routes.of_slot(slot).get(topic)
    # What a worker knows may be older than the decision.
    doubted = decided is not None or plan.doubts(topic, cluster.topic_id(topic))
    now = routed_topic(cluster, topic, refresh=doubted)
    if decided is None:
        return now
    followed = now.topic_id == decided.topic_id and now.partitions >= decided.partitions
    if followed or plan.sends_to(slot) is not None:
        return replace(now, partitions=decided.partitions)
    return now


def _readable(key: bytes | str | None) -> str | None:
    if key is None:
        return None
    text = key if isinstance(key, str) else key.decode("utf-8", "replace")
    return text[:200]


__all__ = ["Router", "routed_as_decided"]
