"""What the tests of the source say of offsets: without the entries, which have tests of their own."""

from __future__ import annotations

from pyspark_kafka_eos.spark.offset_json import OffsetJson


def bare(offsets: OffsetJson | None) -> OffsetJson:
    """The topics and partitions alone."""
    assert offsets is not None
    return {topic: partitions for topic, partitions in offsets.items() if partitions}
