"""The user's options of the sink and of the source: one mapping in, one checked value out.

`parsing` judges a mapping, `sink`, `source` and `ledger` have our own options row by row, `kafka` and `security`
Kafka's, `kinds` the kinds of values; `yaml_file` reads them from a file. `reporting` warns of those without effect,
`migration` sorts those of another connector.
"""

from pyspark_kafka_eos.options.ledger import LedgerOptions, asks_for_ledger, refuse_stream
from pyspark_kafka_eos.options.migration import Migration, migrate
from pyspark_kafka_eos.options.parsing import (
    LONGEST_TRANSACTION_MS,
    NOT_YET,
    PLAIN,
    OptionValue,
    SinkOptions,
    SourceOptions,
    documented_options,
    documented_without_effect,
    parse_ledger,
    refuse_async_progress,
    refuse_speculation,
)
from pyspark_kafka_eos.options.reporting import report_ignored
from pyspark_kafka_eos.options.sink import is_pipeline_name

__all__ = [
    "LONGEST_TRANSACTION_MS",
    "NOT_YET",
    "PLAIN",
    "LedgerOptions",
    "Migration",
    "OptionValue",
    "SinkOptions",
    "SourceOptions",
    "asks_for_ledger",
    "documented_options",
    "documented_without_effect",
    "is_pipeline_name",
    "migrate",
    "parse_ledger",
    "refuse_async_progress",
    "refuse_speculation",
    "refuse_stream",
    "report_ignored",
]
