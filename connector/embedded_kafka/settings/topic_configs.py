"""Configurations of a topic: Kafka's names, types, defaults and origins, and their effect in this broker.

Owns: the table of known names, the check of values.
Does not know: topics, requests.
Invariants:
- A value that Kafka would refuse is refused.
- Every fact about a name is in its row alone. Names without a field have no effect here, but for cleanup.policy,
  compression.type and message.timestamp.type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import IntEnum
from typing import Any

from embedded_kafka.refusals import Refused
from embedded_kafka.settings import codecs
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code

_LONG = 2**63 - 1
_INT = 2**31 - 1

NEVER = str(_LONG)
"""Kafka's value for intervals that never elapse."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REPLICAS = re.compile(r"\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*|")


class ConfigType(IntEnum):
    """Types, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True)
class Setting:
    """One configuration of a topic.

    note: a sentence for DescribeConfigs. choices: the only values.
    broker: the broker's setting that a topic without a value falls back to (KIP-226's synonyms); "" where there is
    none, or one
        without a default. default_of: the name and value that DescribeConfigs shows as the broker's default, where they
        are not `broker` and `default`; None where Kafka names none, because the default belongs to a name in another
        unit.
    field: the field of LogConfig that holds the value, and the broker's setting; "" where there is none.
    """

    default: str
    type: ConfigType
    _: KW_ONLY
    note: str
    broker: str = ""
    default_of: tuple[str, str] | None = ("", "")
    field: str = ""
    lowest: int = 0
    highest: int = _LONG
    choices: tuple[str, ...] = ()

    def read(self, value: str) -> int | float:
        """A (checked) value of a setting with a field."""
        return float(value) if self.type is ConfigType.DOUBLE else int(value)


def _of_log(field: str, type_: ConfigType, **facts: Any) -> Setting:
    """The row of a field of LogConfig, which has the default."""
    return Setting(str(getattr(LogConfig, field)), type_, field=field, **facts)


_ = ConfigType
SETTINGS: dict[str, Setting] = {
    "cleanup.policy": Setting("delete", _.LIST, broker="log.cleanup.policy", choices=("delete", "compact"),
        note="Old records: removed (delete), replaced by their key's newer ones (compact), or both."),
    "compression.gzip.level": Setting("-1", _.INT, broker="compression.gzip.level", lowest=-1, highest=9,
        note="Compression level where compression.type is gzip."),
    "compression.lz4.level": Setting("9", _.INT, broker="compression.lz4.level", lowest=1, highest=17,
        note="Compression level where compression.type is lz4."),
    "compression.type": Setting("producer", _.STRING, broker="compression.type", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        note="The codec of stored batches; producer keeps each batch as it was sent."),
    "compression.zstd.level": Setting("3", _.INT, broker="compression.zstd.level", lowest=-131072, highest=22,
        note="Compression level where compression.type is zstd."),
    "delete.retention.ms": _of_log("delete_retention_ms", _.LONG, broker="log.cleaner.delete.retention.ms",
        note="How long a compacted topic keeps tombstones for late readers."),
    "file.delete.delay.ms": Setting("60000", _.LONG, broker="log.segment.delete.delay.ms",
        note="How long a removed file stays on disk."),
    "flush.messages": Setting(NEVER, _.LONG, broker="log.flush.interval.messages", field="flush_messages", lowest=1,
        note="The number of records after which the log is flushed to disk."),
    "flush.ms": Setting(NEVER, _.LONG,
        note="The time after which the log is flushed to disk."),
    "follower.replication.throttled.replicas": Setting("", _.LIST,
        note="Replicas whose fetching is throttled."),
    "index.interval.bytes": _of_log("index_interval_bytes", _.INT, broker="log.index.interval.bytes", highest=_INT,
        note="The number of bytes between two entries of the index."),
    "leader.replication.throttled.replicas": Setting("", _.LIST,
        note="Replicas whose serving of followers is throttled."),
    "local.retention.bytes": Setting("-2", _.LONG, broker="log.local.retention.bytes", lowest=-2,
        note="How many bytes stay on the broker with remote storage; -2: as retention.bytes."),
    "local.retention.ms": Setting("-2", _.LONG, broker="log.local.retention.ms", lowest=-2,
        note="How long records stay on the broker with remote storage; -2: as retention.ms."),
    "max.compaction.lag.ms": _of_log("max_compaction_lag_ms", _.LONG, broker="log.cleaner.max.compaction.lag.ms", lowest=1,
        note="The longest time before a record becomes eligible for compaction."),
    "max.message.bytes": _of_log("max_message_bytes", _.INT, broker="message.max.bytes", highest=_INT,
        note="The largest batch that the broker accepts."),
    "message.timestamp.after.max.ms": _of_log("timestamp_after_max_ms", _.LONG, broker="log.message.timestamp.after.max.ms",
        note="How far ahead of the broker's time a record may be."),
    "message.timestamp.before.max.ms": _of_log("timestamp_before_max_ms", _.LONG, broker="log.message.timestamp.before.max.ms",
        note="How far behind the broker's time a record may be."),
    "message.timestamp.type": Setting("CreateTime", _.STRING, broker="log.message.timestamp.type", choices=("CreateTime", "LogAppendTime"),
        note="Who sets timestamps: the producer (CreateTime) or the broker (LogAppendTime)."),
    "min.cleanable.dirty.ratio": _of_log("min_cleanable_ratio", _.DOUBLE, broker="log.cleaner.min.cleanable.ratio", highest=1,
        note="The share of a log that must be dirty before it is compacted."),
    "min.compaction.lag.ms": _of_log("min_compaction_lag_ms", _.LONG, broker="log.cleaner.min.compaction.lag.ms",
        note="The shortest time before a record may be compacted."),
    "min.insync.replicas": Setting("1", _.INT, broker="min.insync.replicas", lowest=1, highest=_INT,
        note="Replicas that must have a record before it is acknowledged; this broker has one."),
    "preallocate": Setting("false", _.BOOLEAN, broker="log.preallocate",
        note="Whether a segment's file has its full size from the start."),
    "remote.log.copy.disable": Setting("false", _.BOOLEAN,
        note="Whether segments are no longer copied to remote storage."),
    "remote.log.delete.on.disable": Setting("false", _.BOOLEAN,
        note="Whether remote segments are deleted when remote storage is disabled."),
    # This broker has no remote storage, and Kafka without one refuses "true" as well.
    "remote.storage.enable": Setting("false", _.BOOLEAN, choices=("false",),
        note="Whether segments go to remote storage; this broker has none."),
    "retention.bytes": _of_log("retention_bytes", _.LONG, broker="log.retention.bytes", lowest=-_LONG,
        note="How many bytes a partition keeps; -1: no limit."),
    "retention.ms": _of_log("retention_ms", _.LONG, broker="log.retention.ms", default_of=None, lowest=-1,
        note="How long records are kept; -1: without limit."),
    "segment.bytes": _of_log("segment_bytes", _.INT, broker="log.segment.bytes", lowest=14, highest=_INT,
        note="The maximum size of a log segment."),
    "segment.index.bytes": Setting("10485760", _.INT, broker="log.index.size.max.bytes", lowest=4, highest=_INT,
        note="The maximum size of a segment's index."),
    "segment.jitter.ms": Setting("0", _.LONG,
        note="The maximum random time by which a segment is closed earlier than segment.ms."),
    "segment.ms": _of_log("segment_ms", _.LONG, broker="log.roll.ms", default_of=("log.roll.hours", "168"), lowest=1,
        note="The time after which a segment is closed."),
    "unclean.leader.election.enable": Setting("false", _.BOOLEAN, broker="unclean.leader.election.enable",
        note="Whether a replica that lacks records may become the leader."),
}  # fmt: skip
"""Every name that CreateTopics and AlterConfigs accept."""


_NO_LEVEL = ("compression.gzip.level", 0)
"""gzip without compression: 0 lies between the default (-1) and the levels, and is refused."""

_CODECS: dict[str, int | None] = {
    "producer": None, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4,
}  # fmt: skip
"""compression.type -> the number of the codec in a batch's attributes."""


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given values, checked and in Kafka's form; a null value means the default and is left out.
    Refused(INVALID_CONFIG)."""
    checked = checked_values("topic", SETTINGS, configs)
    if _CODECS[checked.get("compression.type", "producer")] and not codecs.installed():
        raise codecs.missing(Code.INVALID_CONFIG, f"compression.type={checked['compression.type']}")
    shortest, longest = (
        int(checked.get(name, SETTINGS[name].default)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise Refused(
            Code.INVALID_CONFIG,
            f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})",
        )
    return checked


def log_config(configs: Mapping[str, str], base: LogConfig) -> LogConfig:
    """Log settings of a topic with these (checked) configurations; `base` supplies the values they do not set."""
    values: dict[str, Any] = {
        SETTINGS[name].field: SETTINGS[name].read(value) for name, value in configs.items() if SETTINGS[name].field
    }
    config = replace(base, **values)
    policies = configs.get("cleanup.policy", "delete")
    deletes, compacts = "delete" in policies, "compact" in policies
    return replace(
        config,
        retention_ms=config.retention_ms if deletes else -1,
        retention_bytes=config.retention_bytes if deletes else -1,
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime" or base.log_append_time,
        codec=_CODECS[configs.get("compression.type", "producer")],
        # Kafka's way of saying never.
        flush_messages=0 if config.flush_messages == _LONG else config.flush_messages,
        # As in Kafka: records due for cleaning after that time must not wait longer in the active segment.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if compacts else config.segment_ms,
        compact=compacts,
    )


def checked_values(kind: str, settings: Mapping[str, Setting], configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given values of a `kind` of resource with these settings, checked and in Kafka's form; a null value means the
    default and is left out. Refused(INVALID_CONFIG)."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        setting = settings.get(name)
        if setting is None:
            raise Refused(Code.INVALID_CONFIG, f"Unknown {kind} config name: {name}")
        if value is not None:
            checked[name] = _checked_value(name, setting, value)
    return checked


def _checked_value(name: str, setting: Setting, given: str) -> str:
    """The value in Kafka's canonical form: without blanks, numbers as numbers."""
    value, problem = given.strip(), ""
    if setting.type in (ConfigType.INT, ConfigType.LONG):
        if not _WHOLE.fullmatch(value):
            problem = f"Not a number of type {setting.type.name}"
        elif not setting.lowest <= int(value) <= setting.highest or (name, int(value)) == _NO_LEVEL:
            problem = f"Value must be between {setting.lowest} and {setting.highest}"
        else:
            value = str(int(value))
    elif setting.type is ConfigType.BOOLEAN:
        value = value.lower()
        if value not in (setting.choices or ("true", "false")):
            problem = f"Expected value to be {' or '.join(setting.choices or ('true', 'false'))}"
    elif setting.type is ConfigType.DOUBLE:
        try:
            number = float(value.replace("_", "no number"))
        except ValueError:
            problem = "Not a number of type DOUBLE"
        else:
            if number < setting.lowest or number > setting.highest:
                problem = f"Value must be between {setting.lowest} and {setting.highest}"
            value = str(number)
    elif name.endswith(".throttled.replicas"):
        if not _REPLICAS.fullmatch(value):
            problem = "Expected * or a list of [partition]:[broker]"
    elif setting.choices:
        parts = [part.strip() for part in value.split(",")] if setting.type is ConfigType.LIST else [value]
        value = ",".join(parts)
        if not all(part in setting.choices for part in parts):
            problem = f"String must be one of: {', '.join(setting.choices)}"
    if problem:
        raise Refused(Code.INVALID_CONFIG, f"Invalid value {given} for configuration {name}: {problem}")
    return value
