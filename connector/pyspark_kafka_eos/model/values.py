"""Small values: partitions, identities, secrets, how to reach a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEAST_DEAD_LETTER_BYTES = 16 * 1024
"""What dead.letter.topic must take in one record: the reasons (at most 4 KB) and enough of the row to identify it. Half
would cut keys that Kafka's own tools still show; double would needlessly refuse topics for small messages.
"""


class Secret:
    """A password. str, repr and format do not reveal it. It is not a str, so code that joins, encodes or writes text
    cannot take it by accident. Equal and hashable by its text, and pickled with it, because executors need it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the code that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "'********'"

    __str__ = __repr__

    def __format__(self, _format: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        # A reference is equal to no password of the same characters.
        return isinstance(other, Secret) and type(other) is type(self) and self._text == other._text

    def __hash__(self) -> int:
        return hash((type(self), self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[Any, ...]]:
        return Secret, (self._text,)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Options are validated with pydantic, on the driver: an instance passes as it is, and is dumped as
        asterisks.
        """
        from pydantic_core import core_schema

        shown = core_schema.plain_serializer_function_ser_schema(str)
        return core_schema.is_instance_schema(cls, serialization=shown)


class SecretReference(Secret):
    """Where a secret is: a variable of the environment, or a file of the process that connects. Its text is not in
    here, so it is in no pickle, and `pyspark_kafka_eos.client.net.credentials.secrets` reads it anew at each
    connection.

    `source`: "env" or "file"; `name`: the variable, or the file's path; `key`: the line of a properties file, None for
    the whole file.
    """

    __slots__ = ("key", "name", "source")

    def __init__(self, source: str, name: str, key: str | None = None) -> None:
        super().__init__("${" + ":".join(filter(None, (source, name, key))) + "}")
        self.source, self.name, self.key = source, name, key

    def __repr__(self) -> str:
        return repr(self._text)

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[Secret], tuple[Any, ...]]:
        return SecretReference, (self.source, self.name, self.key)


@dataclass(frozen=True)
class ClientSettings:
    """How to reach a Kafka cluster: hashable and picklable, so it is also the key of a process's connection cache.

    `security` holds the TLS and SASL settings, translated from the Java names to those that the client reads, as
    sorted (name, value) pairs. Times in milliseconds.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str = "kafka-eos"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    security: tuple[tuple[str, str | bool | Secret | None], ...] = ()
