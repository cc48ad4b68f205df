"""Records that are judged one by one, with their index in the answer, and batches that a topic keeps in a codec of its
own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.log import encode_batch
from embedded_kafka.node import Node
from embedded_kafka.refusals import RecordsRefused, Refused
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.log.log_tools import KEPT, NOW, changed, client_batch, open_log, refused
from tests.embedded_kafka.node_tools import ask, fetch, fetched, produce, with_node

HOUR_MS = 3_600_000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WHERE = TopicPartition("t", 0)


def batch(
    *records: tuple[bytes | None, bytes], timestamps: tuple[int, ...] = (), codec: int = 0, headers: int = 0
) -> bytes:
    """Of a writer that is not ours."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for number, (key, value) in enumerate(records):
        given = [(f"h{each}", b"x" if each % 2 else None) for each in range(headers)]
        builder.append(number, timestamp=timestamps[number] if timestamps else NOW, key=key, value=value, headers=given)
    return bytes(builder.build())


def part_of(answer: Any) -> Any:
    (topic,) = answer.responses
    (part,) = topic.partition_responses
    return part


def indexes(error: RecordsRefused) -> list[int]:
    return [each.index for each in error.errors]


@pytest.mark.parametrize("version", range(3, 13))
def test_a_record_without_a_key_is_refused_in_a_compacted_topic_and_named_by_its_index(
    tmp_path: Path, version: int
) -> None:
    """KIP-467: from version 8 on the answer names each record; older ones have the code alone. Nothing of the batch is
    written.
    """

    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, {"cleanup.policy": "compact"})
        data = batch((b"k", b"v"), (None, b"v"), (b"k", b"v"), (None, b"v"))
        part = part_of(await ask(node, produce("t", data, version=version)))
        assert (part.error_code, part.base_offset) == (Code.INVALID_RECORD, -1)
        named = [each.batch_index for each in part.record_errors or []] if version >= 8 else [1, 3]
        assert named == [1, 3]
        if version >= 8:
            assert "key" in part.record_errors[0].batch_index_error_message
            assert "the batch was not written" in part.error_message
        assert node.parts.topics.log(WHERE).end_offset == 0

        good = part_of(await ask(node, produce("t", batch((b"k", b"v"), (b"", b"")), version=version)))
        assert (good.error_code, good.base_offset) == (Code.NONE, 0)

    with_node(tmp_path, scenario)


def test_a_topic_that_becomes_compacted_asks_for_keys_from_then_on(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1)
        data = batch((None, b"v"))
        assert part_of(await ask(node, produce("t", data))).error_code == Code.NONE
        node.parts.topics.configure("t", {"cleanup.policy": "compact,delete"})
        assert part_of(await ask(node, produce("t", data))).error_code == Code.INVALID_RECORD
        node.parts.topics.configure("t", {})
        assert part_of(await ask(node, produce("t", data))).error_code == Code.NONE
        assert node.parts.topics.log(WHERE).end_offset == 2

    with_node(tmp_path, scenario)


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("headers", [0, 3])
def test_records_are_told_apart_whatever_packs_them(tmp_path: Path, codec: int, headers: int) -> None:
    log = open_log(tmp_path, replace(KEPT, compact=True))
    data = batch((b"k", b"v" * 500), (None, b""), (b"", b"v"), (None, b"w"), codec=codec, headers=headers)
    with pytest.raises(RecordsRefused) as error:
        log.append(data, now_ms=NOW)
    assert (error.value.code, indexes(error.value)) == (Code.INVALID_RECORD, [1, 3])
    assert log.end_offset == 0


def test_records_too_old_or_too_far_ahead_are_named(tmp_path: Path) -> None:
    config = replace(KEPT, timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=HOUR_MS)
    log = open_log(tmp_path, config)
    times = (NOW, NOW - HOUR_MS, NOW - HOUR_MS - 1, NOW + HOUR_MS, NOW + HOUR_MS + 1, -1)
    with pytest.raises(RecordsRefused) as error:
        log.append(batch(*[(None, b"v")] * len(times), timestamps=times), now_ms=NOW)
    assert (error.value.code, indexes(error.value)) == (Code.INVALID_TIMESTAMP, [2, 4])
    assert log.end_offset == 0


