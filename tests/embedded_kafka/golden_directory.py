"""What a data directory of this version of the broker looks like: `python -m tests.embedded_kafka.golden_directory
FILE.tar.gz`.

Owns: what is in one, so that a later version of the broker can be judged by a directory that this one wrote.
Run it when `FORMAT_VERSION` grows, with the code from before that; the files from before stay.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka import EmbeddedKafka

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # The files are judged at any later date.
    "log.retention.ms": "-1",
    "offsets.retention.ms": str(10**13),
    "transactional.id.expiration.ms": str(10**13),
    "producer.id.expiration.ms": str(10**13),
}
COMMITTED = [b"committed 0", b"committed 1", b"committed 2"]
KEPT = [b"plain 3", b"plain 4"]
CONFIGS = {"max.message.bytes": "2000", "retention.ms": "-1"}
ADVANCED_MS = 1_000
_TIMEOUT_S = 30


def write(directory: Path) -> None:
    """Fill it, and kill the broker in the middle of a transaction."""
    with EmbeddedKafka(data_dir=directory, config=SETTINGS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        made = admin.create_topics([NewTopic("t", 2, 1, config=CONFIGS), NewTopic("plain", 1, 1)])
        for future in made.values():
            future.result(_TIMEOUT_S)
        kafka.advance(ADVANCED_MS)
        done = _producer(kafka, "done")
        for number, value in enumerate(COMMITTED):
            done.begin_transaction()
            done.produce("t", value, key=b"key", partition=number % 2)
            if number == 2:
                _send_offset(kafka, done, 2)
            done.commit_transaction(_TIMEOUT_S)
        done.begin_transaction()
        done.produce("t", b"aborted", partition=0)
        done.flush(_TIMEOUT_S)
        done.abort_transaction(_TIMEOUT_S)
        _plain(kafka)
        deleted = admin.delete_records([TopicPartition("plain", 0, 3)])
        for each in deleted.values():
            each.result(_TIMEOUT_S)
        kafka.elect_leader("plain", 0)
        # Cleanly, so that the files of a clean end are there; what follows is a crash's.
        kafka.restart()
        left = _producer(kafka, "open")
        left.begin_transaction()
        left.produce("t", b"open", partition=1)
        left.flush(_TIMEOUT_S)
        _send_offset(kafka, left, 9)
        kafka.kill()


def _producer(kafka: EmbeddedKafka, transactional_id: str) -> Producer:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id,
        "transaction.timeout.ms": 60_000, "log_level": 0,
    }  # fmt: skip
    made = Producer(settings)
    made.init_transactions(_TIMEOUT_S)
    return made


def _send_offset(kafka: EmbeddedKafka, producer: Producer, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "group"})
    member = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("plain", 0, offset)], member, _TIMEOUT_S)
    consumer.close()


def _plain(kafka: EmbeddedKafka) -> None:
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "lz4"})
    for number in range(5):
        writer.produce("plain", b"plain %d" % number)
        if writer.flush(_TIMEOUT_S):
            raise KafkaException("not written")


def main() -> None:
    """Write one and pack it, without what belongs to the process that wrote it."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "data"
        write(directory)
        with tarfile.open(sys.argv[1], "w:gz") as packed:
            for path in sorted(directory.rglob("*")):
                if path.is_file() and path.name not in ("broker.log", ".lock"):
                    packed.add(path, str(path.relative_to(directory)))


if __name__ == "__main__":
    main()
