"""The streaming source behind `format("kafka_eos")`: Kafka topics as Arrow batches, read_committed.

Owns: what Spark asks a source (initial and latest offsets, partitions, the rows of a partition) and the limit per batch.
Does not know: the Fetch protocol, the sink; it commits no offsets, which is the sink's, with the batch.
Invariants: a batch's content follows from its start and end offsets alone; no offset is handed to Spark's log that lies
behind the query's position, unless the user allows data loss.

The first batch. Spark does not log where a query without batches begins, so a replay of the first batch asks again, and
"latest" would then skip what the first try had read. Where the beginning depends on "latest", the first batch is
therefore empty and ends where it begins: from then on the position is in Spark's log.

pyspark 4.0 and 4.1 have no admission control: latestOffset() is asked without a position. But before anything else Spark
calls partitions(x, x) with the last logged offset x, and partitions(start, end) for every batch; the reader remembers it.
On these versions Spark runs trigger(availableNow=True) as one single batch, which the limit makes a partial one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
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

from connector.client.cluster import Cluster
from connector.client.fetcher import Fetcher, OffsetRange
from connector.client.offsets import EARLIEST, LATEST, Offsets
from connector.errors import DataLoss, OptionsError
from connector.model import TopicPartition
from connector.options import SourceOptions
from connector.spark.source_offsets import (
    OffsetJson,
    Positions,
    admit,
    from_json,
    judge_latest,
    plan,
    to_json,
    until,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # pyspark 4.0 and 4.1
        SupportsTriggerAvailableNow = object

TOPIC_PATIENCE_MS = 10_000
"""How long a topic may be unknown after it has been seen once: a broker that restarts has to hear of its topics first."""

_log = logging.getLogger(__name__)


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
    """The reader of a query; OptionsError where the user gave the stream another schema than the source has."""
    if schema != source_schema(options.include_headers):
        raise OptionsError(
            "kafka_eos has its own schema, which .schema(...) cannot change: leave it out and select or cast columns; "
            "includeHeaders adds the headers"
        )
    return KafkaStreamReader(options)


class KafkaPartition(InputPartition):
    """The part of a batch that one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc,unused-ignore]
    """One query's view of its topics. The driver keeps one as long as the query runs; tasks get fresh copies."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._initial: dict[TopicPartition, int] | None = None
        self._position: dict[TopicPartition, int] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._newest: dict[TopicPartition, int] | None = None
        self._anchored = not _depends_on_latest(options)
        self._planned: tuple[OffsetJson, OffsetJson, list[OffsetRange]] | None = None
        self._seen = False

    # ---- where a batch begins and ends

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Where a query without batches begins; UnknownTopic and OptionsError before anything was read."""
        return to_json(self._first_positions())

    def latestOffset(self, start: OffsetJson | None = None, limit: ReadLimit | None = None) -> OffsetJson:  # noqa: N802
        """Where the next batch ends. DataLoss, before Spark logs anything, where the topics end before the position."""
        begin = self._first_or(self._position) if start is None else from_json(start)
        newest = self._newest = self._latest()
        if not self._anchored and begin == self._initial:
            self._anchored = True
            return to_json(begin)
        judge_latest(begin, newest, self._lose)
        end = newest if self._target is None else until(begin, newest, self._target)
        maximum = self.options.max_offsets_per_trigger if start is None else getattr(limit, "max_rows", None)
        if maximum is None:
            return to_json(end)
        new = [where for where in end if where not in begin]
        if new:
            begin = {**begin, **self._offsets().earliest(new)}
        return to_json(admit(begin, end, maximum))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that Spark passes to latestOffset (pyspark 4.2 and later)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        maximum = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if maximum is None else ReadMaxRows(maximum)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the topics end now: this run reads to there (pyspark 4.2 and later)."""
        self._target = self._latest()

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """The ends of the topics as last seen, for the query's progress (pyspark 4.2 and later)."""
        return None if self._newest is None else to_json(self._newest)

    # ---- what a batch reads

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[KafkaPartition]:  # type: ignore[override,unused-ignore]
        """The ranges of a batch, one for each topic partition with anything to read."""
        self._position = from_json(end)
        if start == end:
            return []
        # Spark may plan a batch more than once; both plans must be the same.
        if self._planned is None or self._planned[:2] != (start, end):
            ranges = plan(
                from_json(start), self._position, self._initial or {}, lambda new: self._offsets().earliest(new), self._lose
            )  # fmt: skip
            self._planned = (start, end, ranges)
        return [KafkaPartition(each) for each in self._planned[2]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override,unused-ignore]
        """The visible records of one range, on an executor."""
        assert isinstance(partition, KafkaPartition)
        fetcher = Fetcher(
            Cluster.shared(self.options.client),
            self.options.isolation_level,
            include_headers=self.options.include_headers,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return fetcher.read([partition.offsets])

    # ---- inside

    def _offsets(self) -> Offsets:
        return Offsets(Cluster.shared(self.options.client))

    def _all_partitions(self) -> list[TopicPartition]:
        patience_ms = TOPIC_PATIENCE_MS if self._seen else 0
        found = self._offsets().partitions(self.options.subscribe, patience_ms=patience_ms)
        self._seen = True
        return found

    def _latest(self) -> dict[TopicPartition, int]:
        return self._offsets().latest(self._all_partitions(), self.options.isolation_level)

    def _first_or(self, position: dict[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        return self._first_positions() if position is None else position

    def _first_positions(self) -> dict[TopicPartition, int]:
        if self._initial is None:
            self._initial = self._resolve(self.options.starting_offsets)
        return self._initial

    def _resolve(self, starting: str | Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
        """startingOffsets as positions."""
        partitions = self._all_partitions()
        offsets = self._offsets()
        if starting == "earliest":
            return offsets.earliest(partitions)
        latest = offsets.latest(partitions, self.options.isolation_level)
        if isinstance(starting, str):
            return latest
        earliest = offsets.earliest(partitions)
        asked = {
            TopicPartition(topic, number): offset for topic, each in starting.items() for number, offset in each.items()
        }  # fmt: skip
        if set(asked) != set(partitions):
            raise OptionsError(
                "startingOffsets must name every partition of the topics and no other: missing "
                f"{_names(set(partitions) - set(asked))}, not there {_names(set(asked) - set(partitions))}; "
                "nothing was read"
            )
        return {where: self._checked(where, asked[where], earliest, latest) for where in partitions}

    def _checked(self, where: TopicPartition, offset: int, earliest: Positions, latest: Positions) -> int:
        if offset == EARLIEST:
            return earliest[where]
        if offset == LATEST:
            return latest[where]
        if offset > latest[where]:
            raise OptionsError(
                f"startingOffsets has offset {offset} for {where}, which ends at {latest[where]}; nothing was read",
                {"partition": str(where), "offset": offset, "latest": latest[where]},
            )
        if offset < earliest[where]:
            self._lose(
                where, f"startingOffsets has offset {offset}, but the partition begins at {earliest[where]}"
            )
        return max(offset, earliest[where])

    def _lose(self, where: TopicPartition, lost: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}; records may be lost, so the query stops and nothing was skipped; set "
                "failOnDataLoss=false to go on with what is there",
                {"partition": str(where)},
            )
        _log.warning("%s: %s; records may be lost (failOnDataLoss=false)", where, lost)


def _depends_on_latest(options: SourceOptions) -> bool:
    starting = options.starting_offsets
    if isinstance(starting, str):
        return starting == "latest"
    return any(offset == LATEST for each in starting.values() for offset in each.values())


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(str(each) for each in sorted(partitions)) or "none"
