"""Records of `__transaction_state`, in Kafka's own form (TransactionLogKey version 0, TransactionLogValue versions 0
and 1).

Owns: bytes of keys and values.
Does not know: when they are written.
Invariants:
- Decoding an encoded value returns an equal value, except for fields that version 0 cannot store.
- A garbled value raises CorruptBatch, a newer one UnsupportedVersion; no part of either is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from embedded_kafka.transactions.machine.events import TransactionLogEntry, TransactionState
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, TopicPartition, by_topic

STATE_IDS = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
    TransactionState.DEAD: 6,
    TransactionState.PREPARE_EPOCH_FENCE: 7,
}
_STATES = {number: state for state, number in STATE_IDS.items()}

KEY_VERSION = 0
MAX_ID_BYTES = 32_767
"""The longest transactional id: the key's length is a signed 16-bit number."""

TAG_PREVIOUS_PRODUCER_ID = 0
TAG_NEXT_PRODUCER_ID = 1
TAG_VERSION = 2
TAG_LAST_EPOCH = 360
"""A tag of this project. KIP-360 puts the last epoch into the record, so that a repeated InitProducerId gets
the same answer after the coordinator has moved. Kafka's record has no such field up to 4.4.0; KAFKA-20357
adds one after that release, under a low tag. This tag stays far above the tags that Kafka assigns one by one;
readers skip unknown tags."""

_TAGS: dict[int, tuple[str, str, int]] = {
    TAG_PREVIOUS_PRODUCER_ID: ("previous_producer_id", ">q", NO_PRODUCER_ID),
    TAG_NEXT_PRODUCER_ID: ("next_producer_id", ">q", NO_PRODUCER_ID),
    TAG_VERSION: ("version", ">h", 0),
    TAG_LAST_EPOCH: ("last_epoch", ">h", NO_EPOCH),
}
"""Tag -> field, its form, and the default value, which is not written."""


def encode_key(transactional_id: str) -> bytes:
    """The record's key."""
    name = transactional_id.encode()
    return struct.pack(">hh", KEY_VERSION, len(name)) + name


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for a key of another kind, which a newer Kafka may have written."""
    reader = _Reader(key)
    if reader.number(">h") != KEY_VERSION:
        return None
    return reader.text(reader.number(">h"))


def encode_value(entry: TransactionLogEntry, value_version: int) -> bytes | None:
    """The record's value; None, a tombstone, where the id is dead. Version 0 has no tagged fields."""
    if entry.state is TransactionState.DEAD:
        return None
    flexible = value_version >= 1
    parts = [
        struct.pack(
            ">hqhib",
            value_version,
            entry.producer_id,
            entry.epoch,
            entry.timeout_ms,
            STATE_IDS[entry.state],
        ),
        _encode_partitions(entry, flexible),
        struct.pack(">qq", entry.last_update_ms, entry.start_ms),
    ]
    if flexible:
        tags = [
            (tag, struct.pack(form, getattr(entry, name)))
            for tag, (name, form, default) in _TAGS.items()
            if getattr(entry, name) != default
        ]
        parts.append(_varint(len(tags)))
        parts += [_varint(tag) + _varint(len(data)) + data for tag, data in tags]
    return b"".join(parts)


def decode_value(value: bytes) -> TransactionLogEntry:
    """The entry of a value that is not a tombstone; CorruptBatch, UnsupportedVersion."""
    reader = _Reader(value)
    version = reader.number(">h")
    if not 0 <= version <= 1:
        raise UnsupportedVersion(
            "a record of the transaction log has a version that this broker does not support; nothing was "
            "changed; run a newer broker",
            {"value_version": version, "known_version": 1},
        )
    flexible = version >= 1
    fields: dict[str, int] = {
        "producer_id": reader.number(">q"),
        "epoch": reader.number(">h"),
        "timeout_ms": reader.number(">i"),
    }
    state = _STATES.get(reader.number(">b"))
    if state is None:
        raise CorruptBatch(
            "a record of the transaction log has a state that Kafka does not have", {"bytes": len(value)}
        )
    partitions = _decode_partitions(reader, flexible)
    fields["last_update_ms"] = reader.number(">q")
    fields["start_ms"] = reader.number(">q")
    if flexible:
        for tag, data in reader.tags():
            if tag in _TAGS:
                name, form, _ = _TAGS[tag]
                fields[name] = _Reader(data).number(form)
    return TransactionLogEntry(state=state, partitions=partitions, **fields)


def _encode_partitions(entry: TransactionLogEntry, flexible: bool) -> bytes:
    if entry.state is TransactionState.EMPTY:
        return b"\x00" if flexible else struct.pack(">i", -1)
    count: Callable[[int], bytes] = _compact_count if flexible else _INT32
    parts = []
    topics = by_topic(entry.partitions)
    parts.append(count(len(topics)))
    for topic, partitions in topics:
        name = topic.encode()
        parts.append(_compact_count(len(name)) if flexible else struct.pack(">h", len(name)))
        parts.append(name)
        parts.append(count(len(partitions)))
        parts.append(struct.pack(f">{len(partitions)}i", *partitions))
        if flexible:
            parts.append(b"\x00")
    return b"".join(parts)


def _decode_partitions(reader: _Reader, flexible: bool) -> frozenset[TopicPartition]:
    def count() -> int:
        return reader.varint() - 1 if flexible else reader.number(">i")

    found = []
    for _ in range(count()):
        topic = reader.text(reader.varint() - 1 if flexible else reader.number(">h"))
        found += [TopicPartition(topic, reader.number(">i")) for _ in range(count())]
        if flexible:
            reader.tags()
    return frozenset(found)


def _compact_count(number: int) -> bytes:
    return _varint(number + 1)


_INT32 = struct.Struct(">i").pack


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Reader:
    """Decodes a record from front to back; CorruptBatch where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self._next(struct.calcsize(form)))[0])

    def text(self, size: int) -> str:
        try:
            return self._next(size).decode()
        except UnicodeDecodeError:
            raise CorruptBatch("a name in the transaction log is not UTF-8", {"at": self._at}) from None

    def varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._next(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise CorruptBatch("a number in the transaction log has more than five bytes", {"at": self._at})

    def tags(self) -> list[tuple[int, bytes]]:
        # Strictly in sequence: the tag is read before its size, the size before its data.
        found = []
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found.append((tag, self._next(size)))
        return found

    def _next(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise CorruptBatch(
                "a record of the transaction log ends too early",
                {"bytes": len(self._data), "at": self._at, "wanted": size},
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
