"""Guards a connection of kafka-python against answers that are none.

Owns: the longest pause that a broker may ask for.
Does not know: the form and the content of an answer (`protocol.answer_frames`), what a caller does with a failure.
Invariants: what is no answer to the oldest request ends the connection.

Without the guard one wrong byte can end the coroutine that reads a connection with an IndexError: the connection then
stays open, unread, and each request on it waits for its timeout.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark_kafka_eos.client.wire.answer_frames import Answers

_THROTTLED_AT_MOST_MS = 60_000
"""The longest pause that a broker may ask for (KIP-219). Kafka's quotas are kept over windows of 11 s. With half, a
broker with longer windows would be asked too early; without a limit one wrong number shuts a connection for 24 days.
"""


def guard(connection: Any) -> None:
    """Have a connection judge its answers. Call before it is connected; a second call changes nothing."""
    if getattr(connection.connection_made, "func", None) is _made:
        return
    connection.connection_made = functools.partial(_made, connection, connection.connection_made)
    connection._maybe_throttle = functools.partial(_throttle, connection._maybe_throttle)


def _made(connection: Any, made: Any, transport: Any) -> None:
    made(transport)
    connection.parser = Answers(
        client_id=connection.config["client_id"],
        receive_message_max_bytes=connection.config["receive_message_max_bytes"],
        ident=connection.parser._ident,
    )


def _throttle(throttle: Any, response: Any) -> None:
    asked_ms = getattr(response, "throttle_time_ms", 0) or 0
    if asked_ms > _THROTTLED_AT_MOST_MS:
        response.throttle_time_ms = _THROTTLED_AT_MOST_MS
    throttle(response)
