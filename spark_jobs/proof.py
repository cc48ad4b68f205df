"""Did every record come out exactly once? Asked with confluent-kafka, which shares no code with the connector.

Owns: reading both topics completely, counting, and the judgement.
Does not know: the connector, Spark, the origin of the records.
Invariants:
- The judgement is a pure function of the records and offsets that were read.
- Nothing unread counts as right.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined,unused-ignore]

ANSWER_WITHIN_S = 30.0
"""For one admin request. A local broker answers in milliseconds; one that has just lost a client may need seconds."""

READ_WITHIN_S = 120.0
"""For reading one topic whole; the demo's take 2-10 s, depending on what else the machine does."""

_SILENT = 0
"""librdkafka's log level (syslog's). Failures are raised here; warnings about a stopping broker do not
help."""

_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""Errors that pass by themselves. In an answer to an admin's request librdkafka does not mark them as retriable."""

Record = tuple[bytes | None, bytes | None]
"""key, value"""

Offsets = dict[int, int]
"""partition number to offset"""


@dataclass(frozen=True)
class Observed:
    """The data read: both topics completely, and the offsets. `uncommitted`: the number of the output's
    records for a read_uncommitted reader (neither count contains control records). `still_open`: the number
    of the output's offsets after its last stable offset."""

    given: tuple[Record, ...]
    committed: tuple[Record, ...]
    uncommitted: int
    still_open: int
    group_offsets: Offsets
    end_offsets: Offsets


@dataclass(frozen=True)
class Proof:
    """The judgement. `duplicate` counts records beyond the first of their id, `missing` ids of the input that
    are not in the output, `strange` records of the output with no id of the input, `wrong` records whose key
    or value does not match their input. `problems` has a line for each violation."""

    records_in: int
    records_out: int
    duplicate: int
    missing: int
    strange: int
    wrong: int
    aborted_invisible: int
    still_open: int
    group_offsets: Offsets
    end_offsets: Offsets
    problems: tuple[str, ...] = field(default=())

    @property
    def exactly_once(self) -> bool:
        """True if there is no problem."""
        return not self.problems


class ReadTimeout(Exception):
    """A topic could not be read to its end in time, so there is no judgement."""


def judge(observed: Observed, additions: Mapping[str, Mapping[Any, Mapping[str, Any]]]) -> Proof:
    """Compare output and input. `additions`: member of the input's JSON (carrier, tailnum) -> its value ->
    the additional members of the output's JSON. Records are JSON objects with an `id`; any other record
    counts as strange."""
    given: dict[int, tuple[bytes | None, dict[str, Any]]] = {}
    for key, value in observed.given:
        body = _object(value)
        if body is None or body["id"] in given:
            raise ValueError(f"the input itself is not sound: {value!r} has no id or a repeated one")
        given[body["id"]] = (key, body)
    times: Counter[int] = Counter()
    strange = wrong = 0
    for key, value in observed.committed:
        body = _object(value)
        if body is None or body["id"] not in given:
            strange += 1
            continue
        times[body["id"]] += 1
        expected_key, expected = given[body["id"]]
        wrong += (key, body) != (expected_key, _enriched(expected, additions))
    proof = Proof(
        records_in=len(observed.given),
        records_out=len(observed.committed),
        duplicate=sum(times.values()) - len(times),
        missing=len(given) - len(times),
        strange=strange,
        wrong=wrong,
        aborted_invisible=observed.uncommitted - len(observed.committed),
        still_open=observed.still_open,
        group_offsets=dict(observed.group_offsets),
        end_offsets=dict(observed.end_offsets),
    )
    return Proof(**{**vars(proof), "problems": tuple(_problems(proof))})


def _problems(proof: Proof) -> Iterator[str]:
    if proof.records_in == 0:
        yield "the input is empty, so nothing is proven"
    for name in ("duplicate", "missing", "strange", "wrong", "still_open"):
        count = getattr(proof, name)
        if count:
            yield f"{name.replace('_', ' ')}: {count:,}"
    if proof.aborted_invisible < 0:
        yield f"read_committed saw {-proof.aborted_invisible:,} records more than read_uncommitted"
    for partition in sorted({*proof.group_offsets, *proof.end_offsets}):
        found, end = proof.group_offsets.get(partition), proof.end_offsets.get(partition)
        if found != end:
            yield f"partition {partition}: the group's committed offset is {found}, the input ends at {end}"


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        body = json.loads(value or b"")
    except ValueError:
        return None
    return body if isinstance(body, dict) and isinstance(body.get("id"), int) else None


