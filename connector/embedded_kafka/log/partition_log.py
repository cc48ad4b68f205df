"""One partition: append, read, look up, retain and delete.

Owns: the order of checks before an append, offsets (one replica: the end is the high watermark), the last stable
offset.
Does not know: topics, requests, the transaction's coordinator.
Invariants:
- A refused append has written nothing.
- When an append returns, its records are in the page cache and survive SIGKILL.
- State in memory follows the file, never the other way round.

"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from embedded_kafka.log import lookup, recovery
from embedded_kafka.log import records as format_v2
from embedded_kafka.log.compacting import cleaning, retention
from embedded_kafka.log.compacting.compaction import Compaction
from embedded_kafka.log.producer_state import Accepted, Duplicate, Marker, judge, judge_marker, judge_unsequenced
from embedded_kafka.log.producers import Producers, accepted_or_refused, data_batch, shown
from embedded_kafka.log.record_rules import RecordRules
from embedded_kafka.log.records import BatchHeader, Buffer, EndMarker, InternalRecord
from embedded_kafka.log.segments import snapshot
from embedded_kafka.log.segments.files import storage_errors
from embedded_kafka.log.segments.segment import MAX_RELATIVE_OFFSET, Segment, file_path
from embedded_kafka.log.validation import check_size
from embedded_kafka.log.values import ActiveProducer, Appended, ReadResult, ScannedBatch
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code

_logger = logging.getLogger(__name__)


Fork = Callable[[Buffer, int, int], Appended]
"""Appends to a log that goes on apart: the batches of a Produce request, the time, the transaction version. It checks
and numbers them as `PartitionLog.append` does, and keeps the producers' states alone. Refused as there."""


