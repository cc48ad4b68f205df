"""Rows to batches: packs rows into one section of records per partition and puts the header of format v2 in front.

Owns: the buffers of the sections that are being filled, the limits on a batch's size.
Does not know: topics, how a row got its partition, sequences (added when a section is framed), sockets.
Invariants:
- The records of one partition leave in the order of their rows.
- A batch never exceeds its partition's limit, except a single record tried compressed (`hard_limit_bytes`).

Memory: one buffer per partition that has unsent rows, each of `max_section_bytes` + 61 + a few bytes. It
belongs to the section once that is yielded, so a writer holds at most (partitions used) x
`max_section_bytes`, whatever the number of rows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import crc32c
import numpy as np
import numpy.typing as npt

from kafka_core.compression import CODES, compress
from kafka_core.errors import InternalError, InvalidRow, RecordTooLarge
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pyspark_kafka_eos.records import jit, kernels
from pyspark_kafka_eos.records.columns import RecordColumns, RowsInMemory, address
from pyspark_kafka_eos.records.hashing import joined_crc

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Header of a record batch v2: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and
largest timestamp, producer id, producer epoch, base sequence, record count (KIP-98)."""

BATCH_OVERHEAD_BYTES: Final = HEADER.size
LENGTH_FIELD_ENDS_AT: Final = 12
CRC_STARTS_AT: Final = 21
MAGIC: Final = 2
TRANSACTIONAL: Final = 0x10
NO_LEADER_EPOCH: Final = -1

MAX_SECTION_BYTES: Final = 2**31 - 1 - 1024
"""A batch's length is an int32; the bytes left out cover every header."""

_CRC: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = HEADER.size - _PRODUCER.size - 4
"""Producer id, epoch and base sequence, which stand together in front of the record count."""
_ALL_64_BITS: Final = 2**64 - 1

_MAX_RECORD_PREFIX_BYTES: Final = 5 + 3
"""Before the key of a batch's first record: its length (at most 5 bytes), attributes, and two deltas that are 0."""

_VARINT_GROWS_AT: Final = np.array([1 << 6, 1 << 13, 1 << 20, 1 << 27])
"""Lengths from which a zigzag varint of a length takes a byte more."""


@dataclass
class Section:
    """The uncompressed records of one batch to be, with room in front for its header.

    `digest` is the wrapping sum of its records' digests (0 where the writer makes none). `row` is set for a single
    record that is larger than a usual section: its row in the columns it came from. `machine_time`: the records' time
    is when they were packed, by the clock of this machine.
    """

    partition: int
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    buffer: npt.NDArray[np.uint8] = field(repr=False)
    digest: int = 0
    row: int | None = None
    machine_time: bool = False
    framed: bool = field(default=False, repr=False)

    @property
    def records(self) -> memoryview:
        """The record bytes, offset deltas from 0."""
        return self.buffer.data[BATCH_OVERHEAD_BYTES:]


@dataclass(frozen=True)
class Packed:
    """A record batch v2 without a producer: `stamp` puts that in, with the checksum. `crc`: CRC-32C of the records, as
    they are behind the header. `machine_time`: as its section's.
    """

    batch: memoryview = field(repr=False)
    crc: int
    machine_time: bool = False

    def __len__(self) -> int:
        return len(self.batch)


