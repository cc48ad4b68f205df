"""Which requests reach the embedded broker while something is done, counted by the broker.

Owns: counting by the name of the API.
Does not know: what is done, how many requests are right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.wire.server import APIS

Requests = dict[str, int]
"""API -> how many requests; without those that were not sent."""


class Counter:
    """Every request passes a fault of its API that does nothing but count."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._faults = {api: kafka.fault(api, "delay", times=sys.maxsize) for api in APIS}
        self._taken = dict.fromkeys(APIS, 0)

    def taken(self) -> Requests:
        """The requests since the last call."""
        now = {api: fault.fired for api, fault in self._faults.items()}
        before, self._taken = self._taken, now
        return {api: count - before[api] for api, count in now.items() if count > before[api]}


@contextmanager
def counting(kafka: EmbeddedKafka) -> Iterator[Counter]:
    """Counts from here on; all faults of the broker are gone afterwards."""
    try:
        yield Counter(kafka)
    finally:
        kafka.clear_faults()
