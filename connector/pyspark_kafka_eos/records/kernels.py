"""The loops that write rows: sizes, record bytes, digests, partitions. Machine code; no Python per record.

Owns: the encoding of one record of format v2 (KIP-98; https://kafka.apache.org/documentation/#recordbatch).
Does not know: Arrow, batches' headers, files, sockets.
Invariants:
- A kernel touches memory only between the addresses that its arguments describe.
- Every offset and length read from there is checked before it is used.
- Everything is int64, even values that are unsigned by nature (digests, words): numba turns mixtures of
  signed and unsigned into floating point.

A column of bytes is described by COLUMN_FIELDS int64 values (made by `columns`): validity bitmap (an address, or
NO_NULLS, or ALL_NULL), its first bit, address of int64 offsets, address of the data, size of the data in bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyspark_kafka_eos.records.hashing import (
    C0,
    C1,
    copy_and_hash,
    hash_bytes,
    hash_rest,
    hash_steps,
    murmur2,
    seed_at,
)
from pyspark_kafka_eos.records.jit import helper, kernel
from pyspark_kafka_eos.records.memory import copy, load1, load4, load8, store1, store4

Int64s = npt.NDArray[np.int64]

NO_NULLS = 0
ALL_NULL = -1

COLUMN_FIELDS = 5
VALIDITY, FIRST_BIT, OFFSETS, DATA, DATA_SIZE = range(COLUMN_FIELDS)

# A row set: key column, value column, then the lists of headers, header keys, header values, timestamps (an address or
# 0).
KEY, VALUE, HEADER_LISTS, HEADER_KEY, HEADER_VALUE = (index * COLUMN_FIELDS for index in range(5))
TIMESTAMPS = 5 * COLUMN_FIELDS
ROWS_FIELDS = TIMESTAMPS + 1

# One writer's partition: one row of an int64 array.
(BUFFER, POSITION, LIMIT, HARD_LIMIT, COUNT, BASE_TIMESTAMP, MAX_TIMESTAMP, DIGEST, SEED) = range(9)
PARTITION_FIELDS = 9

# What stopped a kernel.
DONE, NEEDS_BUFFER, FULL, OVERSIZED, TOO_LARGE, BAD_PARTITION, BAD_ARRAY, BAD_TOPIC = range(8)

HASHED_WHILE_COPIED_BYTES = 512
"""The value of a row of this size or more goes into the digest while it is copied: with 1,000 bytes 112 ns a record in
place of
190. With half of it rows of 256 to 511 bytes take 2 to 4 ns more, with twice it rows of up to 1,023 gain nothing.
"""


@helper
def word(rows: int, index: int) -> int:
    """One word of the rows' description. (An array as an argument would cost a reference count at every call.)"""
    return load8(rows + 8 * index)


@helper
def is_valid(validity: int, bit: int) -> bool:
    """Whether the row at this bit is not null."""
    if validity == NO_NULLS:
        return True
    if validity == ALL_NULL:
        return False
    return (load1(validity + (bit >> 3)) >> (bit & 7)) & 1 == 1


@helper
def zigzag(value: int) -> int:
    """The signed number as Kafka's varints carry it; treated as unsigned from here on."""
    return (value << 1) ^ (value >> 63)


@helper
def varint_size(value: int) -> int:
    """Bytes of the varint of a zigzagged number."""
    if value < 0:
        return 10  # bit 63 is set
    if value < 1 << 7:
        return 1
    if value < 1 << 14:
        return 2
    if value < 1 << 21:
        return 3
    if value < 1 << 28:
        return 4
    size = 5
    value >>= 35
    while value:
        value >>= 7
        size += 1
    return size


@helper
def put_varint(target: int, value: int) -> int:
    """Write a zigzagged number and return the address behind it."""
    if 0 <= value < 1 << 7:
        store1(target, value)
        return target + 1
    if 0 <= value < 1 << 14:
        store1(target, value | 0x80)
        store1(target + 1, value >> 7)
        return target + 2
    while value < 0 or value >= 1 << 7:
        store1(target, value | 0x80)
        target += 1
        value = (value >> 7) & 0x01FFFFFFFFFFFFFF  # a logical shift
    store1(target, value)
    return target + 1


@helper
def field_length(rows: int, column: int, row: int) -> int:
    """Length of a field, -1 for null, -2 where the column's offsets point outside its data."""
    if not is_valid(word(rows, column + VALIDITY), word(rows, column + FIRST_BIT) + row):
        return -1
    start = load8(word(rows, column + OFFSETS) + 8 * row)
    end = load8(word(rows, column + OFFSETS) + 8 * row + 8)
    if start < 0 or end < start or end > word(rows, column + DATA_SIZE):
        return -2
    return end - start


