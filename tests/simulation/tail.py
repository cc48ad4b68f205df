"""What stands in a partition, from the bytes of its segment files, read on while they grow.

Owns: whole batches, each once; which records a reader with isolation.level=read_committed has been given so far.
Does not know: the broker's own state, what is right or wrong.
Invariants:
- The last stable offset is worked out from the batches alone, as KIP-98 has it: the first offset of the oldest
  transaction without a marker.
- A record is given in the order of offsets, once, and only where its transaction's marker is a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark_kafka_eos.records import MarkerKind, control_marker, decode, scan
from pyspark_kafka_eos.records.batch import Batch
from tests.chaos.history import EntryKind, Fate, LogEntry, Row


class Tail:
    """The batches of one partition's directory, file by file."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}

    def take(self, path: Path) -> Iterator[Batch]:
        """The whole batches behind those of the last call. ValueError where the file is shorter than what was read."""
        at = self._read.get(path, 0)
        with path.open("rb", buffering=0) as file:
            file.seek(0, 2)
            if file.tell() < at:
                raise ValueError(f"{path.parent.name} has lost bytes that a reader may have been given")
            file.seek(at)
            data = file.read()
        for info, batch in scan(data):
            at += info.length
            self._read[path] = at
            yield info, batch

    def cut(self, directory: Path) -> None:
        """The files of the directory are shorter, at a batch's end."""
        for path, read in list(self._read.items()):
            if path.parent == directory:
                self._read[path] = min(read, path.stat().st_size if path.exists() else 0)


@dataclass
class Entry:
    """A record and what became of it so far."""

    offset: int
    record: str
    producer_id: int
    epoch: int
    fate: Fate
    sequence: int = 0
    """Of its producer in this partition."""
    headless: bool = False
    """The first record of its producer in this partition does not have sequence 0."""
    sure: bool = False
    """The coordinator has decided to commit it, whether or not its marker is here."""

    @property
    def identity(self) -> tuple[int, int]:
        """Whose it is: (producer id, epoch)."""
        return self.producer_id, self.epoch


@dataclass(frozen=True)
class News:
    """What one batch changed: `written` records, transactions that a marker `ended`, records that a reader was
    `given`.
    """

    written: tuple[Entry, ...] = ()
    ended: tuple[Entry, ...] = ()
    given: tuple[Entry, ...] = ()
    marker: MarkerKind | None = None


class Partition:
    """One partition of the output, and its reader of committed records."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.tail = Tail()
        self.entries: list[Entry] = []
        self.given: list[Entry] = []
        self.faults: list[str] = []
        self._open: dict[int, list[Entry]] = {}
        self._next = 0
        self._end = 0
        self._sequences: dict[tuple[int, int], int] = {}
        self._ends: list[tuple[int, int]] = []
        """(producer id, offset) of each marker."""

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((entries[0].offset for entries in self._open.values()), default=self._end)

    def open_of(self, producer_id: int) -> list[Entry]:
        """What a producer has open."""
        return self._open.get(producer_id, [])

    def take(self, path: Path) -> Iterator[News]:
        """Read on; one `News` for each batch."""
        for info, data in self.tail.take(path):
            if info.base_offset != self._end:
                self.faults.append(f"{self} goes on at offset {info.base_offset} where {self._end} is next")
            self._end = info.last_offset + 1
            written: list[Entry] = []
            ended: list[Entry] = []
            kind = None
            if info.control:
                kind = control_marker((info, data)).kind
                if kind is not MarkerKind.OTHER:
                    ended = self._open.pop(info.producer_id, [])
                    self._ends.append((info.producer_id, info.base_offset))
                    for entry in ended:
                        if entry.headless and kind is MarkerKind.COMMIT:
                            self.faults.append(
                                f"{self}@{entry.offset} is committed, and the records before it are not there"
                            )
                        entry.fate = Fate.COMMITTED if kind is MarkerKind.COMMIT else Fate.ABORTED
            else:
                written = self._written((info, data))
            yield News(tuple(written), tuple(ended), tuple(self._deliver()), kind)

    def _written(self, batch: Batch) -> list[Entry]:
        info = batch[0]
        fate = Fate.OPEN if info.transactional else Fate.BARE
        values = decode(batch).value.to_pylist()
        made = [
            Entry(
                info.base_offset + at,
                value.decode(),
                info.producer_id,
                info.producer_epoch,
                fate,
                info.base_sequence + at,
            )
            for at, value in enumerate(values)
        ]
        self.entries += made
        if info.transactional:
            self._open.setdefault(info.producer_id, []).extend(made)
        if info.producer_id >= 0:
            # A broker takes a producer's sequences without a gap and each once; a second time would mean other bytes.
            identity = info.producer_id, info.producer_epoch
            expected = self._sequences.get(identity, 0)
            if identity not in self._sequences and info.base_sequence:
                # A leader that knows nothing of a producer takes any first sequence under transaction version 1. What
                # comes before it is refused then, so the transaction can only be aborted.
                for entry in made:
                    entry.headless = True
            elif info.base_sequence != expected:
                self.faults.append(
                    f"{self}@{info.base_offset}: producer {identity[0]} epoch {identity[1]} has sequence "
                    f"{info.base_sequence} where {expected} is next"
                )
            self._sequences[identity] = info.base_sequence + info.count
        return made

    def cut(self, offset: int, directory: Path) -> None:
        """Everything from the offset on is gone: what it ended is open again, sequences go on behind what is left."""
        self.tail.cut(directory)
        self.entries = [entry for entry in self.entries if entry.offset < offset]
        self.given = [entry for entry in self.given if entry.offset < offset]
        self._next = min(self._next, len(self.entries))
        self._end = min(self._end, offset)
        ended = {producer_id for producer_id, end in self._ends if end >= offset}
        self._open = {}
        for entry in self.entries:
            if entry.fate is Fate.OPEN or (entry.producer_id in ended and self._end_of(entry) >= offset):
                entry.fate = Fate.OPEN
                self._open.setdefault(entry.producer_id, []).append(entry)
        self._ends = [each for each in self._ends if each[1] < offset]
        self._sequences = {}
        for entry in self.entries:
            self._sequences[entry.identity] = entry.sequence + 1

    def _end_of(self, entry: Entry) -> int:
        """The offset of the marker that ended it."""
        return next(end for producer_id, end in self._ends if producer_id == entry.producer_id and end > entry.offset)

    def _deliver(self) -> Iterator[Entry]:
        stable = self.stable
        while self._next < len(self.entries) and self.entries[self._next].offset < stable:
            entry = self.entries[self._next]
            self._next += 1
            if entry.fate in (Fate.COMMITTED, Fate.BARE):
                self.given.append(entry)
                yield entry

    def rows(self) -> Iterator[Row]:
        """What a reader has been given so far."""
        for entry in self.given:
            yield Row(self.topic, self.number, entry.offset, entry.record)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


def log_of(topic: str, number: int, files: Iterable[Path]) -> Iterator[LogEntry]:
    """A partition's whole log for the checker, read anew."""
    for path in sorted(files):
        for info, data in scan(path.read_bytes()):
            identity = info.producer_id, info.producer_epoch
            if info.control:
                kind = control_marker((info, data)).kind
                if kind is not MarkerKind.OTHER:
                    yield LogEntry(topic, number, info.base_offset, EntryKind[kind.name], *identity)
                continue
            for at, value in enumerate(decode((info, data)).value.to_pylist()):
                yield LogEntry(
                    topic,
                    number,
                    info.base_offset + at,
                    EntryKind.DATA,
                    *identity,
                    value.decode(),
                    info.transactional,
                )
