"""A block of producer ids, the block that follows it, and its JSON.

Owns: the arithmetic of blocks and Kafka's format for the latest one.
Does not know: where the JSON is kept, which other brokers claim blocks.
Invariants:
- A block lies within 0 and 2^63 - 1.
- The next block starts where the latest one ends.
- JSON that cannot be read in full is rejected.
Sources: the idempotent producer's section 5.1.2 (server PID management); Kafka 3.9, ProducerIdBlockZNode.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kafka_core.errors import GarbledBlock, ProducerIdsExhausted

BLOCK_SIZE = 1000
"""Kafka's. Half only claims twice as often; more wastes more, as a restart discards the rest of a block."""

MAX_PRODUCER_ID = 2**63 - 1
FORMAT_VERSION = 1

# Kafka writes under 110 bytes. Anything larger is not a block, and must not cost a parser memory and depth.
_MAX_BYTES = 1024
# A block's length is an int32 in Kafka, which refuses to read a longer one.
_MAX_SIZE = 2**31 - 1
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class Block:
    """The producer ids from `start` to `end`, both included."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= MAX_PRODUCER_ID:
            raise ValueError(f"not a block of producer ids: {self.start} to {self.end}")

    @property
    def size(self) -> int:
        """How many ids."""
        return self.end - self.start + 1


def next_block(latest: Block | None, size: int = BLOCK_SIZE) -> Block:
    """The `size` ids behind the latest block, or the first of all; ProducerIdsExhausted when fewer are left."""
    if not 1 <= size <= _MAX_SIZE:
        raise ValueError(f"a block of producer ids has 1 to {_MAX_SIZE} ids, not {size}")
    if latest is None:
        return Block(0, size - 1)
    if latest.end > MAX_PRODUCER_ID - size:
        raise ProducerIdsExhausted("Have exhausted all producerIds.", {"block_end": latest.end, "block_size": size})
    return Block(latest.end + 1, latest.end + size)


def later(first: Block | None, second: Block | None) -> Block | None:
    """The one that ends later; None when there is neither."""
    if first is None or second is None:
        return first or second
    return first if first.end > second.end else second


def encode(block: Block, broker_id: int) -> bytes:
    """The JSON in which Kafka keeps the latest block, byte for byte."""
    fields = {
        "version": FORMAT_VERSION,
        "broker": broker_id,
        # Strings in Kafka too: 2^63 - 1 is more than a JSON number holds for certain.
        "block_start": str(block.start),
        "block_end": str(block.end),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(data: bytes, place: str = "") -> Block:
    """The latest block from its JSON, whichever broker claimed it. Raises GarbledBlock, which names the
    `place`, for anything that is not a block.

    Stricter than Kafka, which accepts any version, signs and leading zeros: a wrong guess here would hand out
    ids twice.
    """
    try:
        return _parsed(data)
    except GarbledBlock as error:
        raise GarbledBlock(error.message, {**error.facts, "place": place}) from error


def _parsed(data: bytes) -> Block:
    if len(data) > _MAX_BYTES:
        raise _garbled(data, f"{len(data)} bytes are too many")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _garbled(data, "it is not JSON") from error
    if not isinstance(fields, dict):
        raise _garbled(data, "it is not a JSON object")
    if fields.get("version") != FORMAT_VERSION or not _is_int(fields["version"]):
        raise _garbled(data, f"its version is not {FORMAT_VERSION}")
    # Which broker it was does not matter; Kafka's migration to KRaft writes -1.
    if not _is_int(fields.get("broker")):
        raise _garbled(data, "its broker is not an integer")
    start, end = _id(data, fields, "block_start"), _id(data, fields, "block_end")
    if not 0 <= end - start < _MAX_SIZE:
        raise _garbled(data, "it ends before it starts or is impossibly long")
    return Block(start, end)


def _id(data: bytes, fields: dict[str, object], name: str) -> int:
    text = fields.get(name)
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text) or int(text) > MAX_PRODUCER_ID:
        raise _garbled(data, f"{name} is not a string of digits within 0 and 2^63 - 1")
    return int(text)


def _is_int(value: object) -> bool:
    # In Python, true is an int.
    return isinstance(value, int) and not isinstance(value, bool)


def _garbled(data: bytes, why: str) -> GarbledBlock:
    return GarbledBlock(
        f"the latest block of producer ids cannot be read: {why}; no id was handed out and nothing was changed; "
        "restore it with a block_end that no broker has gone beyond, then restart this broker",
        {"content": data[:120].decode("utf-8", "replace")},
    )
