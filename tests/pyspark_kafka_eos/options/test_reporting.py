"""The warning about options without effect: one for a process, with every one of them, without any value."""

from __future__ import annotations

import logging

import pytest

from pyspark_kafka_eos.options import SinkOptions, SourceOptions, parse_ledger, report_ignored

NAME = "pyspark_kafka_eos.options.reporting"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME]


def test_all_options_without_effect_are_in_one_warning_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"kafka.linger.ms": "987654", "kafka.session.timeout.ms": "1", "kafka.buffer.memory": "2"}
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "pipeline": "reported", **given})

    with caplog.at_level(logging.WARNING, NAME):
        report_ignored(options)
        report_ignored(options)

    (line,) = lines(caplog)
    assert line.startswith("options of the sink that have no effect here and can be left out: ")
    assert all(f"{name} (" in line for name in given)
    assert "987654" not in line


def test_a_read_of_the_ledger_is_no_source(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, NAME):
        report_ignored(parse_ledger({"kafka.bootstrap.servers": "b:1", "ledger": "*", "kafka.retry.backoff.ms": "7"}))

    (line,) = lines(caplog)
    assert line.startswith("options of a read of the ledger that have no effect here and can be left out: ")


def test_nothing_is_logged_where_every_option_has_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, NAME):
        report_ignored(SourceOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}))

    assert lines(caplog) == []
