"""One answer out of its frame: the judgement of the frame, then kafka-python's decoder of the message.

Owns: the largest frame of each API, the way from a frame to its answer.
Does not know: sockets, which request is the oldest (`conversation`), the form of an answer (`answers` judges it).
Invariants:
- A frame that is no answer to its request raises a `BadAnswer` that names the request, and nothing else.
- Bytes of an answer are in no message.
- Records of a Fetch that are large are views of their frame, which lives as long as a view of it does. Everything else
  is copied out of it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from kafka_core.protocol.error_codes import Code
from kafka_core.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    api_name,
)
from pyspark_kafka_eos.client.wire.answers import header_end, judge

_MB = 1024 * 1024

RECORDS_BYTES = 128 * _MB
"""Largest answer with records. Brokers send one batch whatever fetch.max.bytes is, and topics may allow tens of MB.
Half rejects such topics; double only matters for memory if a broker sends a wrong length.
"""

_LOGIN_BYTES = 1 * _MB
"""Largest answer before a login has succeeded, when nothing is known of the peer. The versions of all APIs are 1 KB,
and tokens of Kerberos stay below 64 KB. Half would do; double lets a stranger take more.
"""

_OTHER_BYTES = 64 * _MB
"""Largest answer that holds no records: the metadata of a million partitions. Half rejects a list of all transactions
of a large cluster; double is the limit of a Fetch.
"""

_LARGEST_BYTES = {
    FetchRequest.API_KEY: RECORDS_BYTES,
    ApiVersionsRequest.API_KEY: _LOGIN_BYTES,
    SaslHandshakeRequest.API_KEY: _LOGIN_BYTES,
    SaslAuthenticateRequest.API_KEY: _LOGIN_BYTES,
}

IN_PLACE_BYTES = 64 * 1024
"""Records of at least this size stay in their frame. A view keeps the whole frame, so small ones are copied out of it.
With half, or double, few answers of a Fetch would change their side: they are nearly empty or megabytes.
"""


class BadAnswer(Exception):
    """What a peer sent is no answer to the oldest request. Nothing behind it can be told apart from noise."""


def check_length(api_key: int, length: int) -> None:
    """BadAnswer where a frame of `length` bytes cannot be an answer of this API."""
    largest = _LARGEST_BYTES.get(api_key, _OTHER_BYTES)
    if not 0 <= length <= largest:
        raise BadAnswer(
            f"Invalid frame length: {length}; the answer to {api_name(api_key)} has at most {largest} bytes"
        )


def read_answer(api_key: int, response: Any, correlation_id: int, frame: memoryview) -> Any:
    """The answer in a frame. `response`: the message class in the version that was asked for. BadAnswer."""
    try:
        return _answer(response, correlation_id, frame)
    except BadAnswer:
        raise
    except Exception as error:  # noqa: BLE001 -- the library's decoder raises whatever the bytes lead it to
        raise BadAnswer(f"the answer to {api_name(api_key)} cannot be read: {type(error).__name__}: {error}") from None


def _answer(response: Any, correlation_id: int, frame: memoryview) -> Any:
    version: int = response._class_version
    api_versions = response.API_KEY == ApiVersionsRequest.API_KEY
    # The header of ApiVersions has no tagged fields in any version, so that older clients can read it (KIP-511).
    at = header_end(frame, response.flexible_version_q(version) and not api_versions)
    received = int.from_bytes(frame[:4], "big", signed=True)
    if received != correlation_id:
        raise BadAnswer(f"Correlation IDs do not match: sent {correlation_id}, received {received}")
    if api_versions and int.from_bytes(frame[at : at + 2], "big") == Code.UNSUPPORTED_VERSION:
        # This refusal is in version 0 whatever version was asked for (KIP-511).
        response, version = response[0], 0
    judge(response, version, frame, at)
    return _decoder(response, version)(frame, at)[0]


@functools.cache
def _decoder(response: Any, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    """The library's decoder of this answer, compiled Python. `decode` would read each refusal of ApiVersions as version
    0.

    That of a Fetch copies each field with `bytes`; here it finds another function under that name, which leaves large
    records where they are. The library's own stays as it is.
    """
    flexible = response.flexible_version_q(version)
    decoder = response._struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response[None]
    )
    if response.API_KEY != FetchRequest.API_KEY:
        return decoder  # type: ignore[no-any-return]
    return types.FunctionType(decoder.__code__, {**decoder.__globals__, "bytes": _copy_or_keep})


def _copy_or_keep(field: memoryview) -> bytes | memoryview:
    return field if len(field) >= IN_PLACE_BYTES else bytes(field)