@helper
def field_size(length: int) -> int:
    """Bytes of a field with its length in front; null has length -1 and no bytes."""
    if length < 0:
        return 1
    return varint_size(length << 1) + length


@helper
def headers_size(rows: int, row: int) -> int:
    """Bytes of a row's headers with their count in front, -2 where an offset is wrong or a header's key is null."""
    count = header_count(rows, row)
    if count < 0:
        return count
    size = varint_size(count << 1)
    if count:
        first = load8(word(rows, HEADER_LISTS + OFFSETS) + 8 * row)
        for header in range(first, first + count):
            key = field_length(rows, HEADER_KEY, header)
            value = field_length(rows, HEADER_VALUE, header)
            if key < 0 or value < -1:
                return -2
            size += field_size(key) + field_size(value)
    return size


@helper
def header_count(rows: int, row: int) -> int:
    """Number of a row's headers (a null list has none), -2 where the list's offsets are wrong."""
    count = field_length(rows, HEADER_LISTS, row)
    return 0 if count == -1 else count


@kernel
def measure(rows: int, count: int, partitions: int, state: Int64s, sizes: Int64s) -> tuple[int, int]:
    """Write each row's size of key, value and headers to `sizes`, with every check that can reject a row.

    `partitions` is the address of one int32 per row. Returns the first row rejected and why, or (count,
    DONE). The state does not change.
    """
    for row in range(count):
        partition = load4(partitions + 4 * row)
        if partition >= state.shape[0]:  # a negative one is read as a large one
            return row, BAD_PARTITION
        key = field_length(rows, KEY, row)
        value = field_length(rows, VALUE, row)
        headers = headers_size(rows, row)
        if key < -1 or value < -1 or headers < 0:
            return row, BAD_ARRAY
        size = field_size(key) + field_size(value) + headers
        sizes[row] = size
        # Alone in a batch: attributes, timestamp delta 0 and offset delta 0 take a byte each.
        if varint_size((size + 3) << 1) + 3 + size > state[partition, HARD_LIMIT]:
            return row, TOO_LARGE
    return count, DONE


@helper
def put_field(rows: int, column: int, row: int, target: int) -> int:
    """Write a field with its length in front and return the address behind it; `measure` has checked it."""
    if not is_valid(word(rows, column + VALIDITY), word(rows, column + FIRST_BIT) + row):
        store1(target, 1)
        return target + 1
    start = load8(word(rows, column + OFFSETS) + 8 * row)
    length = load8(word(rows, column + OFFSETS) + 8 * row + 8) - start
    target = put_varint(target, length << 1)
    copy(target, word(rows, column + DATA) + start, length)
    return target + length


@helper
def put_headers(rows: int, row: int, target: int) -> int:
    """Write a row's headers with their count in front and return the address behind them."""
    count = header_count(rows, row)
    target = put_varint(target, count << 1)
    if count:
        first = load8(word(rows, HEADER_LISTS + OFFSETS) + 8 * row)
        for header in range(first, first + count):
            target = put_field(rows, HEADER_KEY, header, target)
            target = put_field(rows, HEADER_VALUE, header, target)
    return target


@helper
def put_and_hash(rows: int, row: int, content: int, target: int, size: int, seed: int) -> int:
    """Write a row's value and headers at `target`, behind its key, and return the digest of the `size` bytes from
    `content` on.
    """
    end = content + size
    if not is_valid(word(rows, VALUE + VALIDITY), word(rows, VALUE + FIRST_BIT) + row):
        store1(target, 1)
        put_headers(rows, row, target + 1)
        return hash_bytes(content, size, seed)
    start = load8(word(rows, VALUE + OFFSETS) + 8 * row)
    length = load8(word(rows, VALUE + OFFSETS) + 8 * row + 8) - start
    source = word(rows, VALUE + DATA) + start
    target = put_varint(target, length << 1)
    # The first step that lies in the value alone begins here.
    head = min(length, (content - target) & 31)
    copy(target, source, head)
    at, left, right = hash_steps(content, target + head, seed ^ C0, seed ^ C1)
    steps = (length - head) >> 5
    left, right = copy_and_hash(at, source + head, steps, left, right)
    done = head + 32 * steps
    copy(target + done, source + done, length - done)
    put_headers(rows, row, target + length)
    at, left, right = hash_steps(at + 32 * steps, end, left, right)
    return hash_rest(at, end, size, left, right)


