"""Compaction of one log: the latest record of each key stays.

Owns: the rules of Kafka's LogCleaner for what stays: records, tombstones, markers, batches that only record
a producer's progress.
Does not know: when compaction is due (`cleaning`), how files replace each other (`swap`), event loops.
Invariants:
- Offsets never change.
- Compaction only reads sealed segments, and writes new ones beside them.
- An unreadable batch stays as it is; a batch with a wrong CRC aborts the whole round.

Compaction runs in small steps on the log's thread, which reads and appends in between. After each pause a
step therefore reads the state of the log anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

from embedded_kafka.log import contents, records
from embedded_kafka.log.compacting import cleaning, rewriting
from embedded_kafka.log.compacting.cleaning import Due
from embedded_kafka.log.contents import RecordPlace
from embedded_kafka.log.producers import Producers
from embedded_kafka.log.records import BatchHeader
from embedded_kafka.log.segments import swap
from embedded_kafka.log.segments.aborted import AbortedTransaction
from embedded_kafka.log.segments.segment import Segment
from embedded_kafka.settings.config import LogConfig

Blocking = Callable[[], None]
"""Work that waits for the disk. It uses nothing of the log's own thread, so another thread may run it."""

Steps = Generator[Blocking | None, None, None]
"""The caller may pause at each step, and has to run the yielded work, if any, before the next step."""

_WHOLE_KEY_BYTES: Final = 24
_MOST_KEYS: Final = 200_000
"""Keys of one round, some 30 MB. A log with more keys is cleaned as far as they reach, and the rest in later
rounds. With a tenth, large logs would be rewritten ten times as often."""

_RECORDS_A_STEP: Final = 256
"""Records of one batch between two pauses, some 0.5 ms."""

_WRITE_BYTES: Final = 256 * 1024


class LatestOffsets:
    """Key -> its latest offset. `latest`: all records up to this offset have been examined."""

    def __init__(self, most: int = _MOST_KEYS) -> None:
        self._most = most
        # In parts, because a growing dictionary is copied at once: with all keys in one, each copy would
        # block for 10 ms and more.
        self._parts: list[dict[bytes, int]] = [{} for _ in range(64)]
        self._count = 0
        self.latest = -1

    @property
    def full(self) -> bool:
        """Whether the map can take no further batch."""
        return self._count >= self._most

    def put(self, key: bytes, offset: int) -> None:
        """Add a record."""
        name = _name(key)
        part = self._parts[_part(name)]
        if name not in part:
            self._count += 1
        part[name] = offset

    def get(self, key: bytes) -> int:
        """The latest offset of the key, -1 where the key did not occur."""
        name = _name(key)
        return self._parts[_part(name)].get(name, -1)


def _name(key: bytes) -> bytes:
    # A digest is one byte longer than any key that stands for itself.
    return key if len(key) <= _WHOLE_KEY_BYTES else blake2b(key, digest_size=_WHOLE_KEY_BYTES + 1).digest()