def _enriched(body: Mapping[str, Any], additions: Mapping[str, Mapping[Any, Mapping[str, Any]]]) -> dict[str, Any]:
    whole = dict(body)
    for name, table in additions.items():
        whole |= table.get(body.get(name), {})
    return whole


# ---- looking at Kafka


def observe(bootstrap_servers: str, *, given: str, written: str, group: str) -> Observed:
    """Read the topics `given` and `written` to their ends, and the offsets that `group` has committed for `given`."""
    with closing(Look(bootstrap_servers)) as look:
        return Observed(
            given=tuple(read_all(bootstrap_servers, given, "read_committed")),
            committed=tuple(read_all(bootstrap_servers, written, "read_committed")),
            uncommitted=sum(1 for _ in read_all(bootstrap_servers, written, "read_uncommitted")),
            still_open=look.open_offsets(written),
            group_offsets=look.group_offsets(group, given),
            end_offsets=look.end_offsets(given),
        )


class Look:
    """Requests for a broker's offsets, cheap enough to send while a job runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _SILENT})
        self._consumers: dict[str, Consumer] = {}
        self._partitions: dict[str, list[int]] = {}

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def partitions(self, topic: str) -> list[int]:
        """The topic's partition numbers, requested once; empty where there is no such topic."""
        if topic not in self._partitions:
            # Requests all topics: a request for a missing one would create it.
            found = self._admin.list_topics(timeout=ANSWER_WITHIN_S).topics.get(topic)
            if found is None:
                return []
            self._partitions[topic] = sorted(found.partitions)
        return self._partitions[topic]

    def end_offsets(self, topic: str, *, committed_only: bool = False) -> Offsets:
        """The offset after the last record; with `committed_only` the last stable offset."""
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call,unused-ignore]
        asked = {TopicPartition(topic, number): latest for number in self.partitions(topic)}

        def ask() -> Offsets:
            answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_WITHIN_S)
            return {where.partition: answer.result().offset for where, answer in answers.items()}

        return _patiently(ask)

    def open_offsets(self, topic: str) -> int:
        """How many offsets of the topic are written but wait for their transaction's end."""
        # In this order, records written between the two requests can make the number too small, never too
        # large.
        ends = self.end_offsets(topic)
        stable = self.end_offsets(topic, committed_only=True)
        return sum(max(0, ends[number] - stable[number]) for number in ends)

    def group_offsets(self, group: str, topic: str) -> Offsets:
        """The offsets that the group has committed for the topic; partitions without any are left out."""
        # With a consumer that never joins the group: librdkafka's admin request for the same offsets crashes
        # the process while the group's coordinator is still loading (2.16.0: a null group in
        # rd_kafka_cgrp_op).
        if group not in self._consumers:
            settings = {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                # Returns the last committed offsets. read_committed would wait for the open transaction of a
                # driver that has just been killed, and no process ends that before the restart.
                "isolation.level": "read_uncommitted",
                "log_level": _SILENT,
            }
            self._consumers[group] = Consumer(settings)
        asked = [TopicPartition(topic, number) for number in self.partitions(topic)]

        def ask() -> Offsets:
            answers = self._consumers[group].committed(asked, ANSWER_WITHIN_S)
            return {each.partition: each.offset for each in answers if each.offset >= 0}

        return _patiently(ask)


def _patiently(ask: Callable[[], Offsets]) -> Offsets:
    """The answer. Retries while the broker is not ready: it loads its coordinators, and becomes the leader of a new
    topic, after it has begun to answer."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while True:
        try:
            return ask()
        except KafkaException as failure:
            error = failure.args[0]
            if not (error.retriable() or error.code() in _NOT_READY) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def read_all(bootstrap_servers: str, topic: str, isolation_level: str) -> Iterator[Record]:
    """Every record that a reader of this isolation level sees from the topic's beginning to its end, as it is now."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        # Only a name: partitions are assigned, so the consumer joins no group and commits nothing.
        "group.id": "proof-of-exactly-once",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        "enable.partition.eof": True,
        "log_level": _SILENT,
    }
    with closing(Look(bootstrap_servers)) as look:
        numbers = look.partitions(topic)
    unfinished = set(numbers)
    deadline = time.monotonic() + READ_WITHIN_S
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        while unfinished:
            if time.monotonic() > deadline:
                raise ReadTimeout(
                    f"{topic}: partitions {sorted(unfinished)} not read to the end in {READ_WITHIN_S:.0f} s"
                )
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
