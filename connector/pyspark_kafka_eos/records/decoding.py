"""The loops that read records: check the bytes first, then copy them into Arrow's buffers.

Owns: the parsing of records of format v2 (KIP-98) from untrusted bytes.
Does not know: batch headers, compression, Arrow.
Invariants:
- `walk` reads no byte outside the records it is given, whatever they contain.
- `fill` checks nothing. It may run only on bytes that `walk` has accepted with the same arguments, into
  buffers of the sizes that `walk` has computed.
"""

from __future__ import annotations

from pyspark_kafka_eos.records.hashing import hash_bytes, seed_at
from pyspark_kafka_eos.records.jit import helper, kernel
from pyspark_kafka_eos.records.kernels import Int64s
from pyspark_kafka_eos.records.memory import copy, load1, load8, store1, store4, store8

# What is wrong with a record.
(OK, CUT_SHORT, VARINT_TOO_LONG, BAD_LENGTH, BAD_OFFSET, BAD_COUNT, TRAILING_BYTES) = range(7)

FAULTS = {
    CUT_SHORT: "the records end inside a record",
    VARINT_TOO_LONG: "a number has more bytes than its type allows",
    BAD_LENGTH: "a length points outside its record",
    BAD_OFFSET: "an offset is outside the batch or not above the one before",
    BAD_COUNT: "a record's number of headers is impossible",
    TRAILING_BYTES: "a record or the batch is longer than its content",
}

# The totals of a set of batches, summed by `walk`; also, as cursors, the places where `fill` continues.
(RECORDS, KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES) = range(6)
(NULL_KEYS, NULL_VALUES, NO_HEADERS, NULL_HEADER_VALUES, DIGEST) = range(6, 11)
TOTALS = 11

# Where `fill` writes: addresses, in this order. Validity bitmaps start as zeros; address 0: not wanted.
(
    OUT_OFFSET,
    OUT_TIMESTAMP,
    OUT_KEY_ENDS,
    OUT_KEY,
    OUT_KEY_VALID,
    OUT_VALUE_ENDS,
    OUT_VALUE,
    OUT_VALUE_VALID,
) = range(8)
(OUT_LIST_ENDS, OUT_LIST_VALID, OUT_HEADER_KEY_ENDS, OUT_HEADER_KEY) = range(8, 12)
(OUT_HEADER_VALUE_ENDS, OUT_HEADER_VALUE, OUT_HEADER_VALUE_VALID) = range(12, 15)
OUTPUTS = 15

SMALLEST_RECORD_BYTES = 7
"""Length, attributes, both deltas, two null fields and the number of headers take a byte each."""

_SMALLEST_HEADER_BYTES = 2
_NOT_A_NUMBER = -(1 << 62)
"""Not an int32 varint: marks a number that runs past the end or past five bytes."""


@helper
def int_at(address: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits and the address behind it; _NOT_A_NUMBER if there is none before `end`."""
    if address >= end:
        return _NOT_A_NUMBER, CUT_SHORT
    byte = load1(address)
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), address + 1
    value = byte & 0x7F
    for index in range(1, 5):
        if address + index >= end:
            return _NOT_A_NUMBER, CUT_SHORT
        byte = load1(address + index)
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                return _NOT_A_NUMBER, VARINT_TOO_LONG
            return (value >> 1) ^ -(value & 1), address + index + 1
    return _NOT_A_NUMBER, VARINT_TOO_LONG


@helper
def long_at(address: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the address behind it, or there a fault (<= TRAILING_BYTES)."""
    value = 0
    for index in range(10):
        if address + index >= end:
            return 0, CUT_SHORT
        byte = load1(address + index)
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if index == 9 and byte > 1:
                return 0, VARINT_TOO_LONG
            return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), address + index + 1
    return 0, VARINT_TOO_LONG


@helper
def field_fault(length: int, behind: int, end: int, smallest: int) -> int:
    """What is wrong with a field of this length that starts at `behind`."""
    if length == _NOT_A_NUMBER:
        return behind
    if length < smallest or length > end - behind:
        return BAD_LENGTH
    return OK


