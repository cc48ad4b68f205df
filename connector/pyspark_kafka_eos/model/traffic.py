"""What sending a batch's records took: requests, their latency, throttling, connections.

Owns: the numbers, how those of several tasks become those of a batch, their JSON form.
Does not know: how they are measured (`client.delivery`), under which names they are shown.
Invariants:
- For metrics only: nothing is decided by them.
- Adding is commutative and associative, so the order of tasks does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from pyspark_kafka_eos.model import strict


@dataclass(frozen=True, slots=True)
class Traffic:
    """Answered Produce requests and what they carried.

    `requests`: answered requests; `record_batches`: record batches in them, also those that were sent again;
    `sent_bytes`: of these batches as sent, that is compressed. `waited_us`: microseconds from sending to the answer,
    summed over the requests;
    `longest_us`: of the slowest one. `throttled_ms`: milliseconds for which brokers asked this client to wait (quotas),
    summed.
    `connections`: open connections to brokers, the most that one process had when its task ended.
    """

    requests: int = 0
    record_batches: int = 0
    sent_bytes: int = 0
    waited_us: int = 0
    longest_us: int = 0
    throttled_ms: int = 0
    connections: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Both together."""
        return Traffic(
            self.requests + other.requests,
            self.record_batches + other.record_batches,
            self.sent_bytes + other.sent_bytes,
            self.waited_us + other.waited_us,
            max(self.longest_us, other.longest_us),
            self.throttled_ms + other.throttled_ms,
            max(self.connections, other.connections),
        )

    @staticmethod
    def of_all(several: Iterable[Traffic | None]) -> Traffic | None:
        """All together; None where none is known."""
        known = [each for each in several if each is not None]
        return sum(known[1:], known[0]) if known else None

    @property
    def latency_mean_ms(self) -> float | None:
        """Mean time from a request to its answer; None without a request."""
        return self.waited_us / self.requests / 1000 if self.requests else None

    @property
    def batch_mean_bytes(self) -> float | None:
        """Mean size of a record batch as sent; None without one."""
        return self.sent_bytes / self.record_batches if self.record_batches else None

    def to_json(self) -> list[int]:
        """In the order of the fields; a newer version may add some at the end."""
        return [getattr(self, each.name) for each in fields(self)]

    @staticmethod
    def from_json(data: Sequence[int] | None) -> Traffic | None:
        """Read it back; None for None. TypeError or ValueError where it is none."""
        if data is None:
            return None
        return Traffic(*map(strict.whole, strict.several(data)[: len(fields(Traffic))]))
