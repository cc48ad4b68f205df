"""The streaming source behind `format("kafka_eos")`: Kafka topics as Arrow batches, read_committed.

Owns: Spark's calls to a source (initial and latest offsets, partitions, the rows of a partition), the limit
per batch.
Does not know: the Fetch protocol, the sink. It commits no offsets: the sink does, with the batch.
Invariants:
- A batch's content follows from its start and end offsets alone.
- Spark's log gets no offset before the query's position, unless the user allows data loss.

The first batch. Spark does not log where a query without batches begins. When it replays the first batch it
therefore asks for the beginning again. By then the topics end elsewhere ("latest" would skip records that the
first try has read), or retention has moved their beginning ("earliest" would silently skip lost records). So
the first batch's end, which Spark logs before it runs the batch, also contains where that batch begins.

pyspark 4.0 and 4.1 have no admission control: Spark calls latestOffset() without a position. But before
anything else Spark calls partitions(x, x) with the last logged offset x, and partitions(start, end) for every
batch; the reader remembers it. On these versions Spark runs trigger(availableNow=True) as a single batch, and
the limit makes it a partial one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import LogEnd, LogMark
from pyspark_kafka_eos.options import SourceOptions, report_ignored
from pyspark_kafka_eos.spark.offset_json import OffsetJson, Position, position_of, to_json
from pyspark_kafka_eos.spark.refusals import each_sentence_first, sentence_first
from pyspark_kafka_eos.spark.source.source_logs import logs_of
from pyspark_kafka_eos.spark.source.source_offsets import (
    admit,
    behind,
    is_too_small,
    judge_latest,
    plan,
    split,
    until,
)
from pyspark_kafka_eos.spark.source.source_view import SourceView
from pyspark_kafka_eos.spark.workers import make_ready

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # pyspark 4.0 and 4.1
        SupportsTriggerAvailableNow = object

_log = logging.getLogger(__name__)

OWN_SCHEMA = "kafka_eos has its own schema, which .schema(...) cannot change: leave it out and select or cast columns"


_UNKNOWN = LogMark()


def source_schema(include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source. Asks no broker."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def open_reader(options: SourceOptions, schema: StructType) -> KafkaStreamReader:
    """The reader of a query; OptionsError where the user gave a schema other than the source's."""
    refuse_other_schema(options, schema)
    return KafkaStreamReader(options)


def refuse_other_schema(options: SourceOptions, schema: StructType) -> None:
    """OptionsError where the user gave a schema other than the source's."""
    if schema != source_schema(options.include_headers):
        raise OptionsError(f"{OWN_SCHEMA}; includeHeaders adds the headers")


def rack_of(options: SourceOptions, environ: Mapping[str, str]) -> str:
    """The rack of this process: of the variable that the options name where it is set, else that of the options."""
    named = environ.get(options.rack_variable, "").strip() if options.rack_variable else ""
    return named or options.rack


