"""The refusal of a request, or of a part of it, and the exception that closes a connection.

Owns: the one exception that carries a Kafka error code to an answer.
Does not know: which API's answer carries the code.
Invariants:
- Neither exception leaves the broker.
- Where `Refused` is raised, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_core.protocol.error_codes import Code


class Refused(Exception):
    """The broker refuses a request, or one partition of it, with `code`, and has changed nothing for it."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


@dataclass(frozen=True)
class RecordError:
    """Why one record makes the broker reject its batch (KIP-467). `index`: its place in the batch, from 0."""

    index: int
    message: str


class RecordsRefused(Refused):
    """A batch is refused because of single records, listed in `errors`."""

    def __init__(self, code: Code, message: str, errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.errors = errors


class Disconnect(Exception):
    """The connection is to be closed; `last_bytes` go out before that."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        self.reason = reason
        self.last_bytes = last_bytes
        super().__init__(reason, last_bytes)
