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

from connector.client.offsets import EARLIEST, LATEST, Offsets
from connector.errors import OptionsError
from connector.model import TopicPartition
from connector.options import SourceOptions

_log = logging.getLogger(__name__)

_RESET = {"earliest": EARLIEST, "latest": LATEST}


def committed_start(
    offsets: Offsets, options: SourceOptions, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The group's offset of every partition; where it has none, EARLIEST or LATEST as kafka.auto.offset.reset
    chooses. OptionsError naming the partitions where that is none. BrokerUnavailable where a transaction that
    commits offsets of the group stays open."""
    group = options.group_id
    assert group is not None, "startingOffsets=group needs kafka.group.id; the options were checked"
    found = offsets.committed(group, partitions)
    without = [where for where in partitions if where not in found]
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
    return {**found, **dict.fromkeys(without, _RESET[options.offset_reset])}
