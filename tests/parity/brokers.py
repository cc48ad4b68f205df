"""The brokers that foreign clients judge: the embedded one, and two real ones that must be judged the same.

Owns: which brokers there are, how each is started, where each keeps its partitions.
Does not know: the tests.
Invariants: a test is told nothing of a broker but its address and its directory, so it cannot treat one differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, LocalKafka

EMBEDDED = "embedded"
NAMES = (EMBEDDED, f"kafka-{NEWEST_ZOOKEEPER_KAFKA}", f"kafka-{NEWEST_KAFKA}")
"""Transaction version 2, 1 and 2."""

# A real broker looks for overdue transactions every 10 s, which a copier that was killed would have to wait for.
_REAL = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@dataclass(frozen=True)
class Broker:
    """A broker that runs. `log_dir` holds a directory `topic-partition` for each partition."""

    name: str
    bootstrap_servers: str
    log_dir: Path


@contextmanager
def started(name: str) -> Iterator[Broker]:
    """One of NAMES, in processes of its own, for as long as the block."""
    if name == EMBEDDED:
        with EmbeddedKafka(config={"transaction.version": "2"}) as embedded:
            yield Broker(name, embedded.bootstrap_servers, embedded.data_dir)
    else:
        with LocalKafka(name.removeprefix("kafka-"), config=_REAL) as kafka:
            yield Broker(name, kafka.bootstrap_servers, kafka.data_dir / "broker-0")
