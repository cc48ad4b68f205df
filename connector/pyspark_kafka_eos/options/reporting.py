"""One warning that lists all options that have no effect.

Owns: its words, and that a process logs it once.
Does not know: which options have no effect (`kafka`, `source`, `sink`).
"""

from __future__ import annotations

import logging

from pyspark_kafka_eos.options.ledger import LedgerOptions
from pyspark_kafka_eos.options.parsing import SinkOptions, SourceOptions

_log = logging.getLogger(__name__)

_reported: set[tuple[str, tuple[str, ...]]] = set()
"""(side, options) already logged. Spark asks for a writer with every micro-batch; once per process is enough."""


def report_ignored(options: SinkOptions | SourceOptions | LedgerOptions) -> None:
    """Log the options that are accepted and have no effect, all in one warning, each with its reason."""
    side = "sink" if isinstance(options, SinkOptions) else "source"
    if not options.ignored or (side, options.ignored) in _reported:
        return
    _reported.add((side, options.ignored))
    _log.warning(
        "options of the %s that have no effect here and can be left out: %s", side, "; ".join(options.ignored)
    )
