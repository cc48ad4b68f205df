"""Times as the sentence of an error, a warning or a check says them.

Owns: a length of time and a moment in words.
Does not know: who says it.
"""

from __future__ import annotations

from datetime import datetime, timezone


def span(ms: int) -> str:
    """A length of time, in the largest unit of which it has two or more: `3 d`, `90 s`."""
    seconds = max(0, ms) // 1000
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def moment(ms: int) -> str:
    """A moment in UTC, to the second: `2026-11-21T17:40:01+00:00`. In milliseconds since 1970 where no calendar has
    it.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms after 1970"
