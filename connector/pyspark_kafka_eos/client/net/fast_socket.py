"""Reads large answers from the socket without a copy, where kafka-python makes six and reads 4 KB at a time.

Owns: the bytes of one connection between the socket and the library's decoder.
Does not know: the content of an answer.
Invariants:
- The decoder receives the same bytes as from the library's own reader.
- Everything happens on the loop's thread.
- Each answer has memory of its own, because the records in it stay where they are (`answer_frames`).

Measured: the library's reader costs 3.5 CPU s per GB fetched, nearly all of it copying; this one a third, and 0.1 s
less since the decoder leaves the records in place.
"""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
import numpy as np

from pyspark_kafka_eos.client.net.transport import PlainTransport

_SCRATCH_BYTES = 64 * 1024
"""For lengths and small answers; larger ones are read straight into their frames."""

_LENGTH_BYTES = 4


def receive_large(connection: Any) -> None:
    """Switch a connection to this reader. Does nothing where the connection already has it, is not connected
    yet, is in the middle of an answer, or uses TLS (whose library needs its own buffers). Call on the loop's
    thread."""
    parser, transport = connection.parser, connection.transport
    if parser is None or transport is None or isinstance(getattr(parser, "receiver", None), _Receiver):
        return
    if type(transport) is not PlainTransport or parser._receiving or parser._header.tell() != 0:
        return
    parser.receiver = _Receiver(parser, transport)
    transport._sock_recv = parser.receiver.read_socket  # type: ignore[method-assign]
    parser.receive_bytes = parser.receiver.receive_bytes


class _Frame:
    """An answer without its length, as the decoder reads it: the head in small pieces, the rest at once."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, size: int | None = None) -> memoryview | bytes:
        """The next `size` bytes; with None, everything left, without a copy."""
        start = self._at
        if size is None:
            self._at = len(self._view)
            return self._view[start:]
        self._at = min(start + size, len(self._view))
        return bytes(self._view[start : self._at])

    def seek(self, at: int) -> None:
        """Move to a position."""
        self._at = at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at


class _Receiver:
    """The reading half of one connection."""

    def __init__(self, parser: Any, transport: Any) -> None:
        self._parser = parser
        self._transport = transport
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._length = bytearray()
        self._frame: memoryview | None = None
        self._filled = 0
        self._direct = False

    def read_socket(self) -> tuple[memoryview | bytes, Exception | None]:
        """Read what the socket has: into the frame that has begun, or else into the scratch."""
        self._direct = self._frame is not None
        target = self._scratch if self._frame is None else self._frame[self._filled :]
        got = 0
        socket = self._transport._sock
        if socket is None:  # closed between the loop's look at it and this call
            return b"", kafka_errors.KafkaConnectionError("connection closed")
        try:
            while got < len(target):
                count = socket.recv_into(target[got:])
                if count == 0:
                    return target[:got], kafka_errors.KafkaConnectionError("socket disconnected")
                got += count
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            return target[:got], kafka_errors.KafkaConnectionError(error)
        return target[:got], None

    def receive_bytes(self, data: memoryview | bytes) -> list[Any]:
        """The answers completed by these bytes, which `read_socket` has returned."""
        answers: list[Any] = []
        if self._direct:
            self._filled += len(data)
            self._take_frame(answers)
            return answers
        at = 0
        while at < len(data):
            if self._frame is None:
                at = self._take_length(data, at)
            else:
                count = min(len(self._frame) - self._filled, len(data) - at)
                self._frame[self._filled : self._filled + count] = data[at : at + count]
                self._filled += count
                at += count
            self._take_frame(answers)
        return answers

    def _take_length(self, data: memoryview | bytes, at: int) -> int:
        count = min(_LENGTH_BYTES - len(self._length), len(data) - at)
        self._length += data[at : at + count]
        if len(self._length) == _LENGTH_BYTES:
            size = int.from_bytes(self._length, "big", signed=True)
            self._length.clear()
            self._parser._validate_frame_size(size)
            self._frame, self._filled = _pages(size), 0
        return at + count

    def _take_frame(self, answers: list[Any]) -> None:
        if self._frame is not None and self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            answers.append(self._parser._process_response(_Frame(frame)))


def _pages(size: int) -> memoryview:
    # Not a bytearray: that would be filled with zeros first. No memory is kept from answer to answer: the allocator
    # does that as well (measured with 8 MB).
    return np.empty(size, dtype=np.uint8).data
