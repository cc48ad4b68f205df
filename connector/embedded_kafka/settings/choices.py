"""Words for a name that is not one of those there are, the same wherever a user may misspell one.

Owns: when all names are listed.
Does not know: whose names they are, which are near (`kafka_core.similar`).
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_core.similar import did_you_mean

_LISTED_AT_MOST = 60
"""Kafka has 40 APIs here, which a reader still looks through, and some 130 error codes, which nobody does."""

_ALIKE = 0.5
"""The usual 0.6 finds neither drop-answer for drop nor stale-leader for stale."""


def unknown(what: str, given: object, known: Collection[str]) -> str:
    """That `given` is no `what`, the names nearest to it, and all of them where they are few."""
    hint = did_you_mean(str(given), known, most=3, alike=_ALIKE)
    listed = f"; known: {', '.join(sorted(known))}" if len(known) <= _LISTED_AT_MOST else ""
    return f"unknown {what} {given!r}{hint}{listed}"
