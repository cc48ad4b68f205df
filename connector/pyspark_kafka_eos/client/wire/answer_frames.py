"""Reads the answers of one connection out of its bytes: kafka-python's parser, with frames that are judged.

Owns: the largest frame of each API, the way from a frame to its answer.
Does not know: sockets, the form of an answer (`answers` judges it), what a caller does with a failure.
Invariants:
- A frame that is no answer to the oldest request raises a `KafkaProtocolError` that names the request, and nothing
  else.
- No frame is made room for that no request asked for, or that is larger than its API's answers can be.
- Bytes of an answer are never logged.
- Records of a Fetch that are large are views of their frame, which lives as long as a view of it does.
"""

from __future__ import annotations

import functools
import io
import types
from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.parser import KafkaProtocol

from kafka_core.protocol.messages import ApiVersionsRequest, FetchRequest, SaslHandshakeRequest, api_name
from pyspark_kafka_eos.client.wire.answers import header_end, judge

_MB = 1024 * 1024

_SASL_AUTHENTICATE = 36
_LENGTH_BYTES = 4

_LOGIN_BYTES = 1 * _MB
"""Largest answer before a login has succeeded, when nothing is known of the peer. The versions of all APIs are 1 KB,
and tokens of Kerberos stay below 64 KB. Half would do; double lets a stranger take more.
"""

_OTHER_BYTES = 64 * _MB
"""Largest answer that holds no records: the metadata of a million partitions. Half rejects a list of all transactions
of a large cluster; double is the limit of a Fetch.
"""

_LARGEST_BYTES = {
    ApiVersionsRequest.API_KEY: _LOGIN_BYTES,
    SaslHandshakeRequest.API_KEY: _LOGIN_BYTES,
    _SASL_AUTHENTICATE: _LOGIN_BYTES,
}


_IN_PLACE_BYTES = 64 * 1024
"""Records of at least this size stay in their frame. A view keeps the whole frame, so small ones are copied out of it.
With half, or double, few answers of a Fetch would change their side: they are nearly empty or megabytes.
"""


class Answers(KafkaProtocol):  # type: ignore[misc]
    """The library's parser of one connection, with judged frames."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._arrived = bytearray()

    def receive_bytes(self, data: bytes | memoryview) -> list[tuple[int, Any]]:
        """The answers that these bytes complete. Memory is taken for bytes that are here, not for a length that they
        claim.
        """
        arrived, at = self._arrived, 0
        arrived += data
        answers = []
        while len(arrived) - at >= _LENGTH_BYTES:
            begins = at + _LENGTH_BYTES
            size = int.from_bytes(arrived[at:begins], "big", signed=True)
            self._validate_frame_size(size)
            if len(arrived) - begins < size:
                break
            at = begins + size
            answers.append(self._process_response(arrived[begins:at]))
        del arrived[:at]
        # `fast_socket` takes a connection over between two answers only.
        self._receiving = bool(arrived)
        return answers

    def _validate_frame_size(self, nbytes: int) -> None:
        if not self.in_flight_requests:
            raise kafka_errors.CorrelationIdError("the broker sent an answer to no request")
        header = self.in_flight_requests[0]
        largest = min(self._max_frame_size, _largest_of(header))
        if not 0 <= nbytes <= largest:
            raise kafka_errors.InvalidReceiveError(
                f"Invalid frame length: {nbytes}; the answer to {_name_of(header)} has at most {largest} bytes"
            )

    def _process_response(self, read_buffer: Any) -> tuple[int, Any]:
        if not self.in_flight_requests:
            raise kafka_errors.CorrelationIdError("the broker sent an answer to no request")
        header = self.in_flight_requests.popleft()
        try:
            return self._answer(header, read_buffer)
        except kafka_errors.KafkaProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 -- the library's decoder raises whatever the bytes lead it to
            raise kafka_errors.KafkaProtocolError(
                f"the answer to {_name_of(header)} cannot be read: {type(error).__name__}: {error}"
            ) from None

    def _answer(self, header: Any, read_buffer: Any) -> tuple[int, Any]:
        response: Any = header.get_response_class()
        if not hasattr(response, "flexible_version_q"):
            # The bytes of a login without a frame of Kafka's around them (SaslHandshake version 0).
            raw = io.BytesIO(read_buffer) if isinstance(read_buffer, bytearray) else read_buffer
            return header.correlation_id, response.decode(raw)
        frame = memoryview(read_buffer) if isinstance(read_buffer, bytearray) else read_buffer.read()
        version: int = response._class_version
        api_versions = response.API_KEY == ApiVersionsRequest.API_KEY
        # The header of ApiVersions has no tagged fields in any version, so that older clients can read it (KIP-511).
        flexible = response.flexible_version_q(version) and not api_versions
        at = header_end(frame, flexible)
        received = int.from_bytes(frame[:4], "big", signed=True)
        if received != header.correlation_id:
            raise kafka_errors.CorrelationIdError(
                f"Correlation IDs do not match: sent {header.correlation_id}, received {received}"
            )
        if api_versions and bytes(frame[at : at + 2]) != b"\0\0":
            # A refusal is in version 0 whatever version was asked for.
            response, version = response[0], 0
        judge(response, version, frame, at)
        if response.API_KEY == FetchRequest.API_KEY:
            answer, _ = _decoder_in_place(response, version)(frame, at)
            return received, answer
        return received, response.decode(frame[at:])


@functools.cache
def _decoder_in_place(response: Any, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    """The library's decoder of this answer, which leaves large records where they are.

    It is compiled Python that copies each field with `bytes`; this one finds another function under that name. The
    library's own stays as it is.
    """
    flexible = response.flexible_version_q(version)
    decoder = response._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response[None]
    )
    return types.FunctionType(decoder.__code__, {**decoder.__globals__, "bytes": _copy_or_keep})


def _copy_or_keep(field: memoryview) -> bytes | memoryview:
    return field if len(field) >= _IN_PLACE_BYTES else bytes(field)


def _key_of(header: Any) -> int | None:
    key = getattr(header, "request_api_key", None)
    return key if key is not None else getattr(header, "api_key", None)


def _largest_of(header: Any) -> int:
    key = _key_of(header)
    if key is None:
        return _LOGIN_BYTES
    if key == FetchRequest.API_KEY:
        return 2**31 - 1
    return _LARGEST_BYTES.get(key, _OTHER_BYTES)


def _name_of(header: Any) -> str:
    key = _key_of(header)
    return "the login" if key is None else api_name(key)
