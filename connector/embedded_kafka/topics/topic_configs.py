"""Configurations of a topic: Kafka's names, types and defaults, and their effect in this broker.

Owns: the table of known names, the check of values.
Does not know: topics, requests.
Invariants:
- A value that Kafka would refuse is refused.
- A name that is accepted without effect here is marked so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from embedded_kafka.refusals import Refused
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
    """One configuration name. `choices`: the only values; `effect`: whether this broker acts on it."""

    default: str
    type: ConfigType
    lowest: int = 0
    highest: int = _LONG
    choices: tuple[str, ...] = ()
    effect: bool = False


_ = ConfigType
SETTINGS: dict[str, Setting] = {
    "cleanup.policy": Setting("delete", _.LIST, choices=("delete", "compact"), effect=True),
    "compression.gzip.level": Setting("-1", _.INT, lowest=-1, highest=9),
    "compression.lz4.level": Setting("9", _.INT, lowest=1, highest=17),
    "compression.type": Setting(
        "producer",
        _.STRING,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        effect=True,
    ),
    "compression.zstd.level": Setting("3", _.INT, lowest=-131072, highest=22),
    "delete.retention.ms": Setting("86400000", _.LONG, effect=True),
    "file.delete.delay.ms": Setting("60000", _.LONG),
    "flush.messages": Setting(str(_LONG), _.LONG, lowest=1, effect=True),
    "flush.ms": Setting(str(_LONG), _.LONG),
    "follower.replication.throttled.replicas": Setting("", _.LIST),
    "index.interval.bytes": Setting("4096", _.INT, highest=_INT, effect=True),
    "leader.replication.throttled.replicas": Setting("", _.LIST),
    "local.retention.bytes": Setting("-2", _.LONG, lowest=-2),
    "local.retention.ms": Setting("-2", _.LONG, lowest=-2),
    "max.compaction.lag.ms": Setting(str(_LONG), _.LONG, lowest=1, effect=True),
    "max.message.bytes": Setting("1048588", _.INT, highest=_INT, effect=True),
    "message.timestamp.after.max.ms": Setting("3600000", _.LONG, effect=True),
    "message.timestamp.before.max.ms": Setting(str(_LONG), _.LONG, effect=True),
    "message.timestamp.type": Setting(
        "CreateTime", _.STRING, choices=("CreateTime", "LogAppendTime"), effect=True
    ),
    "min.cleanable.dirty.ratio": Setting("0.5", _.DOUBLE, highest=1, effect=True),
    "min.compaction.lag.ms": Setting("0", _.LONG, effect=True),
    "min.insync.replicas": Setting("1", _.INT, lowest=1, highest=_INT),
    "preallocate": Setting("false", _.BOOLEAN),
    "remote.log.copy.disable": Setting("false", _.BOOLEAN),
    "remote.log.delete.on.disable": Setting("false", _.BOOLEAN),
    # This broker has no remote storage, and Kafka without one refuses "true" as well.
    "remote.storage.enable": Setting("false", _.BOOLEAN, choices=("false",)),
    "retention.bytes": Setting("-1", _.LONG, lowest=-_LONG, effect=True),
    "retention.ms": Setting("604800000", _.LONG, lowest=-1, effect=True),
    "segment.bytes": Setting("1073741824", _.INT, lowest=14, highest=_INT, effect=True),
    "segment.index.bytes": Setting("10485760", _.INT, lowest=4, highest=_INT),
    "segment.jitter.ms": Setting("0", _.LONG),
    "segment.ms": Setting("604800000", _.LONG, lowest=1, effect=True),
    "unclean.leader.election.enable": Setting("false", _.BOOLEAN),
}
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
    checked: dict[str, str] = {}
    for name, value in configs.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise Refused(Code.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is not None:
            checked[name] = _checked_value(name, setting, value)
    shortest, longest = (
        int(checked.get(name, SETTINGS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise Refused(
            Code.INVALID_CONFIG,
            f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})",
        )
    return checked


def log_config(configs: Mapping[str, str], base: LogConfig) -> LogConfig:
    """Log settings of a topic with these (checked) configurations; `base` supplies the
    values they do not set."""

    def number(name: str, otherwise: int) -> int:
        return int(configs.get(name, otherwise))

    flush = number("flush.messages", base.flush_messages)
    policies = configs.get("cleanup.policy", "delete")
    deletes, compacts = "delete" in policies, "compact" in policies
    segment_ms = number("segment.ms", base.segment_ms)
    max_lag_ms = number("max.compaction.lag.ms", base.max_compaction_lag_ms)
    return LogConfig(
        max_message_bytes=number("max.message.bytes", base.max_message_bytes),
        segment_bytes=number("segment.bytes", base.segment_bytes),
        index_interval_bytes=number("index.interval.bytes", base.index_interval_bytes),
        retention_ms=number("retention.ms", base.retention_ms) if deletes else -1,
        retention_bytes=number("retention.bytes", base.retention_bytes) if deletes else -1,
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime" or base.log_append_time,
        timestamp_before_max_ms=number("message.timestamp.before.max.ms", base.timestamp_before_max_ms),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms", base.timestamp_after_max_ms),
        codec=_CODECS[configs.get("compression.type", "producer")],
        # Kafka's way of saying never.
        flush_messages=0 if flush == _LONG else flush,
        producer_id_expiration_ms=base.producer_id_expiration_ms,
        # As in Kafka: records due for cleaning after that time must not wait longer in the active segment.
        segment_ms=min(segment_ms, max_lag_ms) if compacts else segment_ms,
        compact=compacts,
        delete_retention_ms=number("delete.retention.ms", base.delete_retention_ms),
        min_cleanable_ratio=float(configs.get("min.cleanable.dirty.ratio", base.min_cleanable_ratio)),
        min_compaction_lag_ms=number("min.compaction.lag.ms", base.min_compaction_lag_ms),
        max_compaction_lag_ms=max_lag_ms,
        internal=base.internal,
    )


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
