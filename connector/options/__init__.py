"""The user's options of the sink and of the source: one mapping in, one checked value out.

`parsing` judges a mapping, `sink` and `source` have our own options row by row, `kafka` and `security` Kafka's, `kinds` the kinds of
values; `yaml_file` reads them from a file.
"""

from connector.options.parsing import (
    LONGEST_TRANSACTION_MS,
    NOT_YET,
    PLAIN,
    OptionValue,
    SinkOptions,
    SourceOptions,
    documented_options,
    refuse_async_progress,
    refuse_speculation,
)

__all__ = [
    "LONGEST_TRANSACTION_MS",
    "NOT_YET",
    "PLAIN",
    "OptionValue",
    "SinkOptions",
    "SourceOptions",
    "documented_options",
    "refuse_async_progress",
    "refuse_speculation",
]
