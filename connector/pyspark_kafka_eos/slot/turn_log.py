"""The log through which the tasks of a batch in one transaction take turns: events in, the same events in one order for
all.

Owns: the turns topic, the form of its records, appending to it and reading it.
Does not know: whose turn it is (`turns`), what is written during one.
Invariants:
- Of a record that was appended twice (an answer was lost), the second copy is skipped.
- An append returns only when it is acknowledged.
- A record of another try is skipped, and so is one of somebody who does not know the try's secret.

Why a log: tasks cannot rely on reaching each other or the driver on every platform. They can all reach Kafka.
A log has one order, and all tasks read the same one.
"""

from __future__ import annotations

import hmac
import itertools
import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ProtocolViolation
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.reading.own_records import own_records
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.own_topics import MARK
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.model import strict
from pyspark_kafka_eos.records import scan
from pyspark_kafka_eos.slot.plan import TurnsBegin
from pyspark_kafka_eos.slot.turns import Event, Passed, Stopped, TaskStarted, Wanted

log = logging.getLogger(__name__)

TURN_FORMAT_VERSION = 1
"""Version of the records' JSON."""

PARTITIONS = 8
"""As many as the ledger has, for the same reason."""

SETTINGS = {
    "cleanup.policy": "delete",
    # A turn matters while its batch is being written. A day is far above any transaction's timeout; an hour would not
    # be.
    "retention.ms": str(24 * 60 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
    # A source whose pattern matches the name leaves the topic out.
    **MARK,
}

_TAG_BYTES = 32
"""Of SHA-256."""

_WAIT_MS = 250
"""How long the broker holds a read at the end of the log. The broker answers at once when there is a record, so a
longer wait only delays the end of a task with nothing left to read; a shorter wait sends more empty reads.
"""


class _Connections:
    """Connections without a reader. A read that waits holds up the next one on its connection, so each reader has
    its own. A reader may belong to a task that is over, whose last read has not returned yet."""

    def __init__(self) -> None:
        self.lock = runtime.lock()
        self.free: list[int] = []
        self.numbers = itertools.count()


_connections = runtime.PerProcess(_Connections)


def turns_topic(ledger_topic: str) -> str:
    """The topic of the turns that go with a ledger."""
    return f"{ledger_topic}-turns"


def prepare_turns(cluster: Cluster, topic: str, pipeline: str) -> TopicPartition:
    """The partition for a pipeline's turns; creates the topic where it is missing."""
    admin.ensure_topic(cluster, topic, partitions=PARTITIONS, settings=SETTINGS)
    return TopicPartition(topic, zlib.crc32(pipeline.encode()) % len(cluster.topic(topic).leaders))


def turns_begin(cluster: Cluster, where: TopicPartition) -> TurnsBegin:
    """An offset before every record of a try, and the secret of those that write them."""
    return TurnsBegin(where, Offsets(cluster).latest([where], READ_UNCOMMITTED)[where], runtime.uuid4().bytes)


class TurnLog:
    """One try's part of the log, for one start of a task. One thread may append while another reads."""

    def __init__(self, cluster: Cluster, begin: TurnsBegin, key: str) -> None:
        """`key`: the try."""
        self._cluster = cluster
        self._where = begin.where
        self._key = key.encode()
        self._secret = begin.secret
        self._following = begin.offset
        self._number = 0
        self._told = False
        self._seen: dict[str, int] = {}
        self._connection: int | None = None

    def append_events(self, events: Sequence[Event]) -> None:
        """Append the events of one start, in order; returns when they are acknowledged. BrokerUnavailable
        where no answer comes; the events may be in the log then."""
        append_record(
            self._cluster,
            self._where,
            self._key,
            signed(to_json(self._number, events), self._key, self._secret),
            what="a turn",
            grant="transaction.scope=batch needs WRITE and READ on this topic; nothing of the micro-batch is visible",
        )
        self._number += 1

    def new_events(self) -> Iterator[Event]:
        """The events since the last call; waits a moment where there are none. Call `close` after the last call."""
        if self._connection is None:
            connections = _connections()
            with connections.lock:
                self._connection = connections.free.pop() if connections.free else next(connections.numbers)
        read = read_raw(
            self._cluster,
            self._where,
            self._following,
            max_wait_ms=_WAIT_MS,
            connection=f"turns-{self._connection}",
        )
        if read.out_of_range:
            raise BrokerUnavailable(
                f"{self._where} no longer has the turns of this batch (offset {self._following}); no record "
                "of the micro-batch is visible; the topic's retention.ms must be longer than a batch takes",
                {"partition": str(self._where), "offset": self._following},
            )
        for info, data in scan(bytes(read.records)):
            if info.last_offset < self._following:
                continue
            self._following = info.last_offset + 1
            if info.control:
                continue
            for rows in own_records(self._where, [(info, data)]):
                for key, value in zip(rows.key.to_pylist(), rows.value.to_pylist(), strict=True):
                    if key == self._key:
                        yield from self._of_this_try(value, info.base_offset)

    def close(self) -> None:
        """Leave the connection to the next reader."""
        if self._connection is not None:
            connections = _connections()
            with connections.lock:
                connections.free.append(self._connection)
            self._connection = None

    def _of_this_try(self, value: bytes | None, offset: int) -> Sequence[Event]:
        said = unsigned(value, self._key, self._secret)
        if said is not None:
            return self._new_of(said)
        if not self._told:
            self._told = True
            log.warning(
                "%s has a record at offset %d that no task of this batch wrote; it counts for nothing, and neither do "
                "further ones; see who has Write on the topic",
                self._where,
                offset,
            )
        return ()

    def _new_of(self, value: bytes) -> Sequence[Event]:
        number, events = from_json(value)
        start = events[0].start
        if number <= self._seen.get(start, -1):
            return ()
        self._seen[start] = number
        return events


def signed(value: bytes, key: bytes, secret: bytes) -> bytes:
    """A record's value: 32 bytes by which those who know the try's secret know each other (HMAC-SHA256, RFC 2104), then
    what was said.
    """
    return hmac.digest(secret, key + b"\0" + value, "sha256") + value


def unsigned(value: bytes | None, key: bytes, secret: bytes) -> bytes | None:
    """What `signed` has signed; None for the record of anybody else."""
    if value is None or not hmac.compare_digest(
        signed(value[_TAG_BYTES:], key, secret)[:_TAG_BYTES], value[:_TAG_BYTES]
    ):
        return None
    return value[_TAG_BYTES:]


def to_json(number: int, events: Sequence[Event]) -> bytes:
    """A record's value. `number` counts the records of one start, from 0."""
    first = events[0]
    return json.dumps(
        {
            "version": TURN_FORMAT_VERSION,
            "task": first.task,
            "start": first.start,
            "number": number,
            "events": [_listed(event) for event in events],
        },
        separators=(",", ":"),
    ).encode()


def _listed(event: Event) -> list[Any]:
    if isinstance(event, TaskStarted):
        return ["begun"]
    if isinstance(event, Stopped):
        return ["stopped", event.reason]
    place = [event.where.topic, event.where.partition]
    return ["wanted", *place] if isinstance(event, Wanted) else ["passed", *place, event.next_sequence]


def from_json(value: bytes) -> tuple[int, Sequence[Event]]:
    """What `to_json` wrote; ProtocolViolation for anything else, which does not belong in the topic."""
    try:
        record = strict.load(value)
        if record["version"] != TURN_FORMAT_VERSION:
            raise ValueError(f"format {str(record['version'])[:40]}, and this version has {TURN_FORMAT_VERSION}")
        task, start = strict.writer(record["task"]), strict.text(record["start"])
        events = [_event(task, start, *strict.several(listed)) for listed in strict.several(record["events"])]
        if not events:
            raise ValueError("no events")
        return strict.whole(record["number"]), events
    except strict.MALFORMED as error:
        raise ProtocolViolation(
            f"a record of the turns topic is not in the form that this version of the connector writes ({strict.shown(error)}); "
            "nothing of the micro-batch is visible; do not run one pipeline with two versions at a time",
            {"value": value[:200].decode(errors="replace")},
        ) from error


def _event(task: int, start: str, kind: str, *rest: Any) -> Event:
    if kind == "begun":
        return TaskStarted(task, start)
    if kind == "stopped":
        return Stopped(task, start, strict.text(rest[0]))
    where = TopicPartition(strict.topic(rest[0]), strict.int32(rest[1]))
    if kind == "wanted":
        return Wanted(task, start, where)
    if kind == "passed":
        return Passed(task, start, where, strict.sequence(rest[2]))
    raise ValueError(f"event {kind!r}")
