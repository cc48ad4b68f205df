"""Kafka's own dump of its segment files becomes log entries, and a text that is not understood is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real import LocalKafka
from tests.chaos.history import EntryKind, LogEntry
from tests.chaos.log_dump import dump, parse, segment_files
from tests.conftest import MakeTopic

WITHIN_S = 60

# Printed by Kafka 4.3.1 for three segments, of which the last is empty.
BATCH = (
    "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 2000 producerEpoch: 4 "
    "partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1700000000002 size: 110 magic: 2 compresscodec: none crc: 1900537348 isvalid: true"
)
FIRST = "| offset: 0 CreateTime: 1700000000000 keySize: -1 valueSize: 8 sequence: 0 headerKeys: [] payload: b0.s0.r0"
MARKER = (
    "| offset: 5 CreateTime: 1700000000005 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
    "endTxnMarker: ABORT coordinatorEpoch: 3"
)
DUMP = "\n".join(
    [
        "Dumping /kafka/broker-0/my-out-1/00000000000000000000.log",
        "Log starting offset: 0",
        BATCH,
        FIRST,
        "| offset: 1 CreateTime: 1700000000001 keySize: 12 valueSize: 0 sequence: 1 headerKeys: [h] key: a payload: b payload: ",
        "| offset: 2 CreateTime: 1700000000002 keySize: 4 valueSize: -1 sequence: 2 headerKeys: [] key: gone",
        "baseOffset: 3 lastOffset: 3 count: 1 baseSequence: 0 lastSequence: 0 producerId: 2001 producerEpoch: 0 partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 110 CreateTime: 1700000000003 size: 76 magic: 2 compresscodec: none crc: 152185134 isvalid: true",
        "| offset: 3 CreateTime: 1700000000003 keySize: -1 valueSize: 8 sequence: 0 headerKeys: [] payload: b0.s1.r0",
        "baseOffset: 4 lastOffset: 4 count: 1 baseSequence: -1 lastSequence: -1 producerId: 2000 producerEpoch: 5 partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 186 CreateTime: 1700000000004 size: 78 magic: 2 compresscodec: none crc: 2555053476 isvalid: true",
        "| offset: 4 CreateTime: 1700000000004 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 3",
        "Dumping /kafka/broker-0/my-out-1/00000000000000000005.log",
        "Log starting offset: 5",
        "baseOffset: 5 lastOffset: 5 count: 1 baseSequence: -1 lastSequence: -1 producerId: 2001 producerEpoch: 1 partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000005 size: 78 magic: 2 compresscodec: none crc: 726128487 isvalid: true",
        MARKER,
        "baseOffset: 6 lastOffset: 6 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 78 CreateTime: 1700000000006 size: 81 magic: 2 compresscodec: none crc: 2610695332 isvalid: true",
        "| offset: 6 CreateTime: 1700000000006 keySize: -1 valueSize: 13 sequence: -1 headerKeys: [] payload: plain text: 1",
        "Dumping /kafka/broker-0/other-0/00000000000000000000.log",
        "Log starting offset: 0",
        "",
    ]
)
ENTRIES = (
    LogEntry("my-out", 1, 0, EntryKind.DATA, 2000, 4, "b0.s0.r0"),
    LogEntry("my-out", 1, 1, EntryKind.DATA, 2000, 4, ""),
    LogEntry("my-out", 1, 2, EntryKind.DATA, 2000, 4, None),
    LogEntry("my-out", 1, 3, EntryKind.DATA, 2001, 0, "b0.s1.r0"),
    LogEntry("my-out", 1, 4, EntryKind.COMMIT, 2000, 5),
    LogEntry("my-out", 1, 5, EntryKind.ABORT, 2001, 1),
    LogEntry("my-out", 1, 6, EntryKind.DATA, -1, -1, "plain text: 1", transactional=False),
)


def test_records_and_markers_are_read_with_their_producers_over_all_files() -> None:
    assert parse(DUMP) == ENTRIES


def test_the_wording_of_kafka_3_0_is_read_too() -> None:
    older = DUMP.replace("Log starting", "Starting").replace(" deleteHorizonMs: OptionalLong.empty", "")
    assert older != DUMP

    assert parse(older) == ENTRIES


def test_an_empty_dump_has_no_entries() -> None:
    assert parse("") == ()


@pytest.mark.parametrize(
    ("said", "instead", "because"),
    [
        (BATCH, BATCH.replace("isvalid: true", "isvalid: false"), "line 3 of the dump is a broken batch"),
        (FIRST + "\n", "", "line 6 of the dump is not one of 1 more records"),
        (FIRST, f"{FIRST}\n{FIRST}", "line 7 of the dump is a record outside a batch"),
        (
            FIRST,
            FIRST.replace("b0.s0", "b0\ns0"),
            "line 4 of the dump is no record whose value is 8 characters",
        ),
        (
            FIRST,
            FIRST.replace("b0.s0", "b0é s0"),
            "line 4 of the dump is no record whose value is 8 characters",
        ),
        (
            FIRST,
            FIRST.replace("b0.s0.r0", "b0é.s0.r"),
            "line 4 of the dump is no record whose value is 8 char",
        ),
        (
            MARKER,
            MARKER.replace("endTxnMarker: ABORT coordinatorEpoch: 3", "controlType: LEADER_CHANGE(2)"),
            "marker",
        ),
        (
            "Dumping /kafka/broker-0/other-0",
            "Found 40 invalid bytes at the end of a.log\nDumping /x/y-0",
            "Found 40",
        ),
        ("Dumping /kafka/broker-0/my-out-1/00000000000000000000.log\n", "", "broken batch, or of no file"),
        (DUMP[DUMP.index("| offset: 6") :], "", "is not one of 1 more records: ''"),
        (DUMP[DUMP.index("\n| offset: 6") :], "", "ends 1 records too early"),
    ],
)
def test_a_dump_that_is_not_understood_to_its_last_line_is_refused(said: str, instead: str, because: str) -> None:
    changed = DUMP.replace(said, instead)
    assert changed != DUMP

    with pytest.raises(ValueError, match=because):
        parse(changed)


def test_the_files_of_a_topic_come_by_partition_and_offset_and_without_deleted_topics(tmp_path: Path) -> None:
    made = [
        "t-2/05.log",
        "t-10/00.log",
        "t-2/00.log",
        "t-2/00.index",
        "t-0.1f-delete/00.log",
        "t-t-0/00.log",
        "u-0/00.log",
    ]
    for name in made:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = [path.relative_to(tmp_path).as_posix() for path in segment_files(tmp_path, ["u", "t"])]

    assert found == ["t-2/00.log", "t-2/05.log", "t-10/00.log", "u-0/00.log"]


def test_a_topic_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no segment files of never-made"):
        segment_files(tmp_path, ["never-made"])


def transactional(broker: LocalKafka, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(WITHIN_S)
    return producer


@pytest.mark.kafka
@pytest.mark.real
def test_a_real_log_has_its_records_and_markers_in_order(kafka: LocalKafka, topic: MakeTopic) -> None:
    # Small segments, so that a partition has several files.
    name = topic(partitions=2, **{"segment.bytes": "1048576"})
    producer = transactional(kafka, f"{name}:0")
    filler = "x" * 600_000
    producer.begin_transaction()
    producer.produce(name, "kept", partition=0, key="a payload: b", headers=[("h", b"1")])
    producer.produce(name, "", partition=0)
    producer.produce(name, None, partition=0, key="gone")
    producer.commit_transaction(WITHIN_S)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(name, filler, partition=1)
        # An abort throws away what has not been sent.
        producer.flush(WITHIN_S)
        producer.abort_transaction(WITHIN_S)
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "gzip"})
    plain.produce(name, "outside", partition=1)
    plain.flush(WITHIN_S)

    entries = dump(kafka, [name])

    assert [(each.partition, each.offset, each.kind, each.record, each.transactional) for each in entries] == [
        (0, 0, EntryKind.DATA, "kept", True),
        (0, 1, EntryKind.DATA, "", True),
        (0, 2, EntryKind.DATA, None, True),
        (0, 3, EntryKind.COMMIT, None, True),
        (1, 0, EntryKind.DATA, filler, True),
        (1, 1, EntryKind.ABORT, None, True),
        (1, 2, EntryKind.DATA, filler, True),
        (1, 3, EntryKind.ABORT, None, True),
        (1, 4, EntryKind.DATA, "outside", False),
    ]
    assert {each.topic for each in entries} == {name}
    written = [each for each in entries if each.transactional]
    assert len({each.producer_id for each in written}) == 1
    assert [each.epoch for each in written if each.partition == 1] == sorted(
        each.epoch for each in written if each.partition == 1
    )
    assert len(segment_files(kafka.data_dir / "broker-0", [name])) > 2
    assert entries[-1].producer_id == -1
