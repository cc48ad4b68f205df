"""Nothing of the machines needs more than the language; only the table of codes touches Kafka's messages."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka_core.protocol.messages  # noqa: F401