@kernel
def pack(
    rows: int, start: int, end: int, partitions: int, sizes: Int64s, state: Int64s, now_ms: int, digest: int
) -> tuple[int, int]:
    """Append rows [start, end) to their partitions' sections until one needs room.

    `measure` has accepted them. Returns the row that stopped it and why: NEEDS_BUFFER (its partition has
    none), FULL (its section has to be taken first), OVERSIZED (larger than an empty section of the usual
    size); or (end, DONE).
    digest: 0 none, 1 of the bytes, 2 of the bytes and the timestamp.
    """
    timestamps = word(rows, TIMESTAMPS)
    for row in range(start, end):
        partition = load4(partitions + 4 * row)
        buffer = state[partition, BUFFER]
        if buffer == 0:
            return row, NEEDS_BUFFER
        timestamp = load8(timestamps + 8 * row) if timestamps else now_ms
        number = state[partition, COUNT]
        if number == 0:
            state[partition, BASE_TIMESTAMP] = timestamp
            state[partition, MAX_TIMESTAMP] = timestamp
        age = zigzag(timestamp - state[partition, BASE_TIMESTAMP])
        size = sizes[row]
        body = 1 + varint_size(age) + varint_size(number << 1) + size
        position = state[partition, POSITION]
        behind = position + varint_size(body << 1) + body
        if behind > state[partition, LIMIT]:
            return row, FULL if number else OVERSIZED
        target = put_varint(buffer + position, body << 1)
        store1(target, 0)
        target = put_varint(target + 1, age)
        content = put_varint(target, number << 1)
        target = put_field(rows, KEY, row, content)
        seed = state[partition, SEED]
        if digest == 2:
            seed = seed_at(seed, timestamp)
        if digest and size >= HASHED_WHILE_COPIED_BYTES:
            state[partition, DIGEST] += put_and_hash(rows, row, content, target, size, seed)
        else:
            target = put_field(rows, VALUE, row, target)
            put_headers(rows, row, target)
            if digest:
                state[partition, DIGEST] += hash_bytes(content, size, seed)
        state[partition, POSITION] = behind
        state[partition, COUNT] = number + 1
        if timestamp > state[partition, MAX_TIMESTAMP]:
            state[partition, MAX_TIMESTAMP] = timestamp
    return end, DONE


# One topic of a partitioner: one row of an int64 array.
(FIRST_INDEX, PARTITIONS, STICKY, STICKY_USED) = range(4)
TOPIC_FIELDS = 4

STICKY_ROW_OVERHEAD_BYTES = 10
"""What a record adds to its value: length (2), attributes, timestamp and offset deltas (3 to 5), null key, value length
(1 or 2), header count. An estimate: only how evenly null keys spread depends on it."""


@kernel
def assign(
    rows: int, count: int, topic: int, topic_of_row: int, explicit: int, explicit_validity: int, first_bit: int,
    topics: Int64s, sticky_bytes: int, target: int,
) -> tuple[int, int]:  # fmt: skip
    """Flat partition index of every row, as int32 at `target`.

    `topic_of_row`: address of one int32 per row, or 0 where every row goes to `topic`. `explicit`: address of
    one int32 per row, or 0. Returns (count, DONE), or the first row rejected and why. Changes the sticky
    fields of `topics`.
    """
    for row in range(count):
        if topic_of_row:
            topic = load4(topic_of_row + 4 * row)
        if topic < 0 or topic >= topics.shape[0]:
            return row, BAD_TOPIC
        partitions = topics[topic, PARTITIONS]
        if explicit and is_valid(explicit_validity, first_bit + row):
            partition = load4(explicit + 4 * row)
            if partition >= partitions:
                return row, BAD_PARTITION
        else:
            key = field_length(rows, KEY, row)
            if key < -1:
                return row, BAD_ARRAY
            if key >= 0:
                start = load8(word(rows, KEY + OFFSETS) + 8 * row)
                partition = (murmur2(word(rows, KEY + DATA) + start, key) & 0x7FFFFFFF) % partitions
            else:
                partition = topics[topic, STICKY]
                value = max(0, field_length(rows, VALUE, row))
                used = topics[topic, STICKY_USED] + value + STICKY_ROW_OVERHEAD_BYTES
                if used >= sticky_bytes:
                    used = 0
                    topics[topic, STICKY] = partition + 1 if partition + 1 < partitions else 0
                topics[topic, STICKY_USED] = used
        store4(target + 4 * row, topics[topic, FIRST_INDEX] + partition)
    return count, DONE


@kernel
def hash_keys(rows: int, count: int, target: int) -> tuple[int, int]:
    """murmur2 of every key as int32 at `target`; 0 for a null key."""
    for row in range(count):
        key = field_length(rows, KEY, row)
        if key < -1:
            return row, BAD_ARRAY
        start = load8(word(rows, KEY + OFFSETS) + 8 * row) if key >= 0 else 0
        store4(target + 4 * row, murmur2(word(rows, KEY + DATA) + start, key) if key >= 0 else 0)
    return count, DONE
