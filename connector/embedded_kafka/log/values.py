"""Results of a partition's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from embedded_kafka.log.records import InternalRecord


@dataclass(frozen=True)
class Appended:
    """The result for a Produce request. `log_append_time_ms`: -1 where the producer's timestamps apply; for a
    duplicate, as in Kafka, the highest timestamp of the first send."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


@dataclass(frozen=True)
class ReadResult:
    """Whole batches. `aborted`: (producer id, first offset) of the aborted transactions among them, for
    read_committed only. `next_offset`: where the next read continues."""

    records: memoryview
    aborted: list[tuple[int, int]]
    next_offset: int


@dataclass(frozen=True)
class ActiveProducer:
    """One producer in the form of DescribeProducers; -1 for missing values."""

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
    records: list[InternalRecord]
