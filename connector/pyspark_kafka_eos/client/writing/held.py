"""What a delivery keeps of batches that are not acknowledged: their bytes, and the requests that they are in."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_core import runtime
from kafka_core.values import TopicPartition


@dataclass
class Held:
    """A batch that is not acknowledged yet."""

    where: TopicPartition
    data: bytes | bytearray | memoryview
    first_try_at: float
    machine_time: bool


@dataclass(eq=False)
class Sent:
    """A request in flight: partition -> token and base sequence of the batch that it has for it. `moved`: partitions
    whose batch was taken back, since another broker leads them now.
    """

    node: int
    batches: dict[TopicPartition, tuple[int, int]]
    sent_s: float = field(default_factory=runtime.monotonic)
    moved: set[TopicPartition] = field(default_factory=set)
