"""Configurations of topics: Kafka's names and values, and what they mean for a log."""

from __future__ import annotations

import pytest

from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import LogConfig
from embedded_kafka.settings.topic_configs import SETTINGS, check, log_config
from kafka_core.protocol.error_codes import Code


def test_every_default_is_a_value_that_could_be_set() -> None:
    defaults: dict[str, str | None] = {name: setting.default for name, setting in SETTINGS.items()}

    assert check(defaults) == defaults


def test_the_defaults_say_nothing_new_about_a_log() -> None:
    assert log_config({name: setting.default for name, setting in SETTINGS.items()}, LogConfig()) == LogConfig()
    assert log_config({}, LogConfig()) == LogConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.hours", "1"),
        ("retention.ms", "a week"),
        ("retention.ms", "-2"),
        ("max.message.bytes", str(2**31)),
        ("cleanup.policy", "compress"),
        ("message.timestamp.type", "MyTime"),
        ("preallocate", "maybe"),
        ("min.cleanable.dirty.ratio", "half"),
    ],
)
def test_what_kafka_would_refuse_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refused) as refused:
        check({name: value})
    assert refused.value.code is Code.INVALID_CONFIG
    assert name in refused.value.message


def test_a_null_value_is_the_default() -> None:
    assert check({"retention.ms": None, "cleanup.policy": "compact,delete"}) == {"cleanup.policy": "compact,delete"}


def test_a_compacted_topic_keeps_records_of_any_age() -> None:
    assert log_config({"cleanup.policy": "compact", "retention.ms": "1"}, LogConfig()).retention_ms == -1
    assert log_config({"cleanup.policy": "compact,delete", "retention.ms": "1"}, LogConfig()).retention_ms == 1
