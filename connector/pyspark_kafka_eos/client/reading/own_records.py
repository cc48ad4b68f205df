"""The records of this package's own topics, as far as it can have written them.

Owns: which batches are passed over unread, the word about them.
Does not know: what the records mean, who may have written them.
Invariants:
- A batch larger than this package writes stops no reader.
- Each one is told once in a process.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.records import Batch, DecodedBatch, decode_own

log = logging.getLogger(__name__)

_TOLD = 1_000
"""So many batches are remembered as told: with more, some are told again."""


def own_records(where: TopicPartition, batches: Iterable[Batch]) -> Iterator[DecodedBatch]:
    """Keys and values of batches of one partition, some at a time. CorruptBatch where one is damaged."""
    return decode_own(batches, lambda info: _tell(where, info.base_offset, info.producer_id))


@functools.lru_cache(maxsize=_TOLD)
def _tell(where: TopicPartition, offset: int, producer_id: int) -> None:
    log.warning(
        "%s has a batch at offset %d, of producer id %d, that takes more memory than any that this package writes there; it was "
        "not read and counts for nothing; see who has Write on the topic",
        where,
        offset,
        producer_id,
    )
