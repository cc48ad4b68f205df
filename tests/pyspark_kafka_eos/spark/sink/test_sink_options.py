"""What the sink by format says of options and schemas, without Spark, a broker or anything written."""

from __future__ import annotations

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kafka_core.errors import OptionsError
from pyspark_kafka_eos import DefaultSource
from pyspark_kafka_eos.spark.sink.sink import open_writer

GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "pipeline": "p",
    "topic": "t",
    "checkpointlocation": "/tmp/none",
}
ROWS = StructType([StructField("value", StringType())])


def refused(options: dict[str, str], schema: StructType = ROWS, *, overwrite: bool = False) -> str:
    with pytest.raises(OptionsError) as raised:
        open_writer({**GIVEN, **options}, schema, overwrite=overwrite, planning=True)
    return str(raised.value)


def test_what_spark_adds_to_the_options_is_no_option_of_ours() -> None:
    writer = open_writer({**GIVEN, "queryname": "q", "path": "/tmp/x"}, ROWS, overwrite=False, planning=False)

    assert writer.options.topic == "t"


def test_columns_are_found_by_name_wherever_they_are_and_others_are_dropped() -> None:
    rows = StructType([StructField("extra", IntegerType()), StructField("VALUE", StringType())])

    writer = open_writer(GIVEN, rows, overwrite=False, planning=False)

    assert writer._columns == {"value": 1}


def test_a_misspelt_option_is_named_with_the_nearest_real_one() -> None:
    assert "did you mean topic" in refused({"topik": "t"})


def test_overwriting_is_refused_with_the_way_to_do_it() -> None:
    said = refused({}, overwrite=True)

    assert "outputMode append" in said
    assert "foreachBatch(ExactlyOnceWriter(options))" in said


def test_rows_without_value_are_refused() -> None:
    said = refused({}, StructType([StructField("key", StringType())]))

    assert "no column named value" in said


def test_without_a_checkpoint_location_the_sink_says_where_to_set_it() -> None:
    without = {name: text for name, text in GIVEN.items() if name != "checkpointlocation"}

    with pytest.raises(OptionsError) as raised:
        open_writer(without, ROWS, overwrite=False, planning=True)

    assert "checkpointLocation is missing" in str(raised.value)


def test_without_transactions_a_checkpoint_is_asked_for_where_a_group_gets_the_offsets() -> None:
    weaker = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery.guarantee": "at-least-once"}

    with pytest.raises(OptionsError) as raised:
        open_writer({**weaker, "offsets.group": "g"}, ROWS, overwrite=False, planning=True)

    assert "checkpointLocation is missing" in str(raised.value)
    assert "leave out offsets.group" in str(raised.value)
    assert open_writer(weaker, ROWS, overwrite=False, planning=False).options.guarantee == "at-least-once"


def test_all_problems_of_a_query_are_said_at_once() -> None:
    without = {name: text for name, text in GIVEN.items() if name != "checkpointlocation"}

    with pytest.raises(OptionsError) as raised:
        open_writer(without, ROWS, overwrite=True, planning=True)

    assert "outputMode complete" in str(raised.value)
    assert "checkpointLocation is missing" in str(raised.value)


def test_only_a_data_source_that_was_not_sent_begins_a_batch() -> None:
    source = DefaultSource(GIVEN)

    sent = CloudPickleSerializer().loads(CloudPickleSerializer().dumps(source))

    # The checkpoint is not there: beginning looks at it, committing does not until it is told the batch.
    with pytest.raises(OptionsError, match="no query"):
        source.streamWriter(ROWS, overwrite=False)
    assert sent.streamWriter(ROWS, overwrite=False).options.pipeline == "p"
