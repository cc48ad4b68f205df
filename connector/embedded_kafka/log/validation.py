"""The checks of a client's batch before any use of it.

Owns: the order and the codes of Kafka's checks.
Does not know: files, offsets of a log, producers' state.
Invariants:
- No field of a batch is trusted before its length and CRC are checked.
- The records inside are not checked here (`record_rules` does that for topics with such rules). Other topics
  therefore accept a batch whose records are garbage under a right CRC.
"""

from __future__ import annotations

from typing import Final

from embedded_kafka.log import records
from embedded_kafka.log.records import BatchHeader
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code

_HIGHEST_CODEC: Final = 4
_SMALLEST_OLD_RECORD_BYTES: Final = 14
"""Kafka's lower bound for the length field before it reads the magic: the overhead of a record of magic 0."""


def judge_client_batch(data: memoryview, max_message_bytes: int) -> tuple[BatchHeader, memoryview]:
    """The one batch of a Produce request's partition; Refused with Kafka's code, in Kafka's order of checks.

    Bytes behind it that are not a complete batch are dropped, as in Kafka.
    """
    batch = only_batch(data)
    size = len(batch)
    if size < records.HEADER_BYTES:
        raise Refused(
            Code.CORRUPT_MESSAGE,
            f"a record batch of {size} bytes is smaller than its header of {records.HEADER_BYTES}",
        )
    base, length, *rest = records.HEADER.unpack_from(batch)
    header = BatchHeader(base, length + records.LENGTH_ENDS_AT, *rest)
    if base != 0:
        raise Refused(Code.INVALID_RECORD, f"the base offset of a batch in a Produce request must be 0, but is {base}")
    check_size(size, max_message_bytes)
    if not records.crc_is_right(header, batch):
        raise Refused(Code.CORRUPT_MESSAGE, f"a record batch is corrupt (stored CRC {header.crc})")
    _check_fields(header)
    return header, batch


def only_batch(data: memoryview) -> memoryview:
    """The one batch that a Produce request may have for a partition. Kafka checks this before it calls the log."""
    size = _next_size(data, 0)
    if size is None:
        raise Refused(Code.INVALID_RECORD, "a Produce request must have a record batch for each partition")
    if data[records.MAGIC_AT] != records.MAGIC:
        raise Refused(
            Code.INVALID_RECORD,
            f"only record batches of magic {records.MAGIC} are accepted, not {data[records.MAGIC_AT]}",
        )
    if _next_size(data, size) is not None:
        raise Refused(Code.INVALID_RECORD, "a Produce request must have exactly one record batch for each partition")
    return data[:size]


def check_size(size: int, max_message_bytes: int) -> None:
    """MESSAGE_TOO_LARGE where a batch is above the topic's limit."""
    if size > max_message_bytes:
        raise Refused(
            Code.MESSAGE_TOO_LARGE,
            f"a record batch of {size} bytes exceeds the topic's max.message.bytes of {max_message_bytes}",
        )


def _next_size(data: memoryview, at: int) -> int | None:
    """Size of the batch at that position; None where it is incomplete."""
    left = len(data) - at
    if left < records.LENGTH_ENDS_AT:
        return None
    length = int.from_bytes(data[at + 8 : at + records.LENGTH_ENDS_AT], "big", signed=True)
    if length < _SMALLEST_OLD_RECORD_BYTES:
        raise Refused(Code.CORRUPT_MESSAGE, f"a record of {length} bytes is smaller than the overhead of any record")
    if left <= records.MAGIC_AT:
        return None
    if data[at + records.MAGIC_AT] > records.MAGIC:
        raise Refused(Code.CORRUPT_MESSAGE, f"a record batch has the unknown magic {data[at + records.MAGIC_AT]}")
    size = length + records.LENGTH_ENDS_AT
    return None if size > left else size


def _check_fields(header: BatchHeader) -> None:
    problem = ""
    if header.codec > _HIGHEST_CODEC:
        # Kafka fails with UNKNOWN_SERVER_ERROR here, which a client would retry.
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"compression {header.codec} is not one of Kafka's codecs")
    if header.last_offset_delta < 0:
        problem = f"the batch has an invalid offset range [0, {header.last_offset_delta}]"
    elif header.count <= 0:
        problem = f"the batch has an invalid record count of {header.count}"
    elif header.count != header.last_offset_delta + 1:
        problem = (
            f"the batch's offset range [0, {header.last_offset_delta}] contradicts its record count of {header.count}"
        )
    elif header.control:
        problem = "clients are not allowed to write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"invalid sequence number {header.base_sequence} in a batch of producer {header.producer_id}"
    elif header.transactional and header.producer_id < 0:
        problem = "a transactional batch must name its producer"
    elif header.codec == 0 and header.count * records.SMALLEST_RECORD_BYTES > header.size - records.HEADER_BYTES:
        problem = f"{header.size - records.HEADER_BYTES} bytes have no room for {header.count} records"
    if problem:
        raise Refused(Code.INVALID_RECORD, problem)
