"""One warning that lists all options that have no effect.

Owns: its words, and that a process logs it once.
Does not know: which options have no effect (`kafka`, `source`, `sink`).
"""

from __future__ import annotations

import logging

from pyspark_kafka_eos.options.ledger import LedgerOptions
from pyspark_kafka_eos.options.parsing import SinkOptions, SourceOptions

_log = logging.getLogger(__name__)

_WHOSE = {SinkOptions: "the sink", SourceOptions: "the source", LedgerOptions: "a read of the ledger"}

_reported: set[tuple[str, tuple[str, ...]]] = set()
"""(whose, options) already logged. Spark asks for a writer with every micro-batch; once per process is enough."""


def report_ignored(options: SinkOptions | SourceOptions | LedgerOptions) -> None:
    """Log the options that are accepted and have no effect, all in one warning, each with its reason."""
    whose = _WHOSE[type(options)]
    if not options.ignored or (whose, options.ignored) in _reported:
        return
    _reported.add((whose, options.ignored))
    _log.warning("options of %s that have no effect here and can be left out: %s", whose, "; ".join(options.ignored))
