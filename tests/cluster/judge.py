"""What another client may find in an output: each row of the source once, in the order of its key.

The rows are 0, 1, 2, ... Row n has key n % KEYS, and stands in the source's partition n % PARTITIONS at offset
n // PARTITIONS. So the judge keeps one number for each key, however long a run is.

Owns: what is lost, doubled, out of order, strange; reading on with librdkafka.
Does not know: who wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

PARTITIONS = 3
KEYS = 48
"""A multiple of PARTITIONS: a key's rows stand in one partition of the source, in their order."""

_SHOWN = 5


@dataclass
class Judge:
    """Takes an output's rows as they are read, each partition in its order."""

    rows: int = 0
    doubled: list[int] = field(default_factory=list)
    out_of_order: list[int] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=dict)
    _missing: set[int] = field(default_factory=set)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One more committed row of the output."""
        self.rows += 1
        text = (value or b"").decode(errors="replace")
        if not text.isdecimal() or key != str(int(text) % KEYS).encode():
            self.strange.append(f"{key!r}: {text[:40]}")
            return
        row = int(text)
        awaited = self._next.get(row % KEYS, row % KEYS)
        if row >= awaited:
            self._missing.update(range(awaited, row, KEYS))
            self._next[row % KEYS] = row + KEYS
        elif row in self._missing:
            self._missing.discard(row)
            self.out_of_order.append(row)
        else:
            self.doubled.append(row)

    def lost(self, ends: Mapping[int, int] | None = None) -> list[int]:
        """The rows that are missing before later ones of their key; with `ends`, where the committed batches end in the
        source's partitions, all that are missing before those.
        """
        found = set(self._missing)
        for partition, end in (ends or {}).items():
            for key in range(partition, KEYS, PARTITIONS):
                found.update(range(self._next.get(key, key), end * PARTITIONS + partition, KEYS))
        return sorted(found)

    def early(self, ends: Mapping[int, int]) -> list[int]:
        """Per key its newest row, where that is behind the committed batches: nobody may see it yet."""
        newest = [at - KEYS for at in self._next.values()]
        return sorted(row for row in newest if row // PARTITIONS >= ends.get(row % PARTITIONS, 0))

    def problems(self, ends: Mapping[int, int] | None = None) -> list[str]:
        """What is wrong with all that was taken so far. `ends`: see `lost`."""
        found = {
            "lost": self.lost(ends),
            "doubled": self.doubled,
            "out of order": self.out_of_order,
            "strange": self.strange,
            "visible before their batch": [] if ends is None else self.early(ends),
        }
        return [f"{len(rows)} rows {what}: {_first(rows)}" for what, rows in found.items() if rows]


def _first(rows: Iterable[object]) -> str:
    shown = [str(row) for row in rows]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")


class Reader:
    """librdkafka's view of one topic's committed records, read on from where it stopped. Use it as a context."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap_servers, "group.id": "judge", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error", "log_level": 0,
        })  # fmt: skip
        self._at = dict.fromkeys(range(PARTITIONS), 0)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, judge: Judge, wait_s: float) -> None:
        """Everything that is committed now; a TimeoutError where that is not reached in time."""
        deadline = time.monotonic() + wait_s
        self._consumer.assign([TopicPartition(self._topic, number, at) for number, at in self._at.items()])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic} was not read to its end within {wait_s:.0f} s")
            for message in self._consumer.consume(1000, timeout=0.2):
                self._take(message, judge, ended)

    def _take(self, message: Any, judge: Judge, ended: set[int]) -> None:
        error = message.error()
        if error is None:
            judge.take(message.key(), message.value())
            self._at[message.partition()] = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            # Its offset is behind the last marker, which no message has.
            self._at[message.partition()] = message.offset()
            ended.add(message.partition())
        elif not error.retriable() and error.code() not in _PASSES:
            raise RuntimeError(f"the judge cannot read {self._topic}: {error}")


_PASSES = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
"""A broker went away, and librdkafka goes on by itself."""
