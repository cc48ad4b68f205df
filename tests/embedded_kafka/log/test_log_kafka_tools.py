"""Kafka's own DumpLogSegments reads every file of our log and finds nothing wrong with any."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import fetch, kafka_artifacts
from embedded_kafka.settings.config import LogConfig
from tests.embedded_kafka.log.log_tools import NOW, end, open_log, put

pytestmark = [pytest.mark.kafka, pytest.mark.real]

# In Kafka 4.3 the tool moved.
TOOLS = {
    NEWEST_KAFKA: "org.apache.kafka.tools.DumpLogSegments",
    NEWEST_ZOOKEEPER_KAFKA: "kafka.tools.DumpLogSegments",
}
# Kafka 4.3's tool says this of the first record of every segment that does not begin at 0; 3.9's, of the same files,
# does not.
_FIRST_RECORD = re.compile(r"^Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1\n", re.MULTILINE)
EVERY_KAFKA = pytest.mark.parametrize("version", TOOLS)
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200, retention_ms=-1)


def dump(version: str, files: Sequence[Path], *options: str) -> str:
    """What the tool says of the files; it must not complain."""
    java = require_java()
    jars = fetch(f"kafka-{version}", kafka_artifacts(version), java)
    names = ",".join(map(str, files))
    answer = subprocess.run(
        [java.executable, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", TOOLS[version], *options, "--files", names],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    said = _FIRST_RECORD.sub("", answer.stderr)
    complaints = [line for line in said.splitlines() if not re.search("log4j|slf4j", line, re.IGNORECASE)]
    assert not complaints, answer.stderr
    return answer.stdout


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three producers, transactions over several segments, closed cleanly."""
    directory = tmp_path / "topic-0"
    log = open_log(directory, CONFIG)
    for number in range(30):
        put(log, 2, producer_id=1, sequence=2 * number, transactional=True, timestamp_ms=NOW + number)
        put(log, producer_id=2, sequence=number, timestamp_ms=NOW - number)
        if number % 4 == 3:
            end(log, 1, commit=number % 8 == 3)
    put(log, 3, producer_id=3, epoch=6, sequence=0, transactional=True)
    log.append_internal([(b"group", b"offset")], now_ms=NOW)
    log.close()
    return directory


@EVERY_KAFKA
def test_kafkas_dump_reads_every_file_of_a_partition(version: str, partition: Path) -> None:
    log = open_log(partition, CONFIG)
    aborted = log.read(0, 1 << 20, read_committed=True, at_least_one=True).aborted
    producers = {producer.producer_id: producer for producer in log.producers()}
    files = sorted(path for path in partition.iterdir() if path.suffix != ".json")
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert sum(path.suffix == ".log" for path in files) >= 3

    text = dump(version, files, "--deep-iteration")

    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert offsets == list(range(log.end_offset))
    assert "isvalid: false" not in text
    assert len(re.findall("endTxnMarker: COMMIT", text)) == 4
    assert len(re.findall("endTxnMarker: ABORT", text)) == len(
        set(re.findall(r"version: 0 producerId: 1 firstOffset: \d+", text))
    )
    assert (1, aborted[0][1]) == aborted[0]
    assert f"producerId: 1 firstOffset: {aborted[0][1]} " in text
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.MULTILINE)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.MULTILINE)) > 5
    # Of a producer's entries in a snapshot Kafka keeps the last: the newest batch.
    last = text[text.rindex("Dumping") :]
    assert str(files[-1]) in last
    for producer_id, producer in producers.items():
        lines = re.findall(
            rf"^producerId: {producer_id} producerEpoch: {producer.epoch} .*lastSequence: (-?\d+)",
            last,
            re.MULTILINE,
        )
        assert int(lines[-1]) == producer.last_sequence
    assert "producerId: 3 producerEpoch: 6" in last


@EVERY_KAFKA
def test_kafkas_own_checks_of_indexes_pass(version: str, partition: Path) -> None:
    indexes = sorted(path for path in partition.iterdir() if path.suffix in {".index", ".timeindex"})

    text = dump(version, indexes, "--index-sanity-check")

    assert len(re.findall("passed sanity check|is empty", text)) == len(indexes)


@EVERY_KAFKA
def test_kafka_reads_what_recovery_left(version: str, partition: Path) -> None:
    """The mark gone, the last batch torn, every file beside the batches lost."""
    for path in partition.iterdir():
        if path.suffix != ".log":
            path.unlink()
    last = max(partition.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)
    log = open_log(partition, CONFIG)
    log.close()

    text = dump(version, sorted(path for path in partition.iterdir() if path.suffix != ".json"), "--deep-iteration")

    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert offsets == list(range(log.end_offset))
