"""Offsets that options name for each partition: what makes them wrong, for the query and for whoever checks it before.

Owns: the words of these refusals.
Does not know: options, Spark, what is done with an offset that is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition


def exactly(
    option: str, given: Mapping[str, Mapping[int, int]], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The option's value for each partition; OptionsError unless it names them all and no others."""
    asked = {TopicPartition(topic, number): value for topic, each in given.items() for number, value in each.items()}
    if set(asked) != set(partitions):
        raise OptionsError(
            f"{option} must name every partition of the topics and no other: missing "
            f"{names_of(set(partitions) - set(asked))}, nonexistent {names_of(set(asked) - set(partitions))}; "
            "nothing was read"
        )
    return asked


def beyond_end(has: str, where: TopicPartition, offset: int, latest: int) -> OptionsError:
    """The refusal of an offset that the partition does not have yet."""
    return OptionsError(
        f"{has} offset {offset} for {where}, which ends at {latest}; nothing was read",
        {"partition": str(where), "offset": offset, "latest": latest},
    )


def nothing_so_new(where: TopicPartition, timestamp_ms: int) -> OptionsError:
    """The refusal of a time behind the partition's newest record."""
    return OptionsError(
        f"No offset matched from request of topic-partition {where} and timestamp {timestamp_ms}: its records are "
        "all older; nothing was read; set startingOffsetsByTimestampStrategy=latest to begin at the end",
        {"partition": str(where), "timestamp_ms": timestamp_ms},
    )


def names_of(partitions: Collection[TopicPartition]) -> str:
    """The partitions in their order, for a message."""
    return ", ".join(str(each) for each in sorted(partitions)) or "none"


__all__ = ["beyond_end", "exactly", "names_of", "nothing_so_new"]