class SectionWriter:
    """Packs rows into sections, one open section per partition.

    `max_section_bytes`: of record bytes, without the batch's header (`BATCH_OVERHEAD_BYTES`); one for all
    partitions or one for each. `hard_limit_bytes`: a single record between the two limits gets a section of
    its own; set it only where batches are compressed, and then pass `frame` a `max_batch_bytes`.
    `digest_seeds`: one per partition, None for no digests.
    """

    def __init__(
        self,
        num_partitions: int,
        max_section_bytes: int | npt.NDArray[np.int64],
        *,
        explicit_timestamps: bool,
        digest_seeds: npt.NDArray[np.uint64] | None,
        hard_limit_bytes: int | None = None,
    ) -> None:
        self._explicit_timestamps = explicit_timestamps
        self._digest = 0 if digest_seeds is None else 2 if explicit_timestamps else 1
        self._max_section_bytes = max_section_bytes
        self._hard_limit_bytes = hard_limit_bytes
        self._state = np.zeros((0, kernels.PARTITION_FIELDS), dtype=np.int64)
        self._buffers: dict[int, npt.NDArray[np.uint8]] = {}
        self.grow(num_partitions, digest_seeds, max_section_bytes)

    @property
    def num_partitions(self) -> int:
        """Partitions that rows may go to."""
        return len(self._state)

    def grow(
        self,
        count: int,
        digest_seeds: npt.NDArray[np.uint64] | None = None,
        max_section_bytes: int | npt.NDArray[np.int64] | None = None,
        hard_limit_bytes: int | None = None,
    ) -> None:
        """Add `count` partitions; existing ones keep their rows. `hard_limit_bytes` is for the new ones."""
        if (digest_seeds is None) != (self._digest == 0) or (digest_seeds is not None and len(digest_seeds) != count):
            raise ValueError("digests need one seed for each partition, or none at all")
        limit = np.asarray(self._max_section_bytes if max_section_bytes is None else max_section_bytes, dtype=np.int64)
        if limit.size and not 0 < limit.min() <= limit.max() <= MAX_SECTION_BYTES:
            raise ValueError(f"a section's limit must be between 1 and {MAX_SECTION_BYTES} bytes")
        added = np.zeros((count, kernels.PARTITION_FIELDS), dtype=np.int64)
        added[:, kernels.LIMIT] = limit
        hard = min(hard_limit_bytes or self._hard_limit_bytes or 0, MAX_SECTION_BYTES)
        added[:, kernels.HARD_LIMIT] = np.maximum(added[:, kernels.LIMIT], hard)
        added[:, kernels.LIMIT] += BATCH_OVERHEAD_BYTES
        if digest_seeds is not None:
            added[:, kernels.SEED] = np.asarray(digest_seeds, dtype=np.uint64).view(np.int64)
        self._state = np.concatenate([self._state, added])

    def append(self, columns: RecordColumns, partition: npt.NDArray[np.int32], now_ms: int) -> Iterator[Section]:
        """Pack the rows; the iterator yields each section as it gets full and must be exhausted.

        `partition`: of each row, below `num_partitions`. `now_ms` stamps the records of a writer without
        explicit timestamps. All rows are checked before the first is packed: RecordTooLarge (facts row,
        partition, size_bytes, limit_bytes) and InvalidRow leave the writer unchanged.
        """
        if (columns.timestamp_ms is not None) != self._explicit_timestamps:
            raise ValueError("timestamps must come with every row or with none, as set for this writer")
        if len(partition) != columns.num_rows:
            raise ValueError(f"{len(partition)} partitions for {columns.num_rows} rows")
        jit.expect(columns.num_rows, plain=not (self._digest or columns.has_headers))
        rows = columns.in_memory
        partitions = np.ascontiguousarray(partition, dtype=np.int32)
        sizes = np.empty(columns.num_rows, dtype=np.int64)
        row, why = kernels.measure(rows.at, columns.num_rows, address(partitions), self._state, sizes)
        if why != kernels.DONE:
            raise self._refusal(row, why, partitions, sizes)
        return self._pack(rows, columns.num_rows, partitions, sizes, now_ms)

    def fits(
        self, columns: RecordColumns, partition: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(bytes, whether `append` would accept it) of each row as a record alone in its batch."""
        jit.expect(columns.num_rows, plain=not columns.has_headers)
        rows = RowsInMemory.from_columns(columns)
        partitions = np.ascontiguousarray(partition, dtype=np.int32)
        sizes = np.empty(columns.num_rows, dtype=np.int64)
        boundless = self._state.copy()
        boundless[:, kernels.HARD_LIMIT] = 2**62
        row, why = kernels.measure(rows.at, columns.num_rows, address(partitions), boundless, sizes)
        if why != kernels.DONE:
            raise self._refusal(row, why, partitions, sizes)
        body = sizes + 3
        alone = body + 1 + np.searchsorted(_VARINT_GROWS_AT, body, side="right")
        return BATCH_OVERHEAD_BYTES + alone, alone <= self._state[partitions, kernels.HARD_LIMIT]

    def flush(self) -> Iterator[Section]:
        """Yield the remaining sections by partition; the writer is empty afterwards and can be used again."""
        for partition in np.flatnonzero(self._state[:, kernels.COUNT]):
            yield self._take_section(int(partition))

    def _pack(
        self, rows: RowsInMemory, count: int, partitions: npt.NDArray[np.int32], sizes: npt.NDArray[np.int64], now_ms: int
    ) -> Iterator[Section]:  # fmt: skip
        row = 0
        where = address(partitions)
        while True:
            row, why = kernels.pack(rows.at, row, count, where, sizes, self._state, now_ms, self._digest)
            if why == kernels.DONE:
                return
            partition = int(partitions[row])
            if why == kernels.NEEDS_BUFFER:
                self._give_buffer(partition, int(self._state[partition, kernels.LIMIT]))
            elif why == kernels.FULL:
                yield self._take_section(partition)
            elif why == kernels.OVERSIZED:
                room = BATCH_OVERHEAD_BYTES + _MAX_RECORD_PREFIX_BYTES + int(sizes[row])
                usual = int(self._state[partition, kernels.LIMIT])
                self._give_buffer(partition, room)
                self._state[partition, kernels.LIMIT] = room
                kernels.pack(rows.at, row, row + 1, where, sizes, self._state, now_ms, self._digest)
                self._state[partition, kernels.LIMIT] = usual
                section = self._take_section(partition)
                section.row = row
                row += 1
                yield section
            else:
                raise InternalError("packing stopped for an unknown reason", {"row": row, "code": why})

    def _give_buffer(self, partition: int, size: int) -> None:
        buffer = np.empty(size, dtype=np.uint8)
        self._buffers[partition] = buffer
        self._state[partition, kernels.BUFFER] = address(buffer)
        self._state[partition, kernels.POSITION] = BATCH_OVERHEAD_BYTES

    def _take_section(self, partition: int) -> Section:
        state = self._state[partition]
        section = Section(
            partition=partition,
            count=int(state[kernels.COUNT]),
            base_timestamp_ms=int(state[kernels.BASE_TIMESTAMP]),
            max_timestamp_ms=int(state[kernels.MAX_TIMESTAMP]),
            buffer=self._buffers.pop(partition)[: int(state[kernels.POSITION])],
            digest=int(state[kernels.DIGEST]) & _ALL_64_BITS,
            machine_time=not self._explicit_timestamps,
        )
        state[[kernels.BUFFER, kernels.POSITION, kernels.COUNT, kernels.DIGEST]] = 0
        return section

    def _refusal(
        self, row: int, why: int, partitions: npt.NDArray[np.int32], sizes: npt.NDArray[np.int64]
    ) -> Exception:  # fmt: skip
        partition = int(partitions[row])
        if why == kernels.BAD_PARTITION:
            return InternalError(
                "a row was given a partition that the writer does not have; nothing was packed",
                {"row": row, "partition": partition, "partitions": self.num_partitions},
            )
        if why == kernels.BAD_ARRAY:
            return InvalidRow("an Arrow column's offsets point outside its data; nothing was packed", {"row": row})
        size = int(sizes[row])
        return RecordTooLarge(
            "a record is larger than its topic allows; nothing was packed. Raise the topic's max.message.bytes, turn "
            "compression on, or make the row smaller",
            {
                "row": row,
                "partition": partition,
                "size_bytes": BATCH_OVERHEAD_BYTES + _alone_bytes(size),
                "limit_bytes": BATCH_OVERHEAD_BYTES + int(self._state[partition, kernels.HARD_LIMIT]),
            },
        )


def _alone_bytes(size: int) -> int:
    """Bytes of a record alone in its section, from the size of its key, value and headers."""
    body = size + 3
    return body + max(1, -(-(body << 1).bit_length() // 7))


def frame(
    section: Section,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    compression: str = "none",
    max_batch_bytes: int | None = None,
) -> memoryview:
    """The section as a whole record batch v2: base offset 0, no leader epoch, CRC-32C over attributes to end.

    See `pack` for its use of the section's bytes, and for `max_batch_bytes`.
    """
    packed = pack(section, transactional=transactional, compression=compression, max_batch_bytes=max_batch_bytes)
    return stamp(packed, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def pack(
    section: Section,
    *,
    transactional: bool,
    compression: str = "none",
    level: int | None = None,
    max_batch_bytes: int | None = None,
) -> Packed:
    """The section as a record batch v2 without a producer: producer id, epoch, sequence and CRC are missing
    (`stamp`).

    The records' part of the CRC is made here, while the processor's cache still has them: a batch may wait long for its
    turn. Uncompressed, the header goes into the room in front of the records and nothing is copied. A section that is
    packed again (another epoch) is copied first, so the earlier batch stays unchanged. Records that compression does
    not make smaller go uncompressed, so a batch is never longer than its section plus the
    header. `level`: of the codec, None for Kafka's default.
    `max_batch_bytes`: RecordTooLarge where the single record of an oversized section still exceeds it.
    """
    if not 0 < section.count <= 2**31 - 1:
        raise ValueError(f"a batch has 1 to 2^31-1 records, not {section.count}")
    code = CODES.get(compression)
    if code is None:
        raise ValueError(f"unknown compression {compression!r}; Kafka has {', '.join(CODES)}")
    packed = compress(compression, section.records, level) if code else b""
    if code and len(packed) < len(section.records):
        batch = np.empty(BATCH_OVERHEAD_BYTES + len(packed), dtype=np.uint8)
        batch[BATCH_OVERHEAD_BYTES:] = np.frombuffer(packed, dtype=np.uint8)
    else:
        code = 0
        batch = section.buffer.copy() if section.framed else section.buffer
        section.framed = True
    if max_batch_bytes is not None and len(batch) > max_batch_bytes:
        raise RecordTooLarge(
            "a record is larger than its topic allows, even compressed; it was not sent. Raise the topic's "
            "max.message.bytes or make the row smaller",
            {
                "row": section.row,
                "partition": section.partition,
                "size_bytes": len(batch),
                "limit_bytes": max_batch_bytes,
            },
        )
    HEADER.pack_into(
        batch.data, 0,
        0, len(batch) - LENGTH_FIELD_ENDS_AT, NO_LEADER_EPOCH, MAGIC, 0,
        code | (TRANSACTIONAL if transactional else 0), section.count - 1,
        section.base_timestamp_ms, section.max_timestamp_ms, NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE, section.count,
    )  # fmt: skip
    return Packed(batch.data, crc32c.crc32c(batch.data[BATCH_OVERHEAD_BYTES:]), section.machine_time)


def stamp(packed: Packed, *, producer_id: int, producer_epoch: int, base_sequence: int) -> memoryview:
    """Put identity, sequence and CRC on a packed batch, in place; returns its bytes."""
    batch = packed.batch
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    head = crc32c.crc32c(batch[CRC_STARTS_AT:BATCH_OVERHEAD_BYTES])
    crc = joined_crc(head, packed.crc, len(batch) - BATCH_OVERHEAD_BYTES)
    _CRC.pack_into(batch, CRC_STARTS_AT - _CRC.size, crc)
    return batch


def topic_seed(topic: str) -> int:
    """Seed of a topic's record digests (format 1): the topic is part of the digest."""
    return zlib.crc32(topic.encode()) | (zlib.adler32(topic.encode()) << 32)
