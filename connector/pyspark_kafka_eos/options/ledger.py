"""The options of the ledger as a DataFrame: `spark.read.format("kafka_eos").option("ledger", ...)`.

Owns: its rows, and the checked value.
Does not know: how the ledger is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options.kinds import TOPIC, Use, name_kind
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC, LONGEST_PIPELINE
from pyspark_kafka_eos.options.values import Kind, either

EVERY = "*"
"""The value of `ledger` for all pipelines."""

_NAME = name_kind(LONGEST_PIPELINE)
_PIPELINE: Kind = either(EVERY, _NAME)

LEDGER: dict[str, Use] = {
    "ledger": Use("ledger", _PIPELINE, "required",
          "with spark.read: the decisions of this pipeline, or * for those of all, instead of records"),
    "ledger.topic": Use("ledger_topic", TOPIC, DEFAULT_LEDGER_TOPIC,
          "the ledger's topic, as for the sink"),
}  # fmt: skip


@dataclass(frozen=True)
class LedgerOptions:
    """The options of a read of the ledger, checked. `pipeline`: None for all. `ignored`: as of the source."""

    client: ClientSettings
    pipeline: str | None
    topic: str = DEFAULT_LEDGER_TOPIC
    ignored: tuple[str, ...] = ()


def asks_for_ledger(options: Mapping[str, object]) -> bool:
    """Whether options ask for the ledger instead of records."""
    return any(name.lower() == "ledger" for name in options)


def refuse_stream() -> None:
    """OptionsError: the ledger is no stream."""
    raise OptionsError(
        "the ledger cannot be read as a stream; nothing was read. Use spark.read instead of spark.readStream, or leave out "
        "the option ledger to read records"
    )
