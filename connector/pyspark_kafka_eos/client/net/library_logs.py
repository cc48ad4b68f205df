"""Keeps credentials and the bytes sent out of kafka-python's logs, whatever level is set.

Owns: a filter on those of the library's loggers that show requests, answers and bytes.
Does not know: levels and handlers, which the user sets.
Invariants: the filter changes how an argument is shown, never whether a record is logged.
"""

from __future__ import annotations

import logging

_LOGGERS = ("kafka.net.connection", "kafka.net.manager", "kafka.net.transport", "kafka.protocol.parser")
"""At DEBUG the first logs each request, including SaslAuthenticate, and the last the bytes of each."""

_EXCHANGE = ("SaslAuthenticateRe", "SaslBytesRe")
"""Name prefixes of the library's requests and responses with credentials, or proofs derived from them."""

_BYTES = (bytes, bytearray, memoryview)


class _Hidden:
    """Replaces an argument that must not be shown in a log record."""

    def __init__(self, hidden: object) -> None:
        size = f" of {len(hidden)} bytes" if isinstance(hidden, _BYTES) else ""
        self._text = f"<{type(hidden).__name__}{size}, not shown>"

    def __repr__(self) -> str:
        return self._text


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_Hidden(each) if _tells(each) else each for each in record.args)
        return True


def _tells(argument: object) -> bool:
    return isinstance(argument, _BYTES) or type(argument).__name__.startswith(_EXCHANGE)


_FILTER = _Filter()


def keep_secrets_out() -> None:
    """Set the filter. Doing so again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
