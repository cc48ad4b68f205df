"""Text of others where people read it: in messages, in logs, on a terminal.

Owns: which characters can do no harm there, and how the others are written.
Does not know: whose text it is, where it is shown.
Invariants: what is harmless stays harmless and unchanged, however often it comes by.

A transactional id, a topic of the ledger's or a broker's own words may have any character: escape sequences that write
over the operator's screen, line ends that forge a line of a log, marks that turn the direction of the text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable


class Lines(str):
    """A text of several lines, each of which is harmless."""

    __slots__ = ()

    @classmethod
    def joined(cls, lines: Iterable[str]) -> Lines:
        """These texts, a line each."""
        return cls("\n".join(map(harmless, lines)))


def harmless(text: str) -> str:
    """The text in one line of printable characters: others as Python writes them (`\\x1b`, `\\n`, `\\u202e`).
    `Lines` stay as they are.
    """
    if text.isprintable() or isinstance(text, Lines):
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def told(log: logging.Logger, warning: str) -> str:
    """Write a warning to the log; returns it as it was written, for a report."""
    warning = harmless(warning)
    log.warning("%s", warning)
    return warning
