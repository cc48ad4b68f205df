"""What a partition's log answers.

Owns: nothing that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from connector.broker.log.records import Record


@dataclass(frozen=True)
class Appended:
    """What a Produce request is answered. `log_append_time_ms`: -1 where the producer's timestamps stand; of a duplicate, as
    Kafka has it, the first sending's highest timestamp."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


@dataclass(frozen=True)
class ReadResult:
    """Whole batches. `aborted`: (producer id, first offset) of the aborted transactions among them, for read_committed only.
    `next_offset`: where to go on reading."""

    records: memoryview
    aborted: list[tuple[int, int]]
    next_offset: int


@dataclass(frozen=True)
class ActiveProducer:
    """What DescribeProducers says of one; -1 where there is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class ScannedBatch(NamedTuple):
    """A batch of an internal topic. `control_commit`: None for records, else how the producer's transaction ended."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    control_commit: bool | None
    records: list[Record]