def test_a_record_more_than_an_hour_ahead_is_refused_by_default_and_an_old_one_is_not(tmp_path: Path) -> None:
    """Kafka since 4.0 (KIP-1030). The broker's own time makes the producer's meaningless."""
    log = open_log(tmp_path, KEPT)
    ahead = batch((None, b"v"), timestamps=(NOW + HOUR_MS + 1,))
    with refused(Code.INVALID_TIMESTAMP):
        log.append(ahead, now_ms=NOW)
    assert log.append(batch((None, b"v"), timestamps=(1,)), now_ms=NOW).base_offset == 0
    log.reconfigure(replace(KEPT, log_append_time=True))
    assert log.append(ahead, now_ms=NOW).base_offset == 1


def test_a_bad_time_outweighs_a_missing_key_and_both_are_named(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(KEPT, compact=True, timestamp_before_max_ms=HOUR_MS))
    data = batch((None, b"v"), (b"k", b"v"), (b"k", b"v"), timestamps=(1, NOW, 1))
    with pytest.raises(RecordsRefused) as error:
        log.append(data, now_ms=NOW)
    assert (error.value.code, indexes(error.value)) == (Code.INVALID_TIMESTAMP, [0, 2])


@pytest.mark.parametrize(
    ("config", "timestamp", "bad"),
    [
        (LogConfig(log_append_time=True), NOW, True),
        (LogConfig(log_append_time=True), -1, True),
        (LogConfig(), -1, True),
        (LogConfig(), NOW, False),
    ],
)
def test_the_brokers_time_claimed_by_a_producer_is_refused_record_by_record(
    tmp_path: Path, config: LogConfig, timestamp: int, bad: bool
) -> None:
    log = open_log(tmp_path, config)
    claims = changed(batch((None, b"a"), (None, b"b"), timestamps=(timestamp,) * 2), ">h", 21, 0x08)
    if not bad:
        assert log.append(claims, now_ms=NOW).base_offset == 0
        return
    with pytest.raises(RecordsRefused) as error:
        log.append(claims, now_ms=NOW)
    assert (error.value.code, indexes(error.value)) == (Code.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_count_that_contradicts_the_records_is_refused_where_a_batch_is_opened(
    tmp_path: Path, count: int, codec: int
) -> None:
    log = open_log(tmp_path, replace(KEPT, compact=True))
    data = batch((b"k", b"v" * 500), (b"k", b"v"), (b"k", b"v"), codec=codec)
    lies = changed(changed(data, ">i", 57, count), ">i", 23, count - 1)
    with refused(Code.INVALID_RECORD):
        log.append(lies, now_ms=NOW)
    assert log.end_offset == 0


def test_any_damage_inside_an_opened_batch_is_refused_or_taken_and_never_trips_the_broker(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, replace(KEPT, compact=True))
    whole = batch((b"key", b"value"), (b"key", b"value"), headers=2)
    codes, taken = [], 0
    for at, bit in itertools.product(range(61, len(whole)), range(8)):
        damaged = changed(whole, ">B", at, whole[at] ^ 1 << bit)
        try:
            log.append(damaged, now_ms=NOW)
            taken += 1
        except Refused as error:
            codes.append(error.code)
    assert len(codes) > 100
    assert set(codes) <= {Code.INVALID_RECORD, Code.INVALID_TIMESTAMP}
    assert log.end_offset == 2 * taken


def test_what_cannot_be_unpacked_is_refused_where_a_batch_is_opened(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(KEPT, codec=4))
    with refused(Code.INVALID_RECORD):
        log.append(changed(client_batch(3), ">h", 21, 1), now_ms=NOW)
    assert log.end_offset == 0


def test_a_refused_batch_leaves_its_producer_as_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(KEPT, compact=True))

    def sent(key: bytes | None) -> bytes:
        return bytes(encode_batch([(key, b"v")], timestamp_ms=NOW, producer_id=5, producer_epoch=0, base_sequence=0))

    with refused(Code.INVALID_RECORD):
        log.append(sent(None), now_ms=NOW)
    assert log.producers() == []
    assert not log.append(sent(b"k"), now_ms=NOW).duplicate
    assert log.append(sent(b"k"), now_ms=NOW).duplicate