class PartitionLog:
    """The log of one partition, made by `open`. One owner, one thread."""

    def __init__(
        self, directory: Path, config: LogConfig, found: recovery.Recovered, now_ms: int, strict_first_sequence: bool
    ) -> None:  # fmt: skip
        self.directory = directory
        self._config = config
        self._rules = RecordRules(config)
        self._strict = strict_first_sequence
        self._segments = found.segments
        self._producers = found.producers
        self._start_offset = found.start_offset
        self._clean = found.clean
        self._clean_up_to = found.clean_up_to
        self._unflushed = 0
        self._active_since_ms = now_ms

    @classmethod
    def open(
        cls, directory: Path, config: LogConfig, *, now_ms: int, strict_first_sequence: bool = False
    ) -> PartitionLog:
        """Create the log or recover an existing one; LogDamaged where recovery would lose records.

        `strict_first_sequence`: see `producer_state.judge`.
        """
        found = recovery.recover(directory, config.index_interval_bytes, now_ms)
        log = cls(directory, config, found, now_ms, strict_first_sequence)
        log.expire_producers(now_ms)
        return log

    def reconfigure(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self._config = config
        self._rules = RecordRules(config)

    @property
    def log_start_offset(self) -> int:
        """The first offset that is not deleted."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record, and the high watermark."""
        return self._segments[-1].end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset from which on records may belong to transactions that have not ended."""
        unstable = self._producers.first_unstable()
        return self.end_offset if unstable is None else max(unstable, self._start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches, including deleted ones whose segment still exists."""
        return sum(segment.log.size for segment in self._segments)

    # ---- appending

    def append(
        self,
        batches: Buffer,
        *,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Write one partition's data of a Produce request. Refused (RecordsRefused) with Kafka's code means
        that nothing was written.

        `transaction_version`: that of the Produce request's version, 2 from version 12 on.
        """
        stamps = self._config.log_append_time
        header, batch = self._rules.judge(memoryview(batches), now_ms)
        base, last = self.end_offset, self.end_offset + header.last_offset_delta
        highest_ms = now_ms if stamps else header.max_timestamp_ms
        accepted = self._judged(self._producers, header, base, highest_ms, now_ms, transaction_version)
        if isinstance(accepted, Appended):
            return accepted
        if stamps or header.log_append_time:
            buffers = format_v2.stamped(batch, header, base, now_ms if stamps else None)
        else:
            buffers = format_v2.placed(batch, header, base)
        self._write(buffers, header, last, highest_ms, now_ms)
        if accepted is not None:
            self._producers.put(accepted.state)
        return Appended(base, last, now_ms if stamps else -1)

    def fork(self) -> Fork:
        """The log as it goes on from here for someone who appends to it alone: nothing of that comes into this one."""
        producers, end = Producers(list(self._producers)), self.end_offset

        def append(batches: Buffer, now_ms: int, transaction_version: int) -> Appended:
            nonlocal end
            stamps = self._config.log_append_time
            header, _ = self._rules.judge(memoryview(batches), now_ms)
            highest_ms = now_ms if stamps else header.max_timestamp_ms
            accepted = self._judged(producers, header, end, highest_ms, now_ms, transaction_version)
            if isinstance(accepted, Appended):
                return accepted
            if accepted is not None:
                producers.put(accepted.state)
            base, end = end, end + header.last_offset_delta + 1
            return Appended(base, end - 1, now_ms if stamps else -1)

        return append

    def _judged(
        self, producers: Producers, header: BatchHeader, base: int, highest_ms: int, now_ms: int, version: int
    ) -> Accepted | Appended | None:
        """What becomes of the producer; None: it has no id. Appended: the batch is there already. Refused."""
        if header.producer_id < 0:
            return None
        verdict = judge(
            producers.get(header.producer_id),
            data_batch(header, base, highest_ms),
            now_ms,
            strict_first_sequence=self._strict,
            transaction_version=version,
        )
        if isinstance(verdict, Duplicate):
            written = verdict.batch
            return Appended(written.first_offset, written.last_offset, written.timestamp_ms, duplicate=True)
        return accepted_or_refused(verdict)

    def append_internal(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        now_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
    ) -> tuple[int, int]:
        """Write a coordinator's (key, value) records as one batch; returns the first and the last offset.

        For a producer, only its epoch is checked: Refused(INVALID_PRODUCER_EPOCH) where the log has a newer one.
        """
        batch = format_v2.encode_batch(
            records,
            timestamp_ms=now_ms,
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        check_size(len(batch), self._config.max_message_bytes)
        header = format_v2.own_header(batch)
        accepted = None
        if producer_id >= 0:
            state = self._producers.get(producer_id)
            accepted = accepted_or_refused(judge_unsequenced(state, data_batch(header, header.base_offset), now_ms))
        self._write([batch], header, header.last_offset, now_ms, now_ms)
        if accepted is not None:
            self._producers.put(accepted.state)
        return header.base_offset, header.last_offset

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> int:
        """Write the end of a producer's transaction, whether or not one is open here;
        returns the marker's offset.

        Refused: INVALID_PRODUCER_EPOCH for an older epoch (with transaction version 2 for the same one, too),
        TRANSACTION_COORDINATOR_FENCED for an older coordinator.
        """
        offset = self.end_offset
        accepted = accepted_or_refused(
            judge_marker(
                self._producers.get(producer_id),
                Marker(epoch, coordinator_epoch, offset, now_ms),
                now_ms,
                transaction_version=transaction_version,
            )
        )
        batch = format_v2.encode_marker(
            producer_id, epoch, EndMarker(commit, coordinator_epoch), timestamp_ms=now_ms, base_offset=offset
        )
        self._write([batch], format_v2.own_header(batch), offset, now_ms, now_ms)
        aborted = self._producers.end_transaction(accepted.state, offset, accepted.ended, commit=commit)
        if aborted is not None:
            self._segments[-1].aborted.add(aborted)
        return offset

    def _write(self, buffers: list[Buffer], header: BatchHeader, last: int, highest_ms: int, now_ms: int) -> None:
        if header.size > self._config.segment_bytes:
            raise Refused(
                Code.RECORD_LIST_TOO_LARGE,
                f"a record batch of {header.size} bytes exceeds the topic's segment.bytes of {self._config.segment_bytes}",
            )
        with storage_errors(self.directory):
            self._begin_writing()
            active = self._segments[-1]
            full = active.log.size + header.size > self._config.segment_bytes
            full = full or last - active.base_offset > MAX_RELATIVE_OFFSET
            if active.log.size and (full or self._waited_ms(highest_ms, now_ms) > self._config.segment_ms):
                active = self._roll(now_ms)
            unflushed = self._unflushed + header.count
            sync = 0 < self._config.flush_messages <= unflushed
            position = active.append(buffers, sync=sync)
        self._unflushed = 0 if sync else unflushed
        active.note(last, highest_ms, header.size, position, self._config.index_interval_bytes)

    def _begin_writing(self) -> None:
        """Remove the mark of a clean end, which is about to become false."""
        if self._clean:
            (self.directory / recovery.CLEAN_MARK).unlink(missing_ok=True)
            self._clean = False

    def _waited_ms(self, highest_ms: int, now_ms: int) -> int:
        """How long the active segment has been open at this write. As in Kafka, measured by the records'
        time, if they have one."""
        first_ms = self._segments[-1].first_ms()
        return highest_ms - first_ms if first_ms is not None and first_ms >= 0 else now_ms - self._active_since_ms

    def _roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next, whose file is created last. Until then the old segment
        is the last one, which is scanned after a crash. So a sealed segment always has all its files."""
        active = self._segments[-1]
        active.save()
        self._unflushed = 0
        snapshot.write(file_path(self.directory, active.end_offset, ".snapshot"), self._producers)
        fresh = Segment(self.directory, active.end_offset, create=True)
        active.deactivate()
        self._segments.append(fresh)
        self._active_since_ms = now_ms
        return fresh

    # ---- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        at_least_one: bool,
        until: int | None = None,
    ) -> ReadResult:
        """Whole batches from the one with this offset on, up to `max_bytes`; with `at_least_one`
        the first of any size.

        read_committed ends at the last stable offset, and `until` ends it earlier. Refused: OFFSET_OUT_OF_RANGE;
        CORRUPT_MESSAGE for a damaged first batch (the answer ends before a later damaged one).
        """
        if not self._start_offset <= offset <= self.end_offset:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between the log's start {self._start_offset} and end {self.end_offset}",
            )
        limit = self.last_stable_offset if read_committed else self.end_offset
        limit = limit if until is None else min(limit, until)
        if offset >= limit:
            return ReadResult(memoryview(b""), [], offset)
        number = self._segment_of(offset)
        with storage_errors(self.directory):
            while True:
                data, position, next_offset = self._segments[number].serve(
                    offset, max_bytes, limit, at_least_one=at_least_one
                )
                if len(data) or not offset < next_offset < limit:
                    break
                # A cleaner removed the rest of that segment's batches.
                number, offset = number + 1, next_offset
            aborted = (
                lookup.aborted(self._segments[number:], offset, position + len(data))
                if read_committed and len(data)
                else []
            )
        return ReadResult(data, aborted, next_offset if len(data) else offset)

    def _segment_of(self, offset: int) -> int:
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def offset_for_timestamp(self, timestamp_ms: int, *, read_committed: bool) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older; None where it does not exist
        or is not readable yet."""
        with storage_errors(self.directory):
            found = lookup.first_not_older(self._kept(), timestamp_ms, self._start_offset)
        return self._if_readable(found, read_committed)

    def offset_of_max_timestamp(self, *, read_committed: bool) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the highest timestamp (ListOffsets -3)."""
        with storage_errors(self.directory):
            found = lookup.newest(self._kept())
        return self._if_readable(found, read_committed)

    def _if_readable(self, found: tuple[int, int] | None, read_committed: bool) -> tuple[int, int] | None:
        limit = self.last_stable_offset if read_committed else self.end_offset
        return found if found is not None and found[0] < limit else None

    def _kept(self) -> list[Segment]:
        return [segment for segment in self._segments if segment.end_offset > self._start_offset]

    def scan_batches(self) -> Iterator[ScannedBatch]:
        """Every batch of an internal topic from the start on, decoded; Refused(CORRUPT_MESSAGE) where one is
        damaged.
        """
        for segment in self._kept():
            yield from lookup.scan(segment)

    def scan_records(self) -> Iterator[InternalRecord]:
        """Every record of an internal topic from the start on, committed or not."""
        for batch in self.scan_batches():
            yield from batch.records

    # ---- producers

    def is_open(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction here."""
        return self._producers.get(producer_id).open_since

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this epoch of the producer has a transaction open here; one of an older epoch does not count."""
        state = self._producers.get(producer_id)
        return state.open_since is not None and state.epoch == epoch

    def producers(self) -> list[ActiveProducer]:
        """Every producer in the log's state."""
        return self._producers.shown()

    def producers_at(self, end: int, now_ms: int) -> Producers:
        """The producers as they were when the log ended at this offset, as far as its segments still tell."""
        with storage_errors(self.directory):
            return lookup.producers_before(self._segments, end, now_ms)

    def producer(self, producer_id: int) -> ActiveProducer | None:
        """One producer, if the log's state has it."""
        state = self._producers.get(producer_id)
        return shown(state) if state.known else None

    def expire_producers(self, now_ms: int) -> int:
        """Remove producers that have been idle for too long; returns their number."""
        return self._producers.expire(now_ms, self._config.producer_id_expiration_ms)

    # ---- forgetting

    def delete_records(self, before: int) -> int:
        """Move the log's start up to an offset (-1: the end); returns the start. Producers of
        deleted records stay known.

        Refused(OFFSET_OUT_OF_RANGE) behind the end.
        """
        before = self.end_offset if before == -1 else before
        if not 0 <= before <= self.end_offset:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to offset {before}: the log ends at {self.end_offset}",
            )
        if before > self._start_offset:
            with storage_errors(self.directory):
                recovery.write_start_offset(self.directory, before)
                self._start_offset = before
                self._remove_first(retention.below(self._segments, self._start_offset), self._active_since_ms)
        return self._start_offset

    def dirty(self, now_ms: int) -> cleaning.Due | None:
        """The part to clean; None where cleaning is not worth it. OSError."""
        if not self._config.compact:
            return None
        return cleaning.find(self._segments, self._config, self._clean_up_to, self.last_stable_offset, now_ms)

    def compaction(self, now_ms: int) -> Compaction | None:
        """The compaction of the dirty part; call `compacted` after its steps. OSError.

        Seals the active segment first if the topic is internal and that segment makes the log dirty.
        """
        found = self.dirty(now_ms)
        if found is None:
            return None
        if found.end > self._segments[-1].base_offset:
            self._begin_writing()
            self._roll(now_ms)
        return Compaction(self.directory, self._segments, self._producers, self._config, found, now_ms)

    def compacted(self, done: Compaction) -> None:
        """Record that the steps of a compaction are done."""
        self._clean_up_to = done.clean_up_to

    def retention(self, now_ms: int) -> int:
        """Remove segments that are too old, too many, or deleted; returns their number. A full disk only delays it."""
        try:
            removed = self._remove_first(retention.below(self._segments, self._start_offset), now_ms)
            surplus = retention.beyond_size(self._segments, self._config.retention_bytes)
            removed += self._remove_first(surplus, now_ms)
            old = retention.beyond_age(self._segments, self._config.retention_ms, now_ms)
            return removed + self._remove_first(old, now_ms)
        except OSError as error:
            _logger.warning("%s: old segments cannot be removed now: %s", self.directory, error)
            return 0

    def _remove_first(self, count: int, now_ms: int) -> int:
        """Remove the oldest segments; if that is all of them, begin an empty one first."""
        if count == 0:
            return 0
        self._begin_writing()
        if count == len(self._segments):
            self._roll(now_ms)
        self._start_offset = max(self._start_offset, self._segments[count].base_offset)
        for _ in range(count):
            # One by one, oldest first: a failure leaves no gap.
            self._segments[0].remove()
            del self._segments[0]
        return count

    # ---- ending

    def flush(self) -> None:
        """When this returns, appended records survive a power loss."""
        with storage_errors(self.directory):
            self._segments[-1].log.sync()
        self._unflushed = 0

    def close(self) -> None:
        """Write the files that spare the next start a scan, and close. A full disk only slows that start down."""
        if not self._clean:
            try:
                recovery.write_clean_end(self._segments, self._producers)
                self._clean = True
            except OSError as error:
                _logger.warning("%s: not closed cleanly, the next start will scan it: %s", self.directory, error)
        self.abandon()

    def abandon(self) -> list[int]:
        """Close the files and leave them as a crash would; returns the segments' base offsets."""
        for segment in self._segments:
            segment.close()
        return [segment.base_offset for segment in self._segments]
