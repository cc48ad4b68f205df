"""Reused memory for large requests: a fresh buffer of 1 MB costs as much as receiving the request into it.

Owns: the spare buffers, and their limit.
Invariants:
- A buffer with a live view is never reused.
- Spare buffers take at most `SPARE_BYTES`, for any number of clients.
"""

from __future__ import annotations

SMALLEST_BYTES = 128 * 1024
"""Sizes are powers of two from here on, so that the next request fits into the last one's buffer."""
LARGEST_BYTES = 2 * 1024 * 1024
"""Larger buffers are rare and go back to the operating system. Requests with 1 MB of records need this size."""
SPARE_BYTES = 16 * 1024 * 1024
"""Enough for eight producers that send at the same time."""


class ReceiveBuffers:
    """The receive buffers of all connections of one broker."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0

    def take(self, size: int) -> memoryview:
        """Room for that many bytes, `LARGEST_BYTES` at most. It may contain bytes of an earlier request."""
        wanted = max(SMALLEST_BYTES, 1 << (size - 1).bit_length())
        spare = self._spare.get(wanted)
        if not spare:
            return memoryview(bytearray(wanted))[:size]
        self._spare_bytes -= wanted
        return memoryview(spare.pop())[:size]

    def give_back(self, view: memoryview) -> None:
        """The request in it has been answered. Views of memory that did not come from `take` are ignored."""
        buffer = view.obj
        if not isinstance(buffer, bytearray) or not SMALLEST_BYTES <= len(buffer) <= LARGEST_BYTES:
            return
        if self._spare_bytes + len(buffer) > SPARE_BYTES or not _is_released(view, buffer):
            return
        self._spare.setdefault(len(buffer), []).append(buffer)
        self._spare_bytes += len(buffer)


def _is_released(view: memoryview, buffer: bytearray) -> bool:
    """Whether the buffer has no view left. Python refuses to resize a buffer that has one, which is the test."""
    try:
        view.release()
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
