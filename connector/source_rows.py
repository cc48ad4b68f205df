"""The source's own options: names, defaults, meanings, and what no single option can tell.

Owns: the rows that are Spark's or ours on the source.
Does not know: Kafka's own names (`kafka_options`), in which order a mapping is judged (`options`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Json, TypeAdapter

from connector.kafka_options import FLAG, LONG_TEXT, Kind
from connector.option_rows import POSITIVE, TOPIC, Plain

StartingOffsets = Literal["earliest", "latest"] | dict[str, dict[int, int]]

_PartitionOffsets = Annotated[
    dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=-2)]], Field(min_length=1)
]
OFFSETS = Kind(
    'earliest, latest, or JSON such as {"topic":{"0":23,"1":-2}} with -2 for earliest and -1 for latest',
    TypeAdapter(Literal["earliest", "latest"] | Json[dict[str, _PartitionOffsets]]),
)

SOURCE: tuple[Plain, ...] = (
    Plain("subscribe", "subscribe", LONG_TEXT, "required", "topics to read, parted by commas"),
    Plain("startingOffsets", "starting_offsets", OFFSETS, "latest",
          f"where a new query begins: {OFFSETS.expected}"),
    Plain("maxOffsetsPerTrigger", "max_offsets_per_trigger", POSITIVE, "no limit",
          "offsets read per micro-batch, over all partitions"),
    Plain("includeHeaders", "include_headers", FLAG, "false", "true adds the headers column"),
    Plain("failOnDataLoss", "fail_on_data_loss", FLAG, "true",
          "true stops the query where offsets it needs are gone"),)  # fmt: skip

_RATE = "set the pace with trigger(processingTime=...) and the size with maxOffsetsPerTrigger"
_START = "look the offsets up and give them as startingOffsets JSON"
_END = "a streaming query has no end; trigger(availableNow=True) reads what is there and stops"
_SPLIT = "one task reads one Kafka partition; call repartition() after the read for more tasks"
SOURCE_NOT_YET: dict[str, str] = {
    "subscribePattern": "list the topics in subscribe",
    "assign": "name the topics in subscribe and filter on the partition column",
    "startingTimestamp": _START,
    "startingOffsetsByTimestamp": _START,
    "startingOffsetsByTimestampStrategy": _START,
    "endingOffsets": _END,
    "endingTimestamp": _END,
    "endingOffsetsByTimestamp": _END,
    "minPartitions": _SPLIT,
    "maxRecordsPerPartition": _SPLIT,
    "minOffsetsPerTrigger": _RATE,
    "maxTriggerDelay": _RATE,
    "groupIdPrefix": "the source joins no consumer group; leave it out",
    "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms bounds the wait for one answer",
    "fetchOffset.numRetries": "the client asks again by itself; leave it out",
    "fetchOffset.retryIntervalMs": "the client asks again by itself; leave it out",
}
"""Options of Spark's Kafka source that are not supported, and what to use."""


def check_source(found: dict[str, Any], problems: list[str]) -> None:
    """What no single option can tell; turns `subscribe` into its topics."""
    if found.get("subscribe") is None:
        return
    topics = tuple(dict.fromkeys(part.strip() for part in found["subscribe"].split(",") if part.strip()))
    for topic in topics:
        TOPIC.read("a topic in subscribe", topic, problems)
    if not topics:
        problems.append("subscribe names no topic")
    found["subscribe"] = topics
    starting = found.get("starting_offsets")
    if isinstance(starting, dict) and set(starting) != set(topics):
        problems.append(
            f"startingOffsets names the topics {', '.join(sorted(starting)) or '(none)'}, "
            f"but subscribe names {', '.join(sorted(topics))}: they must be the same"
        )
