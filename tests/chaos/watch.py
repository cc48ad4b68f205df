"""What independent readers see of a job: librdkafka reads the output, the ledger and the group, Kafka's tools the rest.

Owns: reading topics to their ends, the transactions that are still open, putting a History together.
Does not know: which faults were made, what is right (`checker`).
Invariants: nothing here uses the product's client or codec, or a mistake of theirs would be invisible; a read ends at
the partition's end of that moment and is not cut short by markers or aborted records.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from embedded_kafka.real import LocalKafka
from tests.chaos.history import (
    Batch,
    Decided,
    Fault,
    History,
    Isolation,
    LogEntry,
    Offsets,
    OffsetsSeen,
    Read,
    Row,
    Scope,
)
from tests.chaos.job import Job
from tests.chaos.log_dump import dump

LEDGER = "exactly-once-ledger"
_LEDGER_PARTITIONS = 8
_OUTPUT_PARTITIONS = 4
_CONSUME_S = 0.05
_ANSWER_S = 30.0

_moments = itertools.count(1)


def read(broker: LocalKafka, topic: str, isolation: Isolation, partitions: int) -> Iterator[Row]:
    """Every record of a topic from its first offset to its end of now; keys are not looked at."""
    for message in _messages(broker, topic, isolation, partitions):
        yield Row(topic, message[0], message[1], message[3])


def _messages(
    broker: LocalKafka, topic: str, isolation: Isolation, partitions: int
) -> Iterator[tuple[int, int, str, str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "watch",
            "isolation.level": isolation.value,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended: set[int | None] = set()
        while len(ended) < partitions:
            for message in consumer.consume(1000, timeout=_CONSUME_S):
                if message.error():
                    ended.add(message.partition())
                    continue
                key, value = message.key(), message.value()
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                yield number, offset, (key or b"").decode(), (value or b"").decode()
    finally:
        consumer.close()


@dataclass(frozen=True)
class LedgerSeen:
    """The ledger at a moment: pipeline -> (batch, repairs) of its committed decisions, in the ledger's order."""

    at: int
    decisions: Mapping[str, list[tuple[int, int]]]


def look_at_ledger(broker: LocalKafka) -> LedgerSeen:
    """All committed decisions. Of a ledger that is never compacted here, so every one is there."""
    found: dict[str, list[tuple[int, int]]] = {}
    for _, _, pipeline, value in _messages(broker, LEDGER, Isolation.COMMITTED, _LEDGER_PARTITIONS):
        try:
            body = json.loads(value)
            decision = (int(body["batch_id"]), int(body["repaired"]))
        except (ValueError, KeyError, TypeError):
            # Other tests share the broker and write under keys of theirs what is no decision. One of this job's that
            # cannot be read is missing from what is returned, and the judges miss it.
            continue
        found.setdefault(pipeline, []).append(decision)
    return LedgerSeen(next(_moments), found)


def group_offsets(broker: LocalKafka, job: Job) -> Offsets:
    """The offsets committed for the pipeline's group; negative for none."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": job.options["pipeline"],
            # librdkafka asks for stable offsets only, again and again, where the consumer is read_committed.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        wanted = {(topic, number) for batch in job.offsets for topic, number, _ in batch}
        asked = [TopicPartition(*where) for where in sorted(wanted)]
        return {(each.topic, each.partition): each.offset for each in consumer.committed(asked, timeout=_ANSWER_S)}
    finally:
        consumer.close()


def look(broker: LocalKafka, job: Job, isolation: Isolation = Isolation.COMMITTED) -> Read:
    """A read of the job's output, and where its group stands afterwards."""
    rows = tuple(read(broker, job.options["topic"], isolation, _OUTPUT_PARTITIONS))
    return Read(next(_moments), isolation, rows, group_offsets(broker, job))


def look_at_offsets(broker: LocalKafka, job: Job) -> OffsetsSeen:
    """Where the job's group stands."""
    return OffsetsSeen(next(_moments), group_offsets(broker, job))


_LISTED = re.compile(r"^(\S+)\s+\d+\s+\d+\s+(Ongoing|Prepare\w+)\s*$", re.MULTILINE)
_HANGING = re.compile(r"^(\S+\s+\d+)\s+\d+\s+\d+\s", re.MULTILINE)


def open_transactions(broker: LocalKafka) -> tuple[str, ...]:
    """What Kafka's own tool lists as open, being prepared, or hanging on any broker."""
    command = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", broker.bootstrap_servers)
    listed = broker.tool(*command, "list")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "TransactionState" in listed.stdout, listed.stdout
    hanging = broker.tool(*command, "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0")
    assert hanging.returncode == 0, hanging.stdout + hanging.stderr
    return (
        *(name for name, _ in _LISTED.findall(listed.stdout)),
        *(f"hanging: {found}" for found in _HANGING.findall(hanging.stdout)),
    )


@dataclass(frozen=True)
class Witnesses:
    """What Kafka's tools and the ledger say of several jobs once all have ended; asked once for all of them."""

    broker: LocalKafka
    log: tuple[LogEntry, ...]
    open_now: tuple[str, ...]
    ledger: LedgerSeen

    @staticmethod
    def of(broker: LocalKafka, jobs: Iterable[Job]) -> Witnesses:
        """Ask them. Nobody may write meanwhile."""
        log = dump(broker, [job.options["topic"] for job in jobs])
        return Witnesses(broker, log, open_transactions(broker), look_at_ledger(broker))

    def history(
        self,
        job: Job,
        *,
        faults: Iterable[Fault] = (),
        reads: Iterable[Read] = (),
        offsets_seen: Iterable[OffsetsSeen] = (),
    ) -> History:
        """All that is known of one job, for `checker.check`: with what was seen in its course, and a last read now."""
        topic, pipeline = job.options["topic"], job.options["pipeline"]
        begun = sorted(int(path.name) for path in (job.checkpoint / "offsets").iterdir() if path.name.isdigit())
        done = sorted(int(path.name) for path in (job.checkpoint / "commits").iterdir())
        return History(
            scope=Scope.TASK,
            batches=tuple(
                Batch(number, job.batches[number], {(name, at): end for name, at, end in job.offsets[number]})
                for number in begun
            ),
            log=tuple(entry for entry in self.log if entry.topic == topic),
            reads=(*reads, look(self.broker, job)),
            decisions=tuple(
                Decided(self.ledger.at, batch, repaired) for batch, repaired in self.ledger.decisions.get(pipeline, ())
            ),
            offsets_seen=tuple(offsets_seen),
            open_transactions=tuple(
                name for name in self.open_now if name.startswith((f"{pipeline}:", f"hanging: {topic} "))
            ),
            faults=tuple(faults),
            finished=tuple(done),
        )
