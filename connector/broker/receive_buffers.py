"""Memory for large requests, used again: a fresh buffer of 1 MB costs as much as receiving the request into it.

Owns: what is spare, and the bound on it.
Invariants: a buffer that anybody still looks at is never handed out again; what is spare takes at most `SPARE_BYTES`, however
many clients there are.
"""

from __future__ import annotations

SMALLEST_BYTES = 128 * 1024
"""Sizes are powers of two from here on, so that the next request fits where the last one was."""
LARGEST_BYTES = 2 * 1024 * 1024
"""Larger ones are rare, and are given back to the operating system. Requests of 1 MB of records need this."""
SPARE_BYTES = 16 * 1024 * 1024
"""Enough for eight producers that send at the same time."""


class ReceiveBuffers:
    """Of all connections of one broker."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0

    def take(self, size: int) -> memoryview:
        """Room for that many bytes, `LARGEST_BYTES` at most. The bytes in it are those of an earlier request."""
        wanted = max(SMALLEST_BYTES, 1 << (size - 1).bit_length())
        spare = self._spare.get(wanted)
        if not spare:
            return memoryview(bytearray(wanted))[:size]
        self._spare_bytes -= wanted
        return memoryview(spare.pop())[:size]

    def give_back(self, view: memoryview) -> None:
        """The request in it has been answered. A view of memory that `take` did not give is left as it is."""
        buffer = view.obj
        if not isinstance(buffer, bytearray) or not SMALLEST_BYTES <= len(buffer) <= LARGEST_BYTES:
            return
        if self._spare_bytes + len(buffer) > SPARE_BYTES or not _is_released(view, buffer):
            return
        self._spare.setdefault(len(buffer), []).append(buffer)
        self._spare_bytes += len(buffer)


def _is_released(view: memoryview, buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: Python refuses to change the size of a buffer that has one."""
    try:
        view.release()
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
