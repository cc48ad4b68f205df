"""Files of `--files` are found by their bare names wherever the client reads them: driver, planner of a source,
tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

pytestmark = pytest.mark.spark

NAME = "authority-of-test-files.pem"


def found() -> str:
    """The content of the file, or the reason why there is none; in whatever process."""
    import pyspark_kafka_eos.spark.workers  # noqa: F401 -- as every source and sink does
    from kafka_core.errors import OptionsError
    from pyspark_kafka_eos.client.net.credentials.files import read

    try:
        return read("kafka.ssl.ca.location", NAME).text.decode()
    except OptionsError as error:
        return error.message


class Planned(DataSource):
    """A source that looks for the file while it is planned, and in its task."""

    @classmethod
    def name(cls) -> str:
        return "looks_for_a_file"

    def schema(self) -> str:
        return "planner string, task string"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(found())]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        yield partition.value, found()


def test_a_file_of_the_application_is_found_by_its_name_in_every_process(spark: SparkSession, tmp_path: Path) -> None:
    before = found()
    (tmp_path / NAME).write_text("-----BEGIN")
    spark.sparkContext.addFile(str(tmp_path / NAME))
    spark.dataSource.register(Planned)

    (row,) = spark.read.format("looks_for_a_file").load().collect()
    (task,) = spark.sparkContext.parallelize([0], 1).map(lambda _: found()).collect()

    assert "cannot be read on this machine" in before
    assert (found(), row.planner, row.task, task) == ("-----BEGIN",) * 4
