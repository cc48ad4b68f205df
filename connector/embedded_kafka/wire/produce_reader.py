"""Reads a Produce request without a copy of its records.

Owns: the position of the records in the frame.
Does not know: their content, their writer.
Invariants:
- The result equals the library's reading of the same frame (a test compares them for every version), with
  memoryviews of the frame as records.
- An array is counted while it is read, so millions of tiny elements cost nothing.

The library copies the records out of the frame, and reads a whole array before its elements can be counted.
"""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest

from kafka_core.protocol.frames import MalformedRequest, RequestHeader, judge_count, skip_tags, varint
from kafka_core.protocol.messages import Message

_Topic = ProduceRequest.TopicProduceData
_Partition = _Topic.PartitionProduceData


def read_produce(header: RequestHeader, frame: memoryview) -> Message:
    """The request of a frame whose version names topics by name (3 to 12); MalformedRequest."""
    reader = _Reader(frame, header.body_at, ProduceRequest.flexible_version_q(header.api_version))
    try:
        transactional_id = reader.text()
        acks, timeout_ms = reader.integer(2), reader.integer(4)
        topics = []
        elements = 0
        for _ in range(reader.size(4, "topics")):
            name = reader.text()
            if name is None:
                raise ValueError("a topic's name is null")
            partitions = []
            for _ in range(reader.size(4, "partitions")):
                partitions.append(_Partition(index=reader.integer(4), records=reader.records()))
                reader.end_struct()
                elements += 1
                judge_count(elements, header)
            topics.append(_Topic(name=name, partition_data=partitions))
            reader.end_struct()
            elements += 1
            judge_count(elements, header)
        reader.end_struct()
    except (IndexError, ValueError) as error:
        raise MalformedRequest(
            f"a request cannot be read: {error}",
            {"api_key": header.api_key, "api_version": header.api_version},
        ) from error
    return ProduceRequest(
        version=header.api_version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=topics,
    )


class _Reader:
    """A position in a frame. Raises ValueError or IndexError where the frame ends too early."""

    def __init__(self, frame: memoryview, at: int, flexible: bool) -> None:
        self._frame = frame
        self._at = at
        self._flexible = flexible

    def integer(self, size: int) -> int:
        return int.from_bytes(self._next(size), "big", signed=True)

    def text(self) -> str | None:
        size = self._size(2)
        return None if size < 0 else str(self._next(size), "utf-8")

    def records(self) -> memoryview | None:
        size = self._size(4)
        return None if size < 0 else self._next(size)

    def size(self, fixed: int, what: str) -> int:
        size = self._size(fixed)
        if size < 0:
            raise ValueError(f"{what} are null")
        return size

    def end_struct(self) -> None:
        if self._flexible:
            self._at = skip_tags(self._frame, self._at)

    def _size(self, fixed: int) -> int:
        if self._flexible:
            size, self._at = varint(self._frame, self._at)
            return size - 1
        return self.integer(fixed)

    def _next(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._frame):
            raise ValueError("it is shorter than its length fields require")
        taken = self._frame[self._at : end]
        self._at = end
        return taken
