"""Would a query find where it is to begin? The offsets and times that the source's options name, against its topics.

Owns: this check before a query starts.
Does not know: Spark; what a checkpoint says, from which a query that has one goes on.
Invariant: what the query would refuse fails here, with the query's own error.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_core.errors import DataLoss, OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.named_offsets import beyond_end, exactly, nothing_so_new
from pyspark_kafka_eos.client.reading.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.operations.topic_checks import Check
from pyspark_kafka_eos.options import SourceOptions

_CORRECT = "correct the option; a query with a checkpoint goes on from that and does not look at it"


def start(source: SourceOptions | None, max_block_ms: int) -> Iterator[Check]:
    """Where the options name offsets or times. The topics of a pattern are those that they name."""
    if source is None:
        return
    times, given = source.starting_times, source.starting_offsets
    named = times if isinstance(times, dict) else given if times is None and isinstance(given, dict) else None
    if named is None and times is None:
        return
    option = "startingOffsets" if times is None else "startingOffsetsByTimestamp"
    offsets = Offsets(Cluster.shared(source.client, max_block_ms))
    try:
        partitions = _partitions(offsets, source, named)
        if times is None:
            assert isinstance(given, dict)
            seen = _offsets(offsets, source, exactly(option, given, partitions))
        else:
            asked = exactly(option, times, partitions) if isinstance(times, dict) else dict.fromkeys(partitions, times)
            seen = _times(offsets, source, asked)
    except (OptionsError, DataLoss) as error:
        yield Check("start", "fail", error.message.partition("; nothing was read")[0], _CORRECT, option, error)
        return
    yield Check("start", "warn" if seen else "ok", seen or f"{option} names what the topics have", "", option)


def _partitions(
    offsets: Offsets, source: SourceOptions, named: dict[str, dict[int, int]] | None
) -> list[TopicPartition]:
    if source.assign is not None:
        return [TopicPartition(topic, each) for topic, numbers in source.assign.items() for each in numbers]
    return offsets.partitions_of(list(source.subscribe) or sorted(named or ()))


def _offsets(offsets: Offsets, source: SourceOptions, asked: dict[TopicPartition, int]) -> str:
    """What is worth a warning, "" for nothing."""
    earliest = offsets.earliest(asked)
    latest = offsets.latest(asked, source.isolation_level)
    highest = offsets.latest(asked, READ_UNCOMMITTED)
    warned = []
    for where, offset in sorted(asked.items()):
        if offset in (EARLIEST, LATEST):
            continue
        if offset > highest[where]:
            raise beyond_end("startingOffsets has", where, offset, highest[where])
        if offset > latest[where]:
            warned.append(f"{where}: offset {offset} is behind a transaction that is open")
        if offset < earliest[where]:
            lost = f"{where}: startingOffsets has offset {offset}, but the partition begins at {earliest[where]}"
            if source.fail_on_data_loss:
                raise DataLoss(lost, {"partition": str(where), "offset": offset, "earliest": earliest[where]})
            warned.append(lost)
    return "; ".join(warned)


def _times(offsets: Offsets, source: SourceOptions, asked: dict[TopicPartition, int]) -> str:
    found = offsets.at_time(asked, source.isolation_level)
    for where in sorted(where for where, offset in found.items() if offset is None):
        if source.fail_on_no_match:
            raise nothing_so_new(where, asked[where])
    return ""


__all__ = ["start"]
