"""A data directory that another version of the broker wrote: an older one's is read whole, a newer one's is refused and
unchanged.

`golden/format-N.tar.gz` was written by the last code with that format, as `golden_directory.py` does it, and killed.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from embedded_kafka import EmbeddedKafka
from embedded_kafka.serving import serve
from embedded_kafka.storage import FORMAT_VERSION, read_json, write_json
from kafka_core.errors import LogDamaged, UnsupportedVersion
from tests.embedded_kafka.golden_directory import ADVANCED_MS, COMMITTED, CONFIGS, KEPT, SETTINGS

GOLDEN = Path(__file__).parent / "golden"
TIMEOUT_S = 30
EARLIEST = -2


def unpacked(version: int, directory: Path) -> Path:
    with tarfile.open(GOLDEN / f"format-{version}.tar.gz") as packed:
        for member in packed:
            content = packed.extractfile(member)
            assert content is not None
            path = directory / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
    return directory


def contents(directory: Path) -> dict[Path, bytes]:
    """All files but the lock, which says who tried."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


def records_in(directory: Path) -> dict[Path, bytes]:
    return {path: content for path, content in contents(directory).items() if path.suffix == ".log"}


def started(directory: Path) -> None:
    async def run() -> None:
        async with serve(directory, [0], None, SETTINGS):
            pass

    asyncio.run(run())


@pytest.fixture(params=range(1, FORMAT_VERSION + 1), ids=lambda version: f"format-{version}")
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    directory = unpacked(request.param, tmp_path / "data")
    with EmbeddedKafka(data_dir=directory, config=SETTINGS) as broker:
        yield broker


def values(kafka: EmbeddedKafka, topic: str, partition: int, count: int) -> list[tuple[int, bytes]]:
    """The first committed records."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads", "isolation.level": "read_committed"}
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, partition, EARLIEST)])
        found = consumer.consume(count, TIMEOUT_S)
        return [(each.offset(), each.value()) for each in found]
    finally:
        consumer.close()


def group_offset(kafka: EmbeddedKafka) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "group"})
    try:
        (found,) = consumer.committed([TopicPartition("plain", 0)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


@pytest.mark.kafka
@pytest.mark.embedded
def test_records_and_where_they_begin_are_those_that_the_older_broker_kept(kafka: EmbeddedKafka) -> None:
    assert [value for _, value in values(kafka, "t", 0, 2)] == [COMMITTED[0], COMMITTED[2]]
    assert [value for _, value in values(kafka, "t", 1, 1)] == [COMMITTED[1]]
    assert values(kafka, "plain", 0, 2) == list(enumerate(KEPT, 3))


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_transaction_that_the_older_broker_left_open_is_aborted_and_its_id_goes_on(
    kafka: EmbeddedKafka,
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "open", "log_level": 0}
    writer = Producer(settings)
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    writer.produce("t", b"new", partition=1)
    writer.commit_transaction(TIMEOUT_S)
    assert [value for _, value in values(kafka, "t", 1, 2)] == [COMMITTED[1], b"new"]
    assert group_offset(kafka) == 2


@pytest.mark.kafka
@pytest.mark.embedded
def test_configurations_the_clock_and_leaders_epochs_are_the_older_brokers(kafka: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    shown = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert {name: shown[name].value for name in CONFIGS} == CONFIGS
    assert read_json(kafka.data_dir / "clock.json") == {"added_ms": ADVANCED_MS}
    assert kafka.elect_leader("plain", 0) == 2


def test_a_directory_of_a_newer_broker_is_refused_in_words_and_nothing_of_it_is_changed(
    tmp_path: Path,
) -> None:
    directory = unpacked(FORMAT_VERSION, tmp_path)
    meta = read_json(directory / "meta.json")
    write_json(directory / "meta.json", {**meta, "version": FORMAT_VERSION + 1, "unknown": "field"})
    before = contents(directory)

    with pytest.raises(UnsupportedVersion, match="newer version of this broker; nothing was changed") as refused:
        started(directory)

    assert f"found_version={FORMAT_VERSION + 1}" in str(refused.value)
    assert contents(directory) == before


@pytest.mark.parametrize("garbled", [b"", b"{", b"[]", b'{"version": "one"}', b'{"cluster_id": "x"}', b"\xff"])
def test_a_directory_whose_format_cannot_be_told_is_refused_in_words_and_nothing_of_it_is_changed(
    tmp_path: Path, garbled: bytes
) -> None:
    directory = unpacked(FORMAT_VERSION, tmp_path)
    (directory / "meta.json").write_bytes(garbled)
    before = contents(directory)

    with pytest.raises(LogDamaged, match=r"meta\.json") as refused:
        started(directory)

    assert " was changed" in str(refused.value)
    assert contents(directory) == before


@pytest.mark.parametrize("name", ["topics.json", "leader-epochs.json", "clock.json"])
def test_a_garbled_small_file_is_refused_in_words_and_no_record_is_changed(tmp_path: Path, name: str) -> None:
    directory = unpacked(FORMAT_VERSION, tmp_path)
    (directory / name).write_bytes(b'[{"cut": ')
    before = records_in(directory)

    with pytest.raises(LogDamaged, match="no record was changed") as refused:
        started(directory)

    assert name in str(refused.value)
    assert records_in(directory) == before
    assert (directory / name).read_bytes() == b'[{"cut": '