def kept(node_or_log: Any) -> list[DefaultRecordBatch]:
    data = bytes(node_or_log.read(0, 1 << 24, read_committed=False, at_least_one=True).records)
    found = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        found.append(DefaultRecordBatch(data[:size]))
        data = data[size:]
    return found


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("codec", CODECS.values())
def test_a_topic_with_a_codec_keeps_every_batch_in_it(tmp_path: Path, target: str, codec: int) -> None:
    """As kafka-python reads it: the same records, the same producer, another codec."""
    log = open_log(tmp_path, replace(KEPT, codec=CODECS[target]))
    records: list[tuple[bytes | None, bytes]] = [(b"k", b"v" * 1000), (None, b"w"), (b"", b"")]
    for _ in range(2):
        log.append(batch(*records, codec=codec, timestamps=(NOW, NOW - 5, NOW + 5), headers=1), now_ms=NOW)

    for number, found in enumerate(kept(log)):
        assert found.validate_crc()
        assert found.compression_type == CODECS[target]
        assert (found.base_offset, found.last_offset) == (3 * number, 3 * number + 2)
        assert [(each.key, each.value, each.timestamp) for each in found] == [
            (key, value, NOW + by) for (key, value), by in zip(records, (0, -5, 5), strict=True)
        ]


def test_a_transactions_batches_keep_producer_epoch_and_sequence_when_they_are_packed_anew(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, replace(KEPT, codec=CODECS["zstd"]))
    for sequence in (0, 4):
        data = client_batch(4, producer_id=7, epoch=3, sequence=sequence, transactional=True, value=b"v" * 200)
        log.append(data, now_ms=NOW)
        assert log.append(data, now_ms=NOW).duplicate
    found = kept(log)
    assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in found] == [
        (7, 3, 0),
        (7, 3, 4),
    ]
    assert all(each.is_transactional and each.compression_type == 4 for each in found)
    assert log.is_open(7) == 0


def test_the_brokers_time_is_put_on_a_batch_that_is_packed_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(KEPT, codec=CODECS["gzip"], log_append_time=True))
    log.append(client_batch(3, value=b"v" * 200, timestamp_ms=5), now_ms=NOW)
    (found,) = kept(log)
    assert found.validate_crc()
    assert (found.compression_type, found.timestamp_type, found.max_timestamp) == (1, 1, NOW)


def test_a_batch_that_is_too_large_once_it_is_unpacked_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(KEPT, codec=0, max_message_bytes=1_000))
    with refused(Code.MESSAGE_TOO_LARGE):
        log.append(batch((None, b"x" * 4_000), codec=1), now_ms=NOW)
    assert log.append(batch((None, b"x" * 400), codec=1), now_ms=NOW).base_offset == 0


@pytest.mark.parametrize(
    ("configs", "codec"), [({}, 2), ({"compression.type": "lz4"}, 3), ({"compression.type": "producer"}, 2)]
)
def test_a_reader_gets_the_codec_of_the_topic(tmp_path: Path, configs: Mapping[str, str], codec: int) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, configs)
        await ask(node, produce("t", batch((b"k", b"v" * 500), timestamps=(5,), codec=2)))
        part = fetched(await ask(node, fetch("t", {0: 0})))[0]
        assert DefaultRecordBatch(bytes(part.records)).compression_type == codec

    with_node(tmp_path, scenario)


def test_a_plain_topics_batches_are_not_opened(tmp_path: Path) -> None:
    """What makes the check free for most topics; the garbage behind the header would be refused."""
    log = open_log(tmp_path, KEPT)
    garbage = changed(client_batch(3), ">B", 61, 0xFF)
    assert log.append(garbage, now_ms=NOW).base_offset == 0
    log.reconfigure(replace(KEPT, compact=True))
    with refused(Code.INVALID_RECORD):
        log.append(garbage, now_ms=NOW)


@pytest.mark.processes
def test_librdkafka_tells_the_bad_records_of_a_batch_from_the_others() -> None:
    """The judge's own reading of the answer: which records were at fault, and which went down with them."""
    said: dict[bytes, str] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        said[bytes(message.value() or b"")] = "written" if error is None else error.name()

    with EmbeddedKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic("t", 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])["t"].result(30)
        # Longer than the test may need to hand over four records, so that they are one batch; flush does not wait for
        # it.
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5_000})
        # The client has the topic's partition from here on. Records that wait for it are handed over one by one, and a
        # flush meanwhile sends those that are there as a batch of their own.
        producer.produce("t", value=b"before", key=b"k")
        assert producer.flush(30) == 0
        for number, key in enumerate((b"k", None, None, b"k")):
            producer.produce("t", value=b"%d" % number, key=key, on_delivery=delivered)
        assert producer.flush(30) == 0

    assert said == {
        b"0": "_INVALID_DIFFERENT_RECORD",
        b"1": "INVALID_RECORD",
        b"2": "INVALID_RECORD",
        b"3": "_INVALID_DIFFERENT_RECORD",
    }
