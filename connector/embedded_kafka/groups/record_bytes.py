"""The bytes of records of `__consumer_offsets`: strings, arrays and tags of Kafka's two forms, plain and flexible.

Owns: how a value is written and read, and the refusal of what cannot be.
Does not know: which record has which fields.
Invariants: a garbled record raises CorruptBatch, a newer one UnsupportedVersion; no part of either is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from embedded_kafka.refusals import Refused
from kafka_core.errors import CorruptBatch, UnsupportedVersion
from kafka_core.protocol.error_codes import Code

T = TypeVar("T")

MAX_TEXT_BYTES = 32_767
"""The plain form stores a text's length as a signed 16-bit number."""
NO_TAGS = b"\x00"


def text(value: str | None) -> bytes:
    """A string of the plain form."""
    if value is None:
        return b"\xff\xff"
    encoded = _encoded(value)
    return struct.pack(">h", len(encoded)) + encoded


def blob(data: bytes) -> bytes:
    """Bytes of the plain form."""
    return struct.pack(">i", len(data)) + data


def varint(number: int) -> bytes:
    """An unsigned number of the flexible form."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def compact_text(value: str | None) -> bytes:
    """A string of the flexible form."""
    if value is None:
        return b"\x00"
    encoded = _encoded(value)
    return varint(len(encoded) + 1) + encoded


def compact_array(items: Sequence[bytes]) -> bytes:
    """An array of the flexible form, of what is encoded already."""
    return varint(len(items) + 1) + b"".join(items)


def _encoded(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > MAX_TEXT_BYTES:
        raise Refused(Code.INVALID_REQUEST, f"a string of {len(encoded)} bytes does not fit into Kafka's record")
    return encoded


class Reader:
    """Reads a record's key or value from its start; CorruptBatch where it ends too early or is malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._flexible = False

    def version(self, what: str, *, highest: int, first_flexible: int) -> int:
        """The value's version, by which the rest is read; UnsupportedVersion for one above `highest`."""
        version = self.number(">h")
        if not 0 <= version <= highest:
            raise UnsupportedVersion(
                f"{what} in __consumer_offsets has a version that this broker does not support; nothing of "
                "it was used; run the Kafka that wrote it",
                {"version": version, "highest_known": highest},
            )
        self._flexible = version >= first_flexible
        return version

    def number(self, form: str) -> int:
        """A number of `struct`'s form."""
        return int(struct.unpack(form, self.exactly(struct.calcsize(form)))[0])

    def count(self) -> int:
        """How many elements an array has, or how many bytes."""
        return self._varint() - 1 if self._flexible else self.number(">i")

    def array(self, item: Callable[[], T]) -> list[T]:
        """An array of what `item` reads."""
        return [item() for _ in range(self.count())]

    def text(self) -> str:
        """A string that must not be null."""
        found = self.nullable_text()
        if found is None:
            raise self._corrupt("a required string is null")
        return found

    def nullable_text(self) -> str | None:
        """A string that may be null."""
        size = self._varint() - 1 if self._flexible else self.number(">h")
        if size == -1:
            return None
        try:
            return self.exactly(size).decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("a string is not UTF-8") from error

    def blob(self) -> bytes:
        """Bytes."""
        return self.exactly(self.count())

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a struct, by their numbers; none in the plain form."""
        found: dict[int, bytes] = {}
        for _ in range(self._varint() if self._flexible else 0):
            number = self._varint()
            found[number] = self.exactly(self._varint())
        return found

    def inner(self, data: bytes) -> Reader:
        """A reader of bytes within this value, in the same form."""
        reader = Reader(data)
        reader._flexible = self._flexible
        return reader

    def exactly(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self._corrupt("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.exactly(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._corrupt("a varint has more than five bytes")

    def _corrupt(self, why: str) -> CorruptBatch:
        return CorruptBatch(
            f"a record of __consumer_offsets cannot be read: {why}",
            {"at_byte": self._at, "bytes": len(self._data)},
        )
