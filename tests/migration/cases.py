"""What is put to both sources: option sets that both take, and mistakes that both refuse; what differs on purpose.

Owns: the cases, their data, the table of differences with its reasons.
Does not know: Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FIRST_TIME_MS = 1_700_000_000_000
"""The time of the first record; each later one of its partition is a second newer."""


@dataclass(frozen=True)
class Topics:
    """The topics that the cases read: `plain` (3 partitions of 12, 5 and 0 records), `other` (1 partition, 4 records),
    `mixed` (1 partition: committed and aborted records and their markers)."""

    plain: str
    other: str
    mixed: str


@dataclass(frozen=True)
class Case:
    """`more`: records that are written to the subscribed topic while the streams run, by partition. `restart`: then
    both go on from their checkpoints with our format. `refused`: what both sides have to say.
    """

    name: str
    mode: Literal["batch", "stream"]
    options: dict[str, str]
    more: tuple[int, ...] = ()
    restart: bool = False
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the job."""
        more = {"topic": self.options["subscribe"], "counts": self.more} if self.more else None
        return {
            "name": self.name,
            "mode": self.mode,
            "options": self.options,
            "more": more,
            "restart": self.restart,
        }


def option_sets(topics: Topics, own: dict[str, str]) -> list[Case]:
    """Option sets that must give the same rows, schemas, tasks and offsets. `own`: a topic like `plain` for each stream
    that more is written to."""
    plain, other, mixed = topics.plain, topics.other, topics.mixed
    prefix = plain.removesuffix("plain")
    middle = FIRST_TIME_MS + 3_000
    return [
        Case("defaults", "batch", {"subscribe": plain}),
        Case("two-topics-headers", "batch", {"subscribe": f" {plain} , {other}", "includeHeaders": "true"}),
        Case("pattern", "batch", {"subscribePattern": f"{prefix}(plain|oth)"}),
        Case("pattern-without-a-match", "batch", {"subscribePattern": "no-such-topic-.*"}),
        Case("assign", "batch", {"assign": f'{{"{plain}":[0,2],"{other}":[0]}}'}),
        Case("offsets", "batch", {
            "subscribe": plain, "startingOffsets": f'{{"{plain}":{{"0":3,"1":-2,"2":0}}}}',
            "endingOffsets": f'{{"{plain}":{{"0":9,"1":-1,"2":-1}}}}'}),
        Case("words-in-any-case", "batch", {
            "SUBSCRIBE": plain, "STARTINGOFFSETS": "Earliest", "endingoffsets": "LATEST", "IncludeHeaders": "TRUE"}),
        Case("starting-timestamp", "batch", {
            "assign": f'{{"{plain}":[0,1]}}', "startingTimestamp": str(middle), "startingOffsets": "latest"}),
        Case("ending-timestamp", "batch", {"subscribe": plain, "endingTimestamp": str(middle)}),
        Case("timestamps-by-partition", "batch", {
            "subscribe": other, "startingOffsetsByTimestamp": f'{{"{other}":{{"0":{FIRST_TIME_MS + 1}}}}}',
            "endingOffsetsByTimestamp": f'{{"{other}":{{"0":{FIRST_TIME_MS + 2_001}}}}}'}),
        Case("no-newer-record-is-the-end", "batch", {
            "subscribe": plain, "startingTimestamp": str(FIRST_TIME_MS + 10**9),
            "startingOffsetsByTimestampStrategy": "LATEST"}),
        Case("min-partitions", "batch", {"subscribe": plain, "minPartitions": "5"}),
        Case("max-records", "batch", {"subscribe": plain, "maxRecordsPerPartition": "4"}),
        Case("min-partitions-and-max-records", "batch", {
            "subscribe": f"{plain},{other}", "minPartitions": "7", "maxRecordsPerPartition": "5"}),
        Case("committed", "batch", {"subscribe": mixed, "kafka.isolation.level": "read_committed"}),
        Case("committed-in-pieces", "batch", {
            "subscribe": mixed, "kafka.isolation.level": "read_committed", "minPartitions": "6"}),
        Case("ignored-in-batches", "batch", {
            "subscribe": other, "maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "1s",
            "groupIdPrefix": "x", "kafkaConsumer.pollTimeoutMs": "5000", "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "10", "kafka.group.id": "y", "failOnDataLoss": "false"}),
        Case("stream-earliest", "stream", {"subscribe": own["stream-earliest"], "startingOffsets": "earliest"},
             more=(2, 0, 3)),
        Case("stream-latest", "stream", {"subscribe": own["stream-latest"]}, more=(4, 1, 0)),
        Case("stream-offsets-headers", "stream", {
            "subscribe": plain, "startingOffsets": f'{{"{plain}":{{"0":10,"1":-2,"2":-1}}}}',
            "includeHeaders": "true"}),
        Case("stream-timestamp", "stream", {
            "assign": f'{{"{plain}":[0]}}', "startingTimestamp": str(middle), "minPartitions": "3"}),
        Case("stream-max-records", "stream", {
            "subscribe": plain, "startingOffsets": "earliest", "maxRecordsPerPartition": "4"}),
        Case("stream-pattern-limit", "stream", {
            "subscribePattern": f"{prefix}(plain|other)$", "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "6"}),
        Case("stream-committed", "stream", {
            "subscribe": mixed, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}),
        Case("stream-goes-on-from-the-checkpoint-of-spark", "stream", {
            "subscribe": own["stream-goes-on-from-the-checkpoint-of-spark"], "startingOffsets": "earliest"},
            more=(3, 1, 2), restart=True),
    ]  # fmt: skip


def mistakes(topics: Topics) -> list[Case]:
    """What both refuse; `refused` stands in both messages, whatever else they say."""
    plain = topics.plain
    return [
        Case("no-topic", "batch", {}, refused="One of the following options must be specified for Kafka source"),
        Case("two-ways", "batch", {"subscribe": plain, "assign": f'{{"{plain}":[0]}}'},
             refused="Only one of the following options can be specified for Kafka source"),
        Case("empty-subscribe", "batch", {"subscribe": " , "}, refused="No topics to subscribe to"),
        Case("batch-from-latest", "batch", {"subscribe": plain, "startingOffsets": "latest"},
             refused="starting offset can't be latest for batch queries on Kafka"),
        Case("batch-to-earliest", "batch", {"subscribe": plain, "endingOffsets": "earliest"},
             refused="ending offset can't be earliest for batch queries on Kafka"),
        Case("batch-from-latest-of-one", "batch", {
            "subscribe": plain, "startingOffsets": f'{{"{plain}":{{"0":-1,"1":0,"2":0}}}}'},
            refused=f"startingOffsets for {plain}-0 can't be latest for batch queries on Kafka"),
        Case("batch-to-earliest-of-one", "batch", {
            "subscribe": plain, "endingOffsets": f'{{"{plain}":{{"0":-2,"1":0,"2":0}}}}'},
            refused=f"ending offset for {plain}-0 can't be earliest for batch queries on Kafka"),
        Case("offsets-that-are-no-json", "batch", {"subscribe": plain, "startingOffsets": "newest"}),
        Case("a-partition-left-out", "batch", {"subscribe": plain, "startingOffsets": f'{{"{plain}":{{"0":0}}}}'}),
        Case("end-before-start", "batch", {
            "subscribe": plain, "startingOffsets": f'{{"{plain}":{{"0":5,"1":0,"2":0}}}}',
            "endingOffsets": f'{{"{plain}":{{"0":3,"1":0,"2":0}}}}'}),
        Case("no-newer-record", "batch", {"subscribe": plain, "startingTimestamp": str(FIRST_TIME_MS + 10**9)},
             refused="No offset matched from request of topic-partition"),
        Case("a-time-that-is-none", "batch", {"subscribe": plain, "startingTimestamp": "noon"}),
        Case("a-strategy-that-is-none", "batch", {
            "subscribe": plain, "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "newest"}),
        Case("min-partitions-zero", "batch", {"subscribe": plain, "minPartitions": "0"}),
        Case("no-such-topic", "batch", {"subscribe": "no-such-topic"}),
        Case("own-offset-reset", "batch", {"subscribe": plain, "kafka.auto.offset.reset": "earliest"},
             refused="auto.offset.reset"),
        Case("own-deserializer", "batch", {"subscribe": plain, "kafka.key.deserializer": "x"}),
        Case("beyond-the-end", "batch", {
            "subscribe": plain, "endingOffsets": f'{{"{plain}":{{"0":99,"1":0,"2":0}}}}'}),
        Case("stream-with-an-end", "stream", {"subscribe": plain, "endingOffsets": "latest"},
             refused="ending offset not valid in streaming queries"),
        Case("stream-with-ending-times", "stream", {
            "subscribe": plain, "endingOffsetsByTimestamp": f'{{"{plain}":{{"0":1}}}}'},
            refused="ending timestamp not valid in streaming queries"),
        Case("stream-min-above-max", "stream", {
            "subscribe": plain, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            refused="The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(3)"),
        Case("stream-no-such-topic", "stream", {"subscribe": "no-such-topic"}),
    ]  # fmt: skip
