"""The options about writing, as tasks need them: one value, inherited by options and by a batch's plan.

Invariants:
- A field is defined here once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kafka_core.compression import CODES
from kafka_core.values import DEFAULT_UNPACKED_BYTES
from pyspark_kafka_eos.model import strict
from pyspark_kafka_eos.model.handed_over import HandedOver
from pyspark_kafka_eos.model.values import ClientSettings

_LEVELS = (-131_072, 22)
"""Of all codecs together; zstd's are the widest."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options on which it depends where a row goes and whether it is a dead letter: those of `WriteSettings` by the
    same names. A decision keeps them, because a replay has to do as was decided whatever the query's options are by
    then.
    """

    topic: str | None = None
    dead_letter_topic: str | None = None
    compression: str = "none"
    compression_level: int | None = None
    max_request_bytes: int | None = None
    max_unpacked_bytes: int = DEFAULT_UNPACKED_BYTES

    @staticmethod
    def from_settings(settings: WriteSettings) -> RowOptions:
        """Those of these settings."""
        return RowOptions(**{each.name: getattr(settings, each.name) for each in fields(RowOptions)})

    def by_name(self) -> dict[str, Any]:
        """Each option by its name, for another value that has them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_json(self) -> list[Any]:
        """In the order of the fields."""
        return list(self.by_name().values())

    @staticmethod
    def from_json(data: Any) -> RowOptions:
        """Read it back; one of `strict.MALFORMED` where it is none."""
        topic, dead, compression, level, request_bytes, unpacked_bytes = strict.several(data, 6)
        return RowOptions(
            None if topic is None else strict.topic(topic),
            None if dead is None else strict.topic(dead),
            strict.one_of(compression, CODES),
            None if level is None else strict.whole(level, *_LEVELS),
            None if request_bytes is None else strict.positive(request_bytes),
            strict.positive(unpacked_bytes),
        )


NO_ROW_OPTIONS = RowOptions()
"""Of a query that sets none of them."""


@dataclass(frozen=True, kw_only=True)
class WriteSettings(HandedOver):
    """How rows are written. A task option is a field here and a row in `pyspark_kafka_eos.options`.

    `topic`: where all rows go, None where each row names its own. `compression_level`: of the codec `compression`, by
    Kafka's numbers; None for its default. `max_request_bytes`: the largest record, None where only the topic limits it.
    `max_unpacked_bytes`: of a record that fits its topic only compressed. `guarantee`: "exactly-once", "at-least-once"
    (idempotent, without transactions), "none" (also without retries). `dead_letter_topic`: where rows go that cannot be
    written, None where they fail the batch. `on_expired`: "warn" or "refuse", for a row that is older than its topic
    keeps records.
    """

    pipeline: str
    client: ClientSettings
    topic: str | None = None
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = 1_048_576
    """Just under a topic's default max.message.bytes (1048588). Java's 16 KiB would cost a request per 160 small
    records.
    """
    delivery_timeout_ms: int = 120_000
    max_request_bytes: int | None = None
    max_unpacked_bytes: int = DEFAULT_UNPACKED_BYTES
    guarantee: str = "exactly-once"
    dead_letter_topic: str | None = None
    on_expired: str = "warn"

    @property
    def transactional(self) -> bool:
        """Whether batches are written in transactions."""
        return self.guarantee == "exactly-once"

    def write_settings(self) -> dict[str, Any]:
        """Every field of `WriteSettings` by name, for another value that inherits them."""
        return {each.name: getattr(self, each.name) for each in fields(WriteSettings)}