def read_range(options: SourceOptions, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The visible records of one range, on an executor."""
    make_ready()
    fetcher = Fetcher(
        Cluster.shared(options.client),
        options.isolation_level,
        include_headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        rack=rack_of(options, os.environ),
        max_unpacked_bytes=options.max_unpacked_bytes,
    )
    return fetcher.read_ranges([offsets])


class KafkaPartition(InputPartition):
    """The part of a batch that one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc,unused-ignore]
    """One query's reader. The driver keeps one as long as the query runs; tasks get fresh copies."""

    def __init__(self, options: SourceOptions, now_s: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.view = SourceView(options)
        self._now_s = now_s
        self._initial: Position | None = None
        self._position: dict[TopicPartition, int] | None = None
        self._logged: OffsetJson | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._unproven: dict[TopicPartition, LogEnd] | None = None
        self._newest: dict[TopicPartition, int] | None = None
        self._planned: tuple[OffsetJson, OffsetJson, list[OffsetRange]] | None = None
        self._batches = 0
        self._triggered_s: float | None = None

    # ---- where a batch begins and ends

    @sentence_first
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Where a query without batches begins; UnknownTopic and OptionsError before anything was read."""
        return to_json(self._first_position())

    @sentence_first
    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:  # noqa: N802
        """Where the next batch ends. Raises before Spark logs anything: OptionsError where the query has read topics
        that its options no longer name, or another cluster; DataLoss where the topics end before the position, or are
        other ones than those that were read.
        """
        report_ignored(self.options)
        logged = self._logged if start is None else start
        begin = self._first_position() if logged is None else self.view.on_this_cluster(position_of(logged))
        self.view.refuse_other_topics(begin.offsets)
        ends, elsewhere = self.view.look(begin)
        begins = {**begin.offsets, **elsewhere}
        newest = {where: end.offset for where, end in ends.items()}
        newest.update(self.view.held_back(begins, newest, self.view.logs.known(begin)))
        self._newest = newest
        if self._unproven is not None:
            # Its answerer may have been cut off: the position was not known then, nor a leader that can know.
            if behind(begin.offsets, self._unproven, ends):
                self._target = newest
            self._unproven = None
        for where in judge_latest(begins, newest, self.view.lose):
            if begin.logs.get(where, _UNKNOWN).topic_id:
                # It is the log that the query has read, and it was cut: what is left was read.
                begins[where] = elsewhere[where] = newest[where]
        end = self._ends(
            begins,
            newest,
            self.options.max_offsets_per_trigger if start is None else getattr(limit, "max_rows", None),
        )
        # Spark compares texts, so an unchanged position is returned in the log's own text, even one of Spark's own
        # source.
        if logged is not None and end == begin.offsets and not elsewhere:
            return logged
        began = None
        if elsewhere or (self._initial is not None and begin.offsets == self._initial.offsets):
            began = Position(begins, logs=logs_of(begins, ends if elsewhere else {}, begin))
        return to_json(Position(end, self.view.cluster_id, logs_of(end, ends, begin), began))

    def _ends(
        self, begin: dict[TopicPartition, int], newest: dict[TopicPartition, int], maximum: int | None
    ) -> dict[TopicPartition, int]:
        if self._waits_for_more(begin, newest):
            return begin
        end = newest if self._target is None else until(begin, newest, self._target)
        if maximum is None:
            return end
        new = [where for where in end if where not in begin]
        if new:
            first = self.view.earliest(new)
            begin = {**begin, **first}
            end = {where: last for where, last in end.items() if where in begin}
        return admit(begin, end, maximum)

    def _waits_for_more(self, begin: dict[TopicPartition, int], newest: dict[TopicPartition, int]) -> bool:
        """minOffsetsPerTrigger and maxTriggerDelay. As in Spark's source the first batch of a run never
        waits. A run of availableNow does not wait either: no later batch would read the rest."""
        minimum = self.options.min_offsets_per_trigger
        if minimum is None or self._target is not None:
            return False
        now_s = self._now_s()
        waited = self._triggered_s is None or (now_s - self._triggered_s) * 1000 >= self.options.max_trigger_delay_ms
        if not waited and is_too_small(begin, newest, minimum):
            return True
        self._triggered_s = now_s
        return False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that Spark passes to latestOffset (pyspark 4.2 and later)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        maximum = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if maximum is None else ReadMaxRows(maximum)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the topics end now: this run stops there (pyspark 4.2 and later)."""
        # The first planning has the position, by which it judges the answer.
        self._unproven = self.view.ends()
        self._target = {where: end.offset for where, end in self._unproven.items()}

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """The ends of the topics as last seen, for the query's progress (pyspark 4.2 and later)."""
        return None if self._newest is None else to_json(Position(self._newest))

    # ---- what a batch reads

    @sentence_first
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[KafkaPartition]:  # type: ignore[override,unused-ignore]
        """The ranges of a batch, one for each topic partition with anything to read."""
        last = self.view.on_this_cluster(position_of(end))
        self._position, self._logged = dict(last.offsets), end
        if start == end:
            return []
        # Spark may plan a batch more than once; all plans must be the same.
        if self._planned is None or self._planned[:2] != (start, end):
            first = last.began or self.view.on_this_cluster(position_of(start))
            others = self.view.not_as_logged(last)
            ranges = plan(
                _without(others, first.offsets), _without(others, last.offsets),
                {} if self._initial is None else self._initial.offsets, self.view.earliest, self.view.lose,
            )  # fmt: skip
            pieces = split(ranges, self.options.min_partitions, self.options.max_records_per_partition)
            self._planned = (start, end, [replace(each, log=last.logs.get(each.where)) for each in pieces])
            self._batches += bool(pieces)
        return [KafkaPartition(each) for each in self._planned[2]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override,unused-ignore]
        """The visible records of one range, on an executor."""
        assert isinstance(partition, KafkaPartition)
        return each_sentence_first(read_range(self.options, partition.offsets))

    def stop(self) -> None:
        """The query ends. On pyspark 4.0 and 4.1 a run of availableNow ends here after one batch. The reader
        cannot detect such a run earlier, so it can only warn here."""
        position, newest = self._position or {}, self._newest or {}
        waiting = sum(newest[where] - position[where] for where in newest.keys() & position.keys())
        if (
            not hasattr(SupportsTriggerAvailableNow, "prepareForTriggerAvailableNow")
            and self._batches == 1
            and waiting > 0
        ):
            _log.warning(
                "the query ends after one batch with at least %d offsets unread: before Spark 4.2 trigger(availableNow=True) "
                "is one batch, which maxOffsetsPerTrigger cuts short; leave the option out, or run the job again",
                waiting,
            )

    # ---- inside

    def _first_position(self) -> Position:
        if self._initial is None:
            self._initial = self.view.first_position()
        return self._initial


def _without(others: set[TopicPartition], offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {where: offset for where, offset in offsets.items() if where not in others}
