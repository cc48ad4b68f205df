"""startingOffsets=group: the offsets that a consumer group has committed, as the beginning of a query.

Owns: which offset a partition begins at, and what a partition without a committed one does.
Does not know: whether the partition still has that offset (`source_view`), micro-batches.
Invariants:
- No partition begins at an offset that neither the group nor the user has chosen.
- The offsets are stable ones (KIP-447): a transaction that is about to replace them has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import EARLIEST, LATEST, LogMark, Offsets
from pyspark_kafka_eos.model import GroupOffset
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.offset_json import Position

_log = logging.getLogger(__name__)

_RESET = {"earliest": EARLIEST, "latest": LATEST}


def committed_start(offsets: Offsets, options: SourceOptions, partitions: Sequence[TopicPartition]) -> Position:
    """The group's offset of every partition, and what it stands on; where it has none, EARLIEST or LATEST as
    kafka.auto.offset.reset chooses. OptionsError naming the partitions where that is none. BrokerUnavailable where a
    transaction that commits offsets of the group stays open.
    """
    group = options.group_id
    assert group is not None, "startingOffsets=group needs kafka.group.id; the options were checked"
    committed = offsets.committed(group, partitions, sure=True)
    found = Position(
        {where: at.offset for where, at in committed.items()},
        logs={
            where: log for where, at in committed.items() if (log := _log_of(offsets.cluster, where, at)) != LogMark()
        },
    )
    without = [where for where in partitions if where not in committed]
    if not without:
        return found
    names = ", ".join(map(str, without))
    if options.offset_reset not in _RESET:
        raise OptionsError(
            f"startingOffsets is group, but the group {group} has no committed offset of {names}; nothing was read. Correct "
            "kafka.group.id, or set kafka.auto.offset.reset to earliest or latest, where these partitions then begin",
            {"group": group, "partitions": tuple(map(str, without))},
        )
    _log.warning(
        "the group %s has no committed offset of %s, which begin at the %s (kafka.auto.offset.reset)",
        group, names, options.offset_reset,
    )  # fmt: skip
    reset = _RESET[options.offset_reset]
    return replace(found, offsets={**found.offsets, **dict.fromkeys(without, reset)})


def _log_of(cluster: Cluster, where: TopicPartition, at: GroupOffset) -> LogMark:
    """What the offset stands on, as far as this cluster can tell."""
    if at.cluster_id not in ("", cluster.cluster_id()):
        # A mirror's group: the offset is translated, and what it stood on is not.
        return LogMark()
    if at.topic_id:
        return LogMark(at.topic_id, at.leader_epoch)
    # Other clients commit an epoch at most, which a topic that was created again counts from 0 on.
    return LogMark(leader_epoch=at.leader_epoch) if cluster.topic_id(where.topic) else LogMark()
