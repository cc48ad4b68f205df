"""Where a topic's configuration has its value from, as DescribeConfigs tells it, and one sentence on each name.

Owns: which setting of the broker a topic's configuration falls back to (KIP-226's synonyms), the order of sources.
Does not know: requests; which values are taken (`topic_configs`).
Invariants: the first synonym is what counts, and gives the source; a name without any has Kafka's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from connector.broker.topic_configs import NEVER, SETTINGS


class Source(IntEnum):
    """As DescribeConfigs numbers them."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True)
class Synonym:
    """A name under which the value could have been given, and what stands there."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class Origin:
    """The broker's setting behind a topic's configuration. `default`: what the broker's default is called and is, None where it is as
    the topic's; "" where Kafka names none, because the default stands under a name of another unit."""

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
"""Names that are not here have no setting of the broker behind them, or one without a default."""

NOTES: dict[str, str] = {
    "cleanup.policy": "What becomes of old records: removed (delete), replaced by newer ones of their key (compact), or both.",
    "compression.gzip.level": "Level of gzip where compression.type is gzip.",
    "compression.lz4.level": "Level of lz4 where compression.type is lz4.",
    "compression.type": "The codec that batches are kept in; producer keeps each as it came.",
    "compression.zstd.level": "Level of zstd where compression.type is zstd.",
    "delete.retention.ms": "How long a compacted topic keeps a deletion for readers that come late.",
    "file.delete.delay.ms": "How long a removed file stays on the disk.",
    "flush.messages": "After how many records the log is brought to the disk.",
    "flush.ms": "After which time the log is brought to the disk.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is throttled.",
    "index.interval.bytes": "After how many bytes the index gets an entry.",
    "leader.replication.throttled.replicas": "Replicas whose serving of followers is throttled.",
    "local.retention.bytes": "How many bytes stay here beside remote storage; -2: as retention.bytes.",
    "local.retention.ms": "How long records stay here beside remote storage; -2: as retention.ms.",
    "max.compaction.lag.ms": "After which time a record is compacted at the latest.",
    "max.message.bytes": "The largest batch that is taken.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's time a record may be.",
    "message.timestamp.before.max.ms": "How far behind the broker's time a record may be.",
    "message.timestamp.type": "Whose time a record has: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "min.cleanable.dirty.ratio": "Which part of a log is new before it is compacted.",
    "min.compaction.lag.ms": "How long a record is left alone by compaction.",
    "min.insync.replicas": "How many replicas have to have a record before it is acknowledged; there is one here.",
    "preallocate": "Whether a segment's file has its full size from the start.",
    "remote.log.copy.disable": "Whether segments are no longer copied to remote storage.",
    "remote.log.delete.on.disable": "Whether remote segments go when remote storage is switched off.",
    "remote.storage.enable": "Whether segments go to remote storage; this broker has none.",
    "retention.bytes": "How many bytes a partition keeps; -1: no limit.",
    "retention.ms": "How long records are kept; -1: for ever.",
    "segment.bytes": "How large a segment of the log becomes.",
    "segment.index.bytes": "How large the index of a segment becomes.",
    "segment.jitter.ms": "By how much at most a segment is closed earlier than segment.ms, by chance.",
    "segment.ms": "After which time a segment is closed.",
    "unclean.leader.election.enable": "Whether a replica that lacks records may become the leader.",
}


def synonyms(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> list[Synonym]:
    """Every place that gives this configuration a value, the one that counts first. `configs`: of the topic; `given`: the broker's
    settings that are not as they are by default."""
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
    """What holds for a topic with these configurations of its own."""
    first = next(iter(synonyms(name, configs, given)), None)
    if first is None or first.source is Source.DEFAULT:
        return SETTINGS[name].default, Source.DEFAULT
    never = name == "flush.messages" and first.value == "0"
    return NEVER if never else first.value, first.source
