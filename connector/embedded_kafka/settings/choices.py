"""Words for a name that is not one of those there are, the same wherever a user may misspell one.

Owns: the nearest name, and when all names are listed.
Does not know: whose names they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

_LISTED_AT_MOST = 60
"""Kafka has 40 APIs here, which a reader still looks through, and some 130 error codes, which nobody does."""

_ALIKE = 0.5
"""difflib's 0.6 finds neither drop-answer for drop nor stale-leader for stale."""


def unknown(what: str, given: object, known: Collection[str]) -> str:
    """That `given` is no `what`, the names nearest to it, and all of them where they are few."""
    near = difflib.get_close_matches(str(given), known, n=3, cutoff=_ALIKE)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    listed = f"; known: {', '.join(sorted(known))}" if len(known) <= _LISTED_AT_MOST else ""
    return f"unknown {what} {given!r}{hint}{listed}"
