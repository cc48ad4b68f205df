"""The day on which a run made a page of evidence/, as each of these pages says it.

Owns: the words.
Does not know: what the page shows.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

DAY = re.compile(
    r"\b[1-9]\d? (?:January|February|March|April|May|June|July|August|September|October|November|December) 20\d\d\b"
)


def today() -> str:
    """The day of the run in UTC, such as "3 March 2027"."""
    now = datetime.now(timezone.utc)
    return f"{now.day} {now:%B %Y}"
