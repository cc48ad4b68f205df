"""Configurations of a topic: names, types and defaults as Kafka has them, and what this broker does with them.

Owns: the table of known names, the check of values.
Does not know: topics, requests.
Invariants: a value that Kafka would refuse is refused; a name that is accepted and has no effect here is marked so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from connector.broker.config import LogConfig
from connector.broker.refusals import Refused
from connector.protocol.error_codes import Code

_LONG = 2**63 - 1
_INT = 2**31 - 1


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

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
    # Logs are never compacted here: a reader of a compacted topic has to cope with records that a cleaner has not met yet.
    "cleanup.policy": Setting("delete", _.LIST, choices=("delete", "compact"), effect=True),
    "compression.type": Setting(
        "producer", _.STRING, choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "delete.retention.ms": Setting("86400000", _.LONG),
    "file.delete.delay.ms": Setting("60000", _.LONG),
    "flush.messages": Setting(str(_LONG), _.LONG, lowest=1, effect=True),
    "flush.ms": Setting(str(_LONG), _.LONG),
    "follower.replication.throttled.replicas": Setting("", _.LIST),
    "index.interval.bytes": Setting("4096", _.INT, highest=_INT, effect=True),
    "leader.replication.throttled.replicas": Setting("", _.LIST),
    "max.compaction.lag.ms": Setting(str(_LONG), _.LONG, lowest=1),
    "max.message.bytes": Setting("1048588", _.INT, highest=_INT, effect=True),
    "message.timestamp.after.max.ms": Setting(str(_LONG), _.LONG),
    "message.timestamp.before.max.ms": Setting(str(_LONG), _.LONG),
    "message.timestamp.type": Setting(
        "CreateTime", _.STRING, choices=("CreateTime", "LogAppendTime"), effect=True
    ),
    "min.cleanable.dirty.ratio": Setting("0.5", _.DOUBLE),
    "min.compaction.lag.ms": Setting("0", _.LONG),
    "min.insync.replicas": Setting("1", _.INT, lowest=1, highest=_INT),
    "preallocate": Setting("false", _.BOOLEAN),
    "retention.bytes": Setting("-1", _.LONG, lowest=-_LONG, effect=True),
    "retention.ms": Setting("604800000", _.LONG, lowest=-1, effect=True),
    "segment.bytes": Setting("1073741824", _.INT, lowest=14, highest=_INT, effect=True),
    "segment.index.bytes": Setting("10485760", _.INT, lowest=4, highest=_INT),
    "segment.jitter.ms": Setting("0", _.LONG),
    "segment.ms": Setting("604800000", _.LONG, lowest=1),
    "unclean.leader.election.enable": Setting("false", _.BOOLEAN),
}
"""Every name that CreateTopics and AlterConfigs take."""


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given values, checked; a null value stands for the default and is left out. Refused(INVALID_CONFIG)."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise Refused(Code.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is not None:
            _check_value(name, setting, value)
            checked[name] = value
    return checked


def log_config(configs: Mapping[str, str], base: LogConfig) -> LogConfig:
    """How the logs of a topic with these (checked) configurations are kept; `base` where they say nothing."""

    def number(name: str, otherwise: int) -> int:
        return int(configs.get(name, otherwise))

    flush = number("flush.messages", base.flush_messages)
    deletes = "delete" in configs.get("cleanup.policy", "delete")
    return LogConfig(
        max_message_bytes=number("max.message.bytes", base.max_message_bytes),
        segment_bytes=number("segment.bytes", base.segment_bytes),
        index_interval_bytes=number("index.interval.bytes", base.index_interval_bytes),
        retention_ms=number("retention.ms", base.retention_ms) if deletes else -1,
        retention_bytes=number("retention.bytes", base.retention_bytes) if deletes else -1,
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime" or base.log_append_time,
        # Kafka's way of saying never.
        flush_messages=0 if flush == _LONG else flush,
        producer_id_expiration_ms=base.producer_id_expiration_ms,
    )


def _check_value(name: str, setting: Setting, value: str) -> None:
    problem = ""
    if setting.type in (ConfigType.INT, ConfigType.LONG):
        try:
            number = int(value)
        except ValueError:
            problem = f"Not a number of type {setting.type.name}"
        else:
            if not setting.lowest <= number <= setting.highest:
                problem = f"Value must be between {setting.lowest} and {setting.highest}"
    elif setting.type is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
        problem = "Expected value to be either true or false"
    elif setting.type is ConfigType.DOUBLE:
        try:
            float(value)
        except ValueError:
            problem = "Not a number of type DOUBLE"
    elif setting.choices:
        given = [part.strip() for part in value.split(",")] if setting.type is ConfigType.LIST else [value]
        if not all(part in setting.choices for part in given):
            problem = f"String must be one of: {', '.join(setting.choices)}"
    if problem:
        raise Refused(Code.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {problem}")
