"""What stands in Kafka's partitions, from Kafka's own DumpLogSegments over the segment files.

Owns: finding a topic's segment files, one run of the tool for all of them, reading its text.
Does not know: the product; what the entries mean.
Invariants: every line of the text is understood or the dump is refused, so nothing is left out silently; no broker is
asked, so a broken last stable offset hides nothing.

Values have to be ASCII without line breaks: the tool prints them as they are, in its own encoding, into lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real import LocalKafka
from tests.chaos.history import EntryKind, LogEntry

# In Kafka 4.3 the tool moved.  The newer name first: a class that is not there costs a JVM start that fails at once.
_MAIN_CLASSES = ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")

_FILE = re.compile(r"Dumping (?P<path>.+)")
# "Starting offset" up to Kafka 3.4; the number is the file's name, nothing that the records do not say.
_START = re.compile(r"(Log s|S)tarting offset: \d+")
_BATCH = re.compile(
    r"baseOffset: \d+ lastOffset: \d+ count: (?P<count>\d+|null) .*"
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<epoch>-?\d+) .*"
    r"isTransactional: (?P<transactional>true|false) isControl: (?P<control>true|false) .*"
    r"isvalid: (?P<valid>true|false)"
)
_ENTRY = re.compile(
    r"\| offset: (?P<offset>\d+) (CreateTime|LogAppendTime): -?\d+ keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: -?\d+ headerKeys: \[(?P<rest>.*)"
)
_MARKER = re.compile(r"\] endTxnMarker: (?P<kind>COMMIT|ABORT) coordinatorEpoch: \d+")


def dump(kafka: LocalKafka, topics: Collection[str], broker: int = 0) -> tuple[LogEntry, ...]:
    """Every entry of the topics' partitions of which a broker has a replica, partition by partition, by rising offset.

    To be called when nobody writes any more: a batch that is half written is refused, as is all else that the tool
    finds wrong with a file (ValueError). LocalError where the tool does not run, or a topic has no files.
    """
    files = segment_files(kafka.data_dir / f"broker-{broker}", topics)
    said = ""
    for main_class in _MAIN_CLASSES:
        answer = kafka.tool(main_class, "--print-data-log", "--files", ",".join(map(str, files)))
        if answer.returncode == 0:
            return parse(answer.stdout)
        said += answer.stdout + answer.stderr
        if "ClassNotFoundException" not in answer.stderr:
            break
    raise LocalError(f"DumpLogSegments of Kafka {kafka.version} failed:\n{said}")


def segment_files(log_dir: Path, topics: Collection[str]) -> list[Path]:
    """The topics' segment files in a broker's log directory: by topic, partition, first offset."""
    found: list[tuple[str, int, Path]] = []
    for path in log_dir.glob("*/*.log"):
        topic, _, partition = path.parent.name.rpartition("-")
        # A deleted topic's directory stays for a minute, as `name-0.<id>-delete`.
        if topic in topics and partition.isdecimal():
            found.append((topic, int(partition), path))
    missing = set(topics) - {topic for topic, _, _ in found}
    if missing:
        raise LocalError(f"{log_dir} has no segment files of {', '.join(sorted(missing))}")
    # A segment's file name is its first offset, with leading zeros.
    return [path for _, _, path in sorted(found)]


def parse(text: str) -> tuple[LogEntry, ...]:
    """What DumpLogSegments says of segment files, in its order. ValueError for a line that is not understood."""
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[LogEntry]:
    topic, partition = "", -1
    batch: re.Match[str] | None = None
    left = 0
    # Not splitlines(): that also splits at characters that may stand in a value.
    for number, line in enumerate(text.split("\n"), 1):
        if entry := _ENTRY.fullmatch(line):
            if batch is None or not left:
                raise ValueError(f"line {number} of the dump is a record outside a batch: {line!r}")
            left -= 1
            kind, record = _content(entry, batch["control"] == "true", f"line {number} of the dump")
            yield LogEntry(
                topic,
                partition,
                int(entry["offset"]),
                kind,
                int(batch["producer_id"]),
                int(batch["epoch"]),
                record,
                batch["transactional"] == "true",
            )
            continue
        if left:
            raise ValueError(f"line {number} of the dump is not one of {left} more records: {line!r}")
        if batch := _BATCH.fullmatch(line):
            if batch["valid"] != "true" or not topic:
                raise ValueError(f"line {number} of the dump is a broken batch, or of no file: {line!r}")
            left = 0 if batch["count"] == "null" else int(batch["count"])
        elif file := _FILE.fullmatch(line):
            topic, _, name = Path(file["path"]).parent.name.rpartition("-")
            partition = int(name)
        elif line and not _START.fullmatch(line):
            raise ValueError(f"line {number} of the dump is not understood: {line!r}")
    if left:
        raise ValueError(f"the dump ends {left} records too early")


def _content(entry: re.Match[str], control: bool, where: str) -> tuple[EntryKind, str | None]:
    rest = entry["rest"]
    if control:
        marker = _MARKER.fullmatch(rest)
        if marker is None:
            raise ValueError(f"{where} is a control record that is no transaction's marker: {rest!r}")
        return EntryKind[marker["kind"]], None
    size = int(entry["value_size"])
    if size < 0:
        return EntryKind.DATA, None
    # Cut by size: keys and names of headers may hold anything, also " payload: ".
    value = rest[len(rest) - size :]
    if not rest[: len(rest) - size].endswith(" payload: ") or not value.isascii():
        raise ValueError(f"{where} is no record whose value is {size} characters of ASCII: {rest!r}")
    return EntryKind.DATA, value
