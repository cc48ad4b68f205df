"""A topic's rules for the records inside a client's batch: a key, a time near now, the topic's codec.

Owns: which batches have to be opened, the judgement of each record (KIP-467), repacking a batch.
Does not know: files, offsets of a log, producers' state; the rules for a batch as such (`validation`).
Invariants:
- A batch is opened only where a setting of its topic, or its own header, requires it.
- A record's index is its place in the batch.
- A batch with a bad record is rejected as a whole.
- Repacking changes only the codec, the length and the CRC.
"""

from __future__ import annotations

from typing import Final

from embedded_kafka.log import contents, records
from embedded_kafka.log.records import BatchHeader
from embedded_kafka.log.validation import check_size, judge_client_batch
from embedded_kafka.refusals import RecordError, RecordsRefused, Refused
from embedded_kafka.settings.config import LogConfig
from kafka_core.protocol.error_codes import Code

_NO_TIME: Final = -1
_ANY_AGE: Final = 2**63 - 1

_NO_KEY: Final = "a record of a compacted topic must have a key"
_APPEND_TIME: Final = "a producer must not set the timestamp type of its records to LogAppendTime"


class RecordRules:
    """The rules of one topic."""

    def __init__(self, config: LogConfig) -> None:
        self._keys_needed = config.compact
        self._append_time = config.log_append_time
        self._before_ms = config.timestamp_before_max_ms
        self._after_ms = config.timestamp_after_max_ms
        self._codec = config.codec
        self._max_message_bytes = config.max_message_bytes
        self._every_batch = config.compact or (self._before_ms < _ANY_AGE and not config.log_append_time)

    def judge(self, data: memoryview, now_ms: int) -> tuple[BatchHeader, memoryview]:
        """The one batch of a Produce request's partition, as the log stores it. Refused
        (RecordsRefused) with Kafka's code.

        MESSAGE_TOO_LARGE also where the topic's codec makes the batch larger than the topic allows.
        """
        header, batch = judge_client_batch(data, self._max_message_bytes)
        return self._opened(header, batch, now_ms) if self._concern(header, now_ms) else (header, batch)

    def _concern(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether this batch has to be opened. The header's highest timestamp is trusted, as every reader does."""
        return (
            self._every_batch
            or (self._codec is not None and self._codec != header.codec)
            or (not self._append_time and header.max_timestamp_ms - now_ms > self._after_ms)
            or self._claims_append_time(header)
        )

    def _opened(self, header: BatchHeader, batch: memoryview, now_ms: int) -> tuple[BatchHeader, memoryview]:
        try:
            content = contents.unpacked(header, batch)
            errors = list(self._errors(header, content, now_ms))
        except ValueError as error:
            raise Refused(Code.INVALID_RECORD, f"the records of the batch cannot be read: {error}") from error
        if errors:
            raise _refusal(errors)
        if self._codec is None or self._codec == header.codec:
            return header, batch
        _require_no_time_before_1970(header, content)
        attributes = header.attributes & ~records.CODEC_BITS | self._codec
        packed = records.framed(
            header._replace(base_offset=0, leader_epoch=0, attributes=attributes),
            contents.packed(self._codec, content),
        )
        check_size(len(packed), self._max_message_bytes)
        return records.own_header(packed), memoryview(packed)

    def _errors(self, header: BatchHeader, content: bytes, now_ms: int) -> list[tuple[Code, RecordError]]:
        found = []
        claims = self._claims_append_time(header)
        for index, place in enumerate(contents.whole_places(content, header.count)):
            timestamp_ms = header.timestamp_ms(place.timestamp_delta)
            if self._keys_needed and place.key is None:
                found.append((Code.INVALID_RECORD, RecordError(index, _NO_KEY)))
            elif claims:
                found.append((Code.INVALID_TIMESTAMP, RecordError(index, _APPEND_TIME)))
            elif not self._append_time and timestamp_ms != _NO_TIME and not self._in_range(timestamp_ms, now_ms):
                said = (
                    f"timestamp {timestamp_ms} is out of range: the topic accepts records from "
                    f"{now_ms - self._before_ms} to {now_ms + self._after_ms}"
                )
                found.append((Code.INVALID_TIMESTAMP, RecordError(index, said)))
        return found

    def _claims_append_time(self, header: BatchHeader) -> bool:
        """Kafka removes the claim from a batch whose time it can check, and refuses the batch otherwise."""
        return header.log_append_time and (self._append_time or header.max_timestamp_ms == _NO_TIME)

    def _in_range(self, timestamp_ms: int, now_ms: int) -> bool:
        return -self._after_ms <= now_ms - timestamp_ms <= self._before_ms


def _require_no_time_before_1970(header: BatchHeader, content: bytes) -> None:
    """Kafka's own packer of records fails on such a time, with an error that has no code (seen on 4.3.1). A batch that
    it does not pack anew it takes as it is, and the cleaner fails on it later.
    """
    stamps = (header.timestamp_ms(place.timestamp_delta) for place in contents.whole_places(content, header.count))
    bad = next((stamp for stamp in stamps if stamp < 0 and stamp != _NO_TIME), None)
    if bad is not None:
        raise Refused(
            Code.UNKNOWN_SERVER_ERROR,
            f"records with the time {bad}, which is before 1970, cannot be packed anew",
        )


def _refusal(errors: list[tuple[Code, RecordError]]) -> RecordsRefused:
    """One code for the batch: a bad time outweighs a missing key, as in Kafka."""
    timed = any(code is Code.INVALID_TIMESTAMP for code, _ in errors)
    code = Code.INVALID_TIMESTAMP if timed else Code.INVALID_RECORD
    first = errors[0][1]
    said = f"the batch was not written: {len(errors)} of its records are bad; record {first.index}: {first.message}"
    return RecordsRefused(code, said, [error for _, error in errors])
