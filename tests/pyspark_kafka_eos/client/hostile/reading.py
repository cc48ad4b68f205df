"""An answer as the client reads it when it arrives, without a socket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_core.compression import MAX_UNPACKED_BYTES
from pyspark_kafka_eos.client.wire.conversation import Conversation as Talk
from pyspark_kafka_eos.client.wire.conversation import Unanswered
from pyspark_kafka_eos.records import decode_many, see
from tests.pyspark_kafka_eos.client.client_tools import fed
from tests.pyspark_kafka_eos.client.hostile.mutations import FETCH
from tests.pyspark_kafka_eos.client.hostile.recording import response_class

CORRELATION_ID = 7


def talk_about(api: int, version: int) -> Talk:
    """A connection's conversation with one request unanswered."""
    talk = Talk("t")
    talk.unanswered.append(Unanswered(api, CORRELATION_ID, response_class(api)[version], None))
    return talk


def framed(body: bytes) -> bytes:
    """An answer to that request, as it is sent."""
    return (4 + len(body)).to_bytes(4, "big") + CORRELATION_ID.to_bytes(4, "big") + body


def read_answer(api: int, version: int, pieces: Iterable[bytes], max_bytes: int = MAX_UNPACKED_BYTES) -> str:
    """Whether an answer that arrives in these pieces is read, with the records of a Fetch, or is not all there. Raises
    what the client's reading raises.
    """
    talk = talk_about(api, version)
    answers: list[tuple[Unanswered, Any]] = []
    for piece in pieces:
        answers += fed(talk, piece)
    for _, answer in answers if api == FETCH else ():
        for topic in answer.responses:
            for part in topic.partitions:
                decode_many(see(part.records or b"", 0, 100, (), committed=True).batches, max_bytes=max_bytes)
    return "read" if answers else "incomplete"
