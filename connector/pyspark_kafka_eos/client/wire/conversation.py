"""The bytes of one connection, without a socket: requests in, bytes out; bytes in, answers out.

Owns: correlation ids, which requests are unanswered and in which order, the memory into which answers are received.
Does not know: sockets, clocks, what is done with an answer.
Invariants:
- Answers come in the order of their requests (Kafka's protocol guide, "Network"): what is no answer to the oldest one
  ends the conversation with `BadAnswer`.
- Memory of its own is taken for an answer only when `_SCRATCH_BYTES` of it are here, never for a length alone, and
  never for an answer that no request asked for.
- An answer keeps no view of the scratch, which the next bytes overwrite.

A large answer is received where it stays: 1 GB that is fetched costs no copy between the socket and the reader of its
records but the first 64 KB of each answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from kafka_core.protocol.messages import Message
from pyspark_kafka_eos.client.wire.answer_frames import IN_PLACE_BYTES, BadAnswer, check_length, read_answer
from pyspark_kafka_eos.client.wire.produce import SingleBatchProduce

Piece = bytes | bytearray | memoryview

_SCRATCH_BYTES = IN_PLACE_BYTES
"""Of small answers, and of the beginning of a large one. An answer that fits has only records that are copied out of
it. Half takes a second look for many answers that came together; double only keeps more memory for each connection.
"""

_LENGTH_BYTES = 4
_IDS = 2**31


class Unanswered:
    """A request on its way. `asked_for`: what the owner of the conversation keeps with it."""

    __slots__ = ("api_key", "asked_for", "correlation_id", "response")

    def __init__(self, api_key: int, correlation_id: int, response: Any, asked_for: Any) -> None:
        self.api_key = api_key
        self.correlation_id = correlation_id
        self.response = response
        self.asked_for = asked_for


class Conversation:
    """Both directions of one connection. After `BadAnswer` it is over."""

    def __init__(self, client_id: str) -> None:
        self.unanswered: deque[Unanswered] = deque()
        self._client_id = client_id
        self._last_id = 0
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._own: memoryview | None = None
        """The frame of a large answer that has begun; `_filled` counts its bytes then."""

    # ---- out

    def encode(self, request: Message, asked_for: Any = None) -> tuple[Piece, ...]:
        """The bytes of a request, which is unanswered from now on. Large records are among them without a copy."""
        self._last_id = correlation_id = (self._last_id + 1) % _IDS
        request.with_header(correlation_id=correlation_id, client_id=self._client_id)
        if isinstance(request, SingleBatchProduce):
            request.keep_records_apart()
            pieces: tuple[Piece, ...] = (request.encode(header=True, framed=True), *request.take_rest())
        else:
            pieces = (request.encode(header=True, framed=True),)
        response = request.header.get_response_class()
        self.unanswered.append(Unanswered(request.API_KEY, correlation_id, response, asked_for))
        return pieces

    # ---- in

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return (self._scratch if self._own is None else self._own)[self._filled :]

    def took(self, count: int) -> Iterator[tuple[Unanswered, Any]]:
        """The answers that are complete with `count` more bytes in `room()`; BadAnswer behind the last good one. Must
        be read to its end before `room` is asked again.
        """
        self._filled += count
        if self._own is None:
            yield from self._in_scratch()
        elif self._filled == len(self._own):
            frame, self._own, self._filled = self._own, None, 0
            yield self._answer_in(frame)

    def _in_scratch(self) -> Iterator[tuple[Unanswered, Any]]:
        scratch, filled, at = self._scratch, self._filled, 0
        while filled - at >= _LENGTH_BYTES:
            begins = at + _LENGTH_BYTES
            length = int.from_bytes(scratch[at:begins], "big", signed=True)
            if not self.unanswered:
                raise BadAnswer("the broker sent an answer to no request")
            check_length(self.unanswered[0].api_key, length)
            if filled - begins < length:
                break
            at = begins + length
            yield self._answer_in(scratch[begins:at])
        self._filled = left = filled - at
        if at and left:
            scratch[:left] = scratch[at:filled]
        if left == _SCRATCH_BYTES:
            # Not a bytearray: that would be filled with zeros first. No memory is kept from answer to answer: the
            # allocator does that as well (measured with 8 MB).
            length = int.from_bytes(scratch[:_LENGTH_BYTES], "big")
            self._own = np.empty(length, dtype=np.uint8).data
            self._filled = left - _LENGTH_BYTES
            self._own[: self._filled] = scratch[_LENGTH_BYTES:]

    def _answer_in(self, frame: memoryview) -> tuple[Unanswered, Any]:
        asked = self.unanswered[0]
        answer = read_answer(asked.api_key, asked.response, asked.correlation_id, frame)
        # Only now: a request whose answer cannot be read is unanswered.
        self.unanswered.popleft()
        return asked, answer
