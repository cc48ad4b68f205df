"""The source of each topic configuration's value, as DescribeConfigs reports it, and a
one-sentence description of it.

Owns: the broker setting that a topic configuration falls back to (KIP-226's synonyms), the order of sources.
Does not know: requests; which values are valid (`topic_configs`).
Invariants:
- The first synonym wins and determines the source.
- A name without synonyms has Kafka's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from embedded_kafka.topics.topic_configs import NEVER, SETTINGS


class Source(IntEnum):
    """Sources, numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True)
class Synonym:
    """A name that can set the value, and the value it has."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class Origin:
    """The broker setting behind a topic configuration. `default`: the name and value of the broker's
    default; None where it equals the topic's; "" where Kafka names none, because the default belongs to
    a name in another unit."""

    broker: str
    default: tuple[str, str] | None = None


_NO_DEFAULT = ("", "")

ORIGINS: dict[str, Origin] = {
    "cleanup.policy": Origin("log.cleanup.policy"),
    "compression.gzip.level": Origin("compression.gzip.level"),
    "compression.lz4.level": Origin("compression.lz4.level"),
    "compression.type": Origin("compression.type"),
    "compression.zstd.level": Origin("compression.zstd.level"),
    "delete.retention.ms": Origin("log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": Origin("log.segment.delete.delay.ms"),
    "flush.messages": Origin("log.flush.interval.messages"),
    "index.interval.bytes": Origin("log.index.interval.bytes"),
    "local.retention.bytes": Origin("log.local.retention.bytes"),
    "local.retention.ms": Origin("log.local.retention.ms"),
    "max.compaction.lag.ms": Origin("log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": Origin("message.max.bytes"),
    "message.timestamp.after.max.ms": Origin("log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": Origin("log.message.timestamp.before.max.ms"),
    "message.timestamp.type": Origin("log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": Origin("log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": Origin("log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": Origin("min.insync.replicas"),
    "preallocate": Origin("log.preallocate"),
    "retention.bytes": Origin("log.retention.bytes"),
    "retention.ms": Origin("log.retention.ms", _NO_DEFAULT),
    "segment.bytes": Origin("log.segment.bytes"),
    "segment.index.bytes": Origin("log.index.size.max.bytes"),
    "segment.ms": Origin("log.roll.ms", ("log.roll.hours", "168")),
    "unclean.leader.election.enable": Origin("unclean.leader.election.enable"),
}
"""Names missing here have no broker setting behind them, or one without a default."""

NOTES: dict[str, str] = {
    "cleanup.policy": "Old records: removed (delete), replaced by their key's newer ones (compact), or both.",
    "compression.gzip.level": "Compression level where compression.type is gzip.",
    "compression.lz4.level": "Compression level where compression.type is lz4.",
    "compression.type": "The codec of stored batches; producer keeps each batch as it was sent.",
    "compression.zstd.level": "Compression level where compression.type is zstd.",
    "delete.retention.ms": "How long a compacted topic keeps tombstones for late readers.",
    "file.delete.delay.ms": "How long a removed file stays on disk.",
    "flush.messages": "The number of records after which the log is flushed to disk.",
    "flush.ms": "The time after which the log is flushed to disk.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is throttled.",
    "index.interval.bytes": "The number of bytes between two entries of the index.",
    "leader.replication.throttled.replicas": "Replicas whose serving of followers is throttled.",
    "local.retention.bytes": "How many bytes stay on the broker with remote storage; -2: as retention.bytes.",
    "local.retention.ms": "How long records stay on the broker with remote storage; -2: as retention.ms.",
    "max.compaction.lag.ms": "The longest time before a record becomes eligible for compaction.",
    "max.message.bytes": "The largest batch that the broker accepts.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's time a record may be.",
    "message.timestamp.before.max.ms": "How far behind the broker's time a record may be.",
    "message.timestamp.type": "Who sets timestamps: the producer (CreateTime) or the broker (LogAppendTime).",
    "min.cleanable.dirty.ratio": "The share of a log that must be dirty before it is compacted.",
    "min.compaction.lag.ms": "The shortest time before a record may be compacted.",
    "min.insync.replicas": "Replicas that must have a record before it is acknowledged; this broker has one.",
    "preallocate": "Whether a segment's file has its full size from the start.",
    "remote.log.copy.disable": "Whether segments are no longer copied to remote storage.",
    "remote.log.delete.on.disable": "Whether remote segments are deleted when remote storage is disabled.",
    "remote.storage.enable": "Whether segments go to remote storage; this broker has none.",
    "retention.bytes": "How many bytes a partition keeps; -1: no limit.",
    "retention.ms": "How long records are kept; -1: without limit.",
    "segment.bytes": "The maximum size of a log segment.",
    "segment.index.bytes": "The maximum size of a segment's index.",
    "segment.jitter.ms": "The maximum random time by which a segment is closed earlier than segment.ms.",
    "segment.ms": "The time after which a segment is closed.",
    "unclean.leader.election.enable": "Whether a replica that lacks records may become the leader.",
}


def synonyms(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> list[Synonym]:
    """Every source that gives this configuration a value, the effective one first. `configs`: the topic's;
    `given`: the broker settings that differ from their defaults."""
    found = []
    if name in configs:
        found.append(Synonym(name, configs[name], Source.TOPIC))
    origin = ORIGINS.get(name)
    if origin is not None:
        if origin.broker in given:
            found.append(Synonym(origin.broker, given[origin.broker], Source.STATIC_BROKER))
        if origin.default != _NO_DEFAULT:
            default_name, default = origin.default or (origin.broker, SETTINGS[name].default)
            found.append(Synonym(default_name, default, Source.DEFAULT))
    return found


def value_and_source(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, Source]:
    """The effective value and its source for a topic with these configurations of its own."""
    first = next(iter(synonyms(name, configs, given)), None)
    if first is None or first.source is Source.DEFAULT:
        return SETTINGS[name].default, Source.DEFAULT
    never = name == "flush.messages" and first.value == "0"
    return NEVER if never else first.value, first.source
