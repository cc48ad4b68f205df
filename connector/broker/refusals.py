"""What the broker answers where it does not do what it was asked.

Owns: the one exception that carries a Kafka error code to an answer.
Does not know: which API's answer it becomes.
Invariants: it never leaves the broker; nothing has changed where it is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connector.protocol.error_codes import Code


class Refused(Exception):
    """A request, or one partition of it, is refused with `code`; nothing of it was done."""

    def __init__(self, code: Code, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


@dataclass(frozen=True)
class RecordError:
    """Why one record keeps its batch from being written (KIP-467). `index`: its place in the batch, from 0."""

    index: int
    message: str


class RecordsRefused(Refused):
    """A batch is refused because of single records, which are named."""

    def __init__(self, code: Code, message: str, errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.errors = errors
