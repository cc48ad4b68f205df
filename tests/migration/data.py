"""The topics that both sources read, written by librdkafka.

Owns: what is in them.
Does not know: who reads them.
"""

from __future__ import annotations

import uuid

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.migration.cases import FIRST_TIME_MS, Topics

STREAMS = ("stream-earliest", "stream-latest", "stream-goes-on-from-the-checkpoint-of-spark")
"""The cases that records are written to while they run, each with a topic of its own."""

_WAIT_S = 60
_COUNTS = (12, 5, 0)


def write_all(bootstrap_servers: str) -> tuple[Topics, dict[str, str]]:
    """Make the topics and fill them: what `Topics` says, and one like `plain` for each of STREAMS."""
    prefix = f"migration-{uuid.uuid4().hex[:8]}-"
    topics = Topics(f"{prefix}plain", f"{prefix}other", f"{prefix}mixed")
    own = {case: f"{prefix}{case}" for case in STREAMS}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    partitions = {topics.plain: 3, topics.other: 1, topics.mixed: 1, **dict.fromkeys(own.values(), 3)}
    # The records' times are long past: a broker would delete them within a minute.
    new = [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in partitions.items()]
    for answer in admin.create_topics(new, operation_timeout=_WAIT_S).values():
        answer.result(_WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for name in (topics.plain, *own.values()):
        for partition, count in enumerate(_COUNTS):
            _write(producer, name, partition, count)
    _write(producer, topics.other, 0, 4)
    _write_transactions(bootstrap_servers, topics.mixed)
    return topics, own


def _write(producer: Producer, topic: str, partition: int, count: int) -> None:
    for number in range(count):
        headers = [("a", b"%d" % number), ("a", None), ("b", b"")][: number % 4]
        producer.produce(
            topic,
            None if number % 5 == 4 else b"value %d" % number,
            None if number % 3 == 0 else b"key %d" % number,
            partition,
            timestamp=FIRST_TIME_MS + 1_000 * number,
            headers=headers,
        )
    if producer.flush(_WAIT_S):
        raise TimeoutError("the records were not written")


def _write_transactions(bootstrap_servers: str, topic: str) -> None:
    """Committed and aborted ones in turns; the log ends in aborted records and their marker."""
    config = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "transactional.id": topic}
    producer = Producer(config)
    producer.init_transactions(_WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        _write(producer, topic, 0, 3 + number)
        if number % 2:
            producer.abort_transaction(_WAIT_S)
        else:
            producer.commit_transaction(_WAIT_S)