def _part(name: bytes) -> int:
    return (name[-1] ^ name[len(name) // 2]) & 63 if name else 0


class CleanedTransactions:
    """The transactions of the batches on a walk through the log, oldest first."""

    def __init__(self) -> None:
        self._expected: list[AbortedTransaction] = []
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()

    def expect(self, aborted: list[AbortedTransaction]) -> None:
        """These transactions have records or markers in the next batches. Repeated entries are allowed."""
        self._expected = sorted([*self._expected, *aborted], key=lambda each: each.first_offset, reverse=True)

    def records(self, header: BatchHeader) -> bool:
        """Whether the batch's records were aborted."""
        self._come_to(header.last_offset)
        if not header.transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = (self._aborted[header.producer_id][0], True)
            return True
        self._committed.add(header.producer_id)
        return False

    def marker(self, header: BatchHeader, batch: memoryview) -> tuple[bool, AbortedTransaction | None]:
        """Whether no record of the marker's transaction is left; otherwise, for an aborted one, its index entry."""
        self._come_to(header.last_offset)
        if header.count == 0:
            return True, None
        marker = records.decode_marker(batch)
        if marker is None:
            return False, None
        if marker.commit:
            left = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not left, None
        aborted, met = self._aborted.pop(header.producer_id, (None, False))
        return (False, aborted) if met else (True, None)

    def _come_to(self, offset: int) -> None:
        while self._expected and self._expected[-1].first_offset <= offset:
            aborted = self._expected.pop()
            self._aborted.setdefault(aborted.producer_id, (aborted, False))


class Compaction:
    """One round over a log. `segments` is the log's own list; the round puts the new segments into it."""

    def __init__(
        self,
        directory: Path,
        segments: list[Segment],
        producers: Producers,
        config: LogConfig,
        due: Due,
        now_ms: int,
        offsets: LatestOffsets | None = None,
    ) -> None:
        self.due = due
        self._directory = directory
        self._segments = segments
        self._producers = producers
        self._config = config
        self._now_ms = now_ms
        self._offsets = offsets or LatestOffsets()
        self.clean_up_to = due.start
        """After all steps, the offset before which the log is clean."""

    def steps(self) -> Steps:
        """Run the round. Refused(CORRUPT_MESSAGE) for a damaged batch; OSError: the disk is
        full or segments are gone."""
        yield from self._look()
        reached = self._offsets.latest + 1
        if reached <= self.due.start:
            return
        if swap.clean_up_to(self._directory) is None:
            swap.note(self._directory, self.due.start)
        transactions = CleanedTransactions()
        try:
            for group in cleaning.groups(self._segments[:-1], reached, self._config.segment_bytes):
                replaced = yield from self._clean(group, transactions)
                if not replaced:
                    return
        finally:
            swap.drop(self._directory)
        swap.note(self._directory, reached)
        self.clean_up_to = reached

    # ---- first pass: find the latest record of each key

    def _look(self) -> Steps:
        transactions = CleanedTransactions()
        for segment in self._segments[:-1]:
            if segment.end_offset <= self.due.start or segment.base_offset >= self.due.end:
                continue
            transactions.expect(self._aborted_in(segment))
            walk = _Walk(segment)
            for header, batch in walk:
                if self._offsets.full:
                    return
                if header.codec and not contents.codecs_loaded():
                    yield contents.load_codecs
                if header.control:
                    transactions.marker(header, batch)
                elif not transactions.records(header) and header.last_offset >= self.due.start:
                    yield from self._note_keys(header, batch)
                self._offsets.latest = header.last_offset
                yield None
            walk.check_whole()
            self._offsets.latest = segment.end_offset - 1

    def _note_keys(self, header: BatchHeader, batch: memoryview) -> Steps:
        base, start = header.base_offset, self.due.start
        if header.count == 1 and header.codec == 0:
            with contextlib.suppress(ValueError):
                key, _ = rewriting.only_key(batch)
                if key is not None:
                    self._offsets.put(key, header.last_offset)
            return
        # Unreadable records of a batch have no keys.
        with contextlib.suppress(ValueError):
            for number, place in enumerate(contents.places(contents.unpacked(header, batch), header.count)):
                if place.key is not None and base + place.offset_delta >= start:
                    self._offsets.put(place.key, base + place.offset_delta)
                if number % _RECORDS_A_STEP == _RECORDS_A_STEP - 1:
                    yield None

    # ---- second pass: write the remaining records into new segments

    def _clean(self, group: list[Segment], transactions: CleanedTransactions) -> Generator[Blocking | None, None, bool]:
        """False: segments of the group were removed in the meantime, so nothing was replaced."""
        modified = group[-1].log.path.stat().st_mtime_ns
        cleaned = Segment(swap.begin(self._directory), group[0].base_offset, create=True)
        writer = _Writer(cleaned, self._config.index_interval_bytes)
        changed = len(group) > 1
        try:
            for segment in group:
                transactions.expect(self._aborted_in(segment))
                walk = _Walk(segment)
                for header, batch in walk:
                    if header.codec and not contents.codecs_loaded():
                        yield contents.load_codecs
                    kept = yield from self._kept(header, batch, transactions, cleaned)
                    changed = changed or kept is not batch
                    if kept is not None:
                        writer.put(header, kept)
                    yield None
                walk.check_whole()
            writer.flush()
            if not changed:
                return True
            yield partial(swap.prepare, cleaned, group)
            os.utime(cleaned.log.path, ns=(modified, modified))
            return self._replace(group, cleaned)
        finally:
            cleaned.close()

    def _kept(
        self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions, cleaned: Segment
    ) -> Generator[Blocking | None, None, memoryview | bytes | None]:
        """The remaining batch: the batch itself, a smaller one, or None where nothing of it stays."""
        over = False
        if header.control:
            over, aborted = transactions.marker(header, batch)
            if aborted is not None:
                cleaned.aborted.add(aborted)
            horizon_ms = header.delete_horizon_ms
            discard = over and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            discard = transactions.records(header)
        # The last batch of each producer stays, even without records: it has the last sequence, or the
        # fencing epoch. The round's last batch stays as well: it marks the end of the log.
        last = self._is_last_of_producer(header) or header.last_offset + 1 == self.due.end
        if header.count == 0 or discard:
            return (batch if header.count == 0 else rewriting.emptied(header)) if last else None
        if not header.control and header.base_offset > self._offsets.latest:
            return batch
        try:
            if not last and self._only_record_is_replaced(header, batch):
                return None
            body = contents.unpacked(header, batch)
            kept, tombstones = [], False
            for number, place in enumerate(contents.places(body, header.count), 1):
                if header.control or self._stays(header, place):
                    kept.append(place)
                    tombstones = tombstones or not place.has_value
                if number % _RECORDS_A_STEP == 0:
                    yield None
        except ValueError:
            return batch
        if not kept:
            return rewriting.emptied(header) if last else None
        sets_horizon = (over or tombstones) and header.delete_horizon_ms is None
        if len(kept) == header.count and not sets_horizon:
            return batch
        horizon = self._now_ms + self._config.delete_retention_ms if sets_horizon else None
        return rewriting.rebuilt(header, body, kept, horizon)

    def _only_record_is_replaced(self, header: BatchHeader, batch: memoryview) -> bool:
        """The usual case for a coordinator's batch, decided without decoding all of it."""
        if header.control or header.codec or header.count != 1 or header.last_offset > self._offsets.latest:
            return False
        key, _ = rewriting.only_key(batch)
        return key is None or header.last_offset < self._offsets.get(key)

    def _stays(self, header: BatchHeader, place: RecordPlace) -> bool:
        offset = header.base_offset + place.offset_delta
        if offset > self._offsets.latest:
            return True
        if place.key is None or offset < self._offsets.get(place.key):
            return False
        horizon_ms = header.delete_horizon_ms
        return place.has_value or horizon_ms is None or self._now_ms < horizon_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        state = self._producers.get(header.producer_id)
        if state.batches:
            return header.last_offset == state.batches[-1].last_offset
        return header.control and header.producer_epoch == state.epoch

    def _replace(self, group: list[Segment], cleaned: Segment) -> bool:
        """The new segment replaces the group; False where a segment of the group was removed in the meantime."""
        at = self._segments.index(group[0]) if group[0] in self._segments else -1
        if at < 0 or self._segments[at : at + len(group)] != group:
            return False
        cleaned.close()
        for segment in group:
            segment.close()
        swap.commit(self._directory)
        fresh = Segment(self._directory, cleaned.base_offset, sealed=True, gaps=True)
        fresh.end_offset = group[-1].end_offset
        self._segments[at : at + len(group)] = [fresh]
        return True

    def _aborted_in(self, segment: Segment) -> list[AbortedTransaction]:
        """The aborted transactions with records or markers in a segment; the marker may stand in a later one."""
        found: list[AbortedTransaction] = []
        for each in self._segments[
            self._segments.index(segment) if segment in self._segments else len(self._segments) :
        ]:
            entries, complete = each.aborted.overlapping(segment.base_offset, segment.end_offset)
            found += entries
            if complete:
                break
        return found


class _Walk:
    """Every batch of a segment, from the first one on."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._end = 0
        self._reached = segment.base_offset

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for position, header, batch in self._segment.batches(0, self._segment.base_offset):
            self._end, self._reached = position + header.size, header.last_offset + 1
            yield header, batch

    def check_whole(self) -> None:
        """Refused(CORRUPT_MESSAGE) where the batches ended before the file."""
        if self._end < self._segment.log.size:
            raise self._segment.corrupt(self._reached)


class _Writer:
    """Writes batches into a new segment, many per write."""

    def __init__(self, cleaned: Segment, interval_bytes: int) -> None:
        self._cleaned = cleaned
        self._interval_bytes = interval_bytes
        self._waiting: list[memoryview | bytes] = []
        self._bytes = 0

    def put(self, header: BatchHeader, batch: memoryview | bytes) -> None:
        """Append a batch."""
        position = self._cleaned.log.size + self._bytes
        written = records.parse_header(batch) or header
        self._waiting.append(batch)
        self._bytes += len(batch)
        self._cleaned.note(written.last_offset, written.max_timestamp_ms, written.size, position, self._interval_bytes)
        if self._bytes >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all waiting batches to the file."""
        if self._waiting:
            self._cleaned.append([b"".join(self._waiting)], sync=False)
            self._waiting, self._bytes = [], 0
