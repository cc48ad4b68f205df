"""What tests count of a log is what the code that they are about has said."""

from __future__ import annotations

import logging

import pytest

from tests.support.logs import said_by


def test_what_others_of_the_process_say_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    for name in (
        "kafka.net.manager",
        "pyspark_kafka_eos.spark.sink.sink",
        "pyspark_kafka_eos.spark.sink.sink.part",
        "pyspark_kafka_eos.spark.sinks",
    ):
        logging.getLogger(name).warning("from %s", name)

    assert len(caplog.records) == 4
    assert said_by(caplog, "pyspark_kafka_eos.spark.sink.sink") == [
        "from pyspark_kafka_eos.spark.sink.sink",
        "from pyspark_kafka_eos.spark.sink.sink.part",
    ]
