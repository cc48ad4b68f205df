"""Judges the bytes of a broker's answer before kafka-python's decoder gets them.

Owns: the limits on what one answer may hold, strict checks of lengths, counts and nulls against Kafka's schemas.
Does not know: sockets, the content of records, the meaning of an answer.
Invariants:
- An answer that `judge` accepts is decoded in a time and a memory that its frame bounds.
- Nothing is allocated for a count before the bytes of that many elements are there.

The library's decoder trusts lengths and counts: a text that is longer than the frame is cut without an error, a varint
may have as many bytes as the frame, a field that must not be null is None, and 128 MB of empty elements become some 10
GB.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_core.protocol.frames import skip_tags, varint

DECODED_AT_MOST_BYTES: Final = 256 * 1024 * 1024
"""The most memory that a decoded answer may take, by the estimates below: the metadata of some 300,000 partitions. Half
is near the largest clusters with ZooKeeper (200,000 partitions); double kills a worker of 512 MB.
"""

_COPIED_AT_MOST_BYTES: Final = 4 * 1024 * 1024 * 1024
"""The library copies the rest of the frame at each struct with tagged fields: so many bytes are about a second. A
quarter is near a Fetch of 8 MB in which 500 partitions name their new leader; four times is a loop that does nothing
else.
"""

_TAGS_AT_MOST: Final = 64
_STRUCT_BYTES, _SLOT_BYTES, _NUMBER_BYTES, _TEXT_BYTES, _ARRAY_BYTES = 80, 8, 32, 64, 64
"""What Python's objects take, about: a struct without fields, one field's place in it, a number, a text, a list."""

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


@dataclass
class _Walk:
    """One answer while it is judged. `room`: memory that is left; `copies`: bytes that the decoder may still copy."""

    frame: memoryview
    flexible: bool
    room: int = DECODED_AT_MOST_BYTES
    copies: int = _COPIED_AT_MOST_BYTES

    def size(self, at: int, end: int, short: bool, nullable: bool, what: str) -> tuple[int, int]:
        """A length or count, -1 for null, and where it ends."""
        if self.flexible:
            size, at = varint(self.frame, at)
            size -= 1
        else:
            layout = _SHORT if short else _INT
            (size,) = layout.unpack_from(self.frame, at)
            at += layout.size
        if size < -1 or size > end - at:
            raise ValueError(f"{what} has the length {size}, and {end - at} bytes are left")
        if size < 0 and not nullable:
            raise ValueError(f"{what} is null")
        return size, at

    def take_room(self, size: int) -> None:
        """Count memory that decoding takes."""
        self.room -= size
        if self.room < 0:
            raise ValueError(f"it would take more than {DECODED_AT_MOST_BYTES} bytes of memory")


@dataclass(frozen=True)
class _Fixed:
    """Numbers one after another. `least`: the fewest bytes on the wire; `cost`: what is decoded takes about."""

    least: int
    cost: int

    def walk(self, walk: _Walk, at: int, end: int) -> int:
        if at + self.least > end:
            raise ValueError(f"it ends at {end} inside a number")
        return at + self.least


@dataclass(frozen=True)
class _Bytes:
    """A text or bytes. `short`: its length has two bytes where lengths are no varints."""

    name: str
    short: bool
    nullable: bool
    least: int
    cost: int = _TEXT_BYTES

    def walk(self, walk: _Walk, at: int, end: int) -> int:
        size, at = walk.size(at, end, self.short, self.nullable, self.name)
        if size > 0:
            walk.take_room(size)
            at += size
        return at


@dataclass(frozen=True)
class _Array:
    name: str
    nullable: bool
    element: _Part
    least: int
    cost: int = _ARRAY_BYTES

    def walk(self, walk: _Walk, at: int, end: int) -> int:
        count, at = walk.size(at, end, False, self.nullable, self.name)
        if count <= 0:
            return at
        element = self.element
        if count * element.least > end - at:
            raise ValueError(f"{self.name} has {count} elements in {end - at} bytes")
        walk.take_room(count * (_SLOT_BYTES + element.cost))
        if isinstance(element, _Fixed):
            return at + count * element.least
        for _ in range(count):
            at = element.walk(walk, at, end)
        return at


@dataclass(frozen=True)
class _Struct:
    """`optional`: a byte before it tells whether it is null. `tags`: its known tagged fields, None where it has no
    place for any.
    """

    name: str
    parts: tuple[_Part, ...]
    tags: dict[int, _Part] | None
    optional: bool
    least: int
    cost: int = field(default=_STRUCT_BYTES)

    def walk(self, walk: _Walk, at: int, end: int) -> int:
        if self.optional:
            at += 1
            if walk.frame[at - 1] == 0xFF:
                return at
        for part in self.parts:
            at = part.walk(walk, at, end)
        return at if self.tags is None else self._walk_tags(walk, at, end, self.tags)

    def _walk_tags(self, walk: _Walk, at: int, end: int, known: dict[int, _Part]) -> int:
        began = at
        count, at = varint(walk.frame, at)
        if count == 0:
            return at
        if count > _TAGS_AT_MOST:
            raise ValueError(f"{self.name} has {count} tagged fields")
        walk.copies -= len(walk.frame) - began
        if walk.copies < 0:
            raise ValueError("too many of its structs have tagged fields")
        for _ in range(count):
            tag, at = varint(walk.frame, at)
            size, at = varint(walk.frame, at)
            behind = at + size
            if behind > end:
                raise ValueError(f"tagged field {tag} of {self.name} has the length {size}")
            walk.take_room(size + _TEXT_BYTES)
            if tag in known and known[tag].walk(walk, at, behind) != behind:
                raise ValueError(f"tagged field {tag} of {self.name} is longer than its content")
            at = behind
        return at


_Part = _Fixed | _Bytes | _Array | _Struct


def judge(response: Any, version: int, frame: memoryview, at: int) -> None:
    """Check an answer's body, which begins at `at`. `response`: its message class, as kafka-python has it.

    ValueError, IndexError or struct.error where it cannot be decoded as that version, or not within the limits. Bytes
    behind the answer are accepted, as in Kafka.
    """
    plan, flexible = _plan_of(response, version)
    end = plan.walk(_Walk(frame, flexible), at, len(frame))
    if end > len(frame):
        raise ValueError(f"it takes {end} bytes, and the frame has {len(frame)}")


def header_end(frame: memoryview, flexible: bool) -> int:
    """Where the header of an answer ends: behind the correlation id, and behind the tagged fields in the `flexible`
    form. ValueError, IndexError.
    """
    if len(frame) < _INT.size:
        raise ValueError(f"it has {len(frame)} bytes, fewer than its header")
    return skip_tags(frame, _INT.size) if flexible else _INT.size


@functools.lru_cache(maxsize=256)
def _plan_of(response: Any, version: int) -> tuple[_Struct, bool]:
    flexible = response.flexible_version_q(version)
    return _struct(response._struct, version, flexible, top=True), flexible


def _struct(described: Any, version: int, flexible: bool, *, top: bool = False) -> _Struct:
    parts: list[_Part] = []
    tags: dict[int, _Part] = {}
    for each in described.fields.values():
        if not each.for_version_q(version):
            continue
        part = _part(each, version, flexible)
        if each.tagged_field_q(version):
            tags[each.tag] = part
        elif isinstance(part, _Fixed) and parts and isinstance(parts[-1], _Fixed):
            parts[-1] = _Fixed(parts[-1].least + part.least, parts[-1].cost + part.cost)
        else:
            parts.append(part)
    optional = not top and described.nullable_for_version_q(version)
    least = sum(part.least for part in parts) + (1 if flexible else 0)
    return _Struct(
        described.name,
        tuple(parts),
        tags if flexible else None,
        optional,
        1 if optional else least,
        _STRUCT_BYTES + sum(_SLOT_BYTES + part.cost for part in parts),
    )


def _part(described: Any, version: int, flexible: bool) -> _Part:
    if described.is_array():
        element = _part(described.array_of, version, flexible)
        nullable = described.nullable_for_version_q(version)
        return _Array(described.name, nullable, element, 1 if flexible else 4)
    if described.is_struct():
        return _struct(described, version, flexible)
    codec = described._type
    if isinstance(codec.size, int):
        return _Fixed(codec.size, _NUMBER_BYTES)
    short = described.type_str == "string"
    nullable = described.nullable_for_version_q(version)
    return _Bytes(described.name, short, nullable, 1 if flexible else 2 if short else 4)
