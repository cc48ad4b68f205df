"""What the tests of the source say of offsets: without the entry that names the cluster, which has a test of its own."""

from __future__ import annotations

from connector.spark.source_offsets import OffsetJson


def bare(offsets: OffsetJson | None) -> OffsetJson:
    """The topics and partitions alone."""
    assert offsets is not None
    return {topic: partitions for topic, partitions in offsets.items() if partitions}