@kernel
def walk(
    address: int, size: int, count: int, last_offset_delta: int, base_timestamp: int, with_headers: int, digest: int,
    seed: int, totals: Int64s,
) -> tuple[int, int]:  # fmt: skip
    """Check the uncompressed records of one batch and add their contents to `totals`.

    digest: 0 none, 1 of the bytes, 2 of the bytes and the timestamp. Returns (OK, 0), or the fault and the number of
    the record in the batch that has it; `totals` is then unchanged.
    """
    end = address + size
    last_offset = -1
    key_bytes = value_bytes = null_keys = null_values = 0
    header_total = no_headers = header_key_bytes = header_value_bytes = null_header_values = digest_sum = 0
    for number in range(count):
        length, start = int_at(address, end)
        fault = field_fault(length, start, end, 0)
        if fault:
            return fault, number
        record_end = start + length
        if length < SMALLEST_RECORD_BYTES - 1:
            return BAD_LENGTH, number
        age, at = long_at(start + 1, record_end)
        if at <= TRAILING_BYTES:
            return at, number
        offset, at = int_at(at, record_end)
        if offset == _NOT_A_NUMBER:
            return at, number
        if offset <= last_offset or offset > last_offset_delta:
            return BAD_OFFSET, number
        last_offset = offset
        content = at
        key, at = int_at(at, record_end)
        fault = field_fault(key, at, record_end, -1)
        if fault:
            return fault, number
        null_keys += key < 0
        key = max(key, 0)
        key_bytes += key
        value, at = int_at(at + key, record_end)
        fault = field_fault(value, at, record_end, -1)
        if fault:
            return fault, number
        null_values += value < 0
        value = max(value, 0)
        value_bytes += value
        at += value
        if with_headers:
            headers, at = int_at(at, record_end)
            if headers == _NOT_A_NUMBER:
                return at, number
            if headers < 0 or headers * _SMALLEST_HEADER_BYTES > record_end - at:
                return BAD_COUNT, number
            header_total += headers
            no_headers += headers == 0
            for _ in range(headers):
                key, at = int_at(at, record_end)
                fault = field_fault(key, at, record_end, 0)
                if fault:
                    return fault, number
                header_key_bytes += key
                value, at = int_at(at + key, record_end)
                fault = field_fault(value, at, record_end, -1)
                if fault:
                    return fault, number
                null_header_values += value < 0
                value = max(value, 0)
                header_value_bytes += value
                at += value
            if at != record_end:
                return TRAILING_BYTES, number
        if digest:
            mixed = seed_at(seed, base_timestamp + age) if digest == 2 else seed
            digest_sum += hash_bytes(content, record_end - content, mixed)
        address = record_end
    if address != end:
        return TRAILING_BYTES, count
    totals[RECORDS] += count
    totals[NULL_KEYS] += null_keys
    totals[KEY_BYTES] += key_bytes
    totals[NULL_VALUES] += null_values
    totals[VALUE_BYTES] += value_bytes
    totals[HEADERS] += header_total
    totals[NO_HEADERS] += no_headers
    totals[HEADER_KEY_BYTES] += header_key_bytes
    totals[HEADER_VALUE_BYTES] += header_value_bytes
    totals[NULL_HEADER_VALUES] += null_header_values
    totals[DIGEST] += digest_sum
    return OK, 0


@helper
def put_bytes(source: int, length: int, data: int, used: int, ends: int, valid: int, row: int) -> int:
    """Append a field to those before it, with its end and validity bit; returns the bytes used so far."""
    if length >= 0:
        copy(data + used, source, length)
        used += length
        if valid:
            store1(valid + (row >> 3), load1(valid + (row >> 3)) | 1 << (row & 7))
    store4(ends + 4 * (row + 1), used)
    return used


@helper
def out(outputs: int, index: int) -> int:
    """One of the addresses to write to."""
    return load8(outputs + 8 * index)


@kernel
def fill(
    address: int, size: int, count: int, base_offset: int, base_timestamp: int, log_append: int, with_headers: int,
    outputs: int, cursors: Int64s,
) -> int:  # fmt: skip
    """Append the records of one batch accepted by `walk` to those of earlier ones; returns their count.

    `log_append`: every record's timestamp is `base_timestamp`, which is then the batch's largest (KIP-32).
    """
    end = address + size
    row = cursors[RECORDS]
    key_bytes = cursors[KEY_BYTES]
    value_bytes = cursors[VALUE_BYTES]
    header = cursors[HEADERS]
    header_key_bytes = cursors[HEADER_KEY_BYTES]
    header_value_bytes = cursors[HEADER_VALUE_BYTES]
    for _ in range(count):
        length, at = int_at(address, end)
        record_end = at + length
        age, at = long_at(at + 1, end)
        offset, at = int_at(at, end)
        store8(out(outputs, OUT_OFFSET) + 8 * row, base_offset + offset)
        store8(out(outputs, OUT_TIMESTAMP) + 8 * row, base_timestamp if log_append else base_timestamp + age)
        key, at = int_at(at, end)
        key_bytes = put_bytes(
            at,
            key,
            out(outputs, OUT_KEY),
            key_bytes,
            out(outputs, OUT_KEY_ENDS),
            out(outputs, OUT_KEY_VALID),
            row,
        )
        value, at = int_at(at + max(key, 0), end)
        value_bytes = put_bytes(
            at, value, out(outputs, OUT_VALUE), value_bytes,
            out(outputs, OUT_VALUE_ENDS), out(outputs, OUT_VALUE_VALID), row,
        )  # fmt: skip
        if with_headers:
            headers, at = int_at(at + max(value, 0), end)
            for _ in range(headers):
                key, at = int_at(at, end)
                header_key_bytes = put_bytes(
                    at, key, out(outputs, OUT_HEADER_KEY), header_key_bytes,
                    out(outputs, OUT_HEADER_KEY_ENDS), 0, header,
                )  # fmt: skip
                value, at = int_at(at + key, end)
                header_value_bytes = put_bytes(
                    at, value, out(outputs, OUT_HEADER_VALUE), header_value_bytes,
                    out(outputs, OUT_HEADER_VALUE_ENDS), out(outputs, OUT_HEADER_VALUE_VALID), header,
                )  # fmt: skip
                at += max(value, 0)
                header += 1
            valid = out(outputs, OUT_LIST_VALID)
            if valid and headers:
                store1(valid + (row >> 3), load1(valid + (row >> 3)) | 1 << (row & 7))
            store4(out(outputs, OUT_LIST_ENDS) + 4 * (row + 1), header)
        address = record_end
        row += 1
    cursors[RECORDS] = row
    cursors[KEY_BYTES] = key_bytes
    cursors[VALUE_BYTES] = value_bytes
    cursors[HEADERS] = header
    cursors[HEADER_KEY_BYTES] = header_key_bytes
    cursors[HEADER_VALUE_BYTES] = header_value_bytes
    return count
