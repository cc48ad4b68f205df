"""The broker's settings as a user gives them."""

from __future__ import annotations

import pytest

from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.settings.settings import NAMES, parse, show
from kafka_core.errors import OptionsError


def test_without_settings_the_defaults_hold() -> None:
    assert parse({}) == BrokerConfig()


def test_what_is_shown_can_be_given_again() -> None:
    config = parse(
        {
            "transaction.version": "1",
            "message.max.bytes": "5000",
            "transaction.two.phase.commit.enable": "true",
        }
    )
    shown = {name: value for name, value in show(config).items() if name in NAMES}

    assert (config.transaction_version, config.log.max_message_bytes, config.two_phase_commit) == (
        1,
        5000,
        True,
    )
    assert parse(shown) == config


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(OptionsError, match=r"did you mean transaction\.max\.timeout\.ms"):
        parse({"transaction.max.timout.ms": "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.max.bytes", "many"),
        ("message.max.bytes", "-1"),
        ("auto.create.topics.enable", "yes"),
        ("transaction.version", "3"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(OptionsError, match=name):
        parse({name: value})


def test_kept_for_ever_is_minus_one_as_in_kafka() -> None:
    assert parse({"log.retention.ms": "-1"}).log.retention_ms == -1
