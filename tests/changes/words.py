"""What was said, as a page can keep it: without what differs from run to run.

Owns: which parts of a message those are.
Does not know: who said it.
"""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_QUERY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLUSTER = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")
_TIME = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)|(?<!\d)1[78]\d{11}(?!\d)")
"""A moment in words, or in milliseconds since 1970."""
_SIZE = re.compile(r"(?<=a batch of )\d+(?= bytes)|(?<=this one has )\d+(?= bytes)")
"""Ids and times of other lengths make another size."""
_DIRECTORY = re.compile(r"/\S*changes-[^\s/]*")
_LONGEST = 240


def plain(said: str) -> str:
    """One line for a table."""
    text = said.split(" [")[0].replace("|", "\\|").replace("\n", " ")
    for pattern, name in (
        (_ADDRESS, "HOST:PORT"),
        (_DIRECTORY, "DIR"),
        (_QUERY, "ID"),
        (_CLUSTER, "ID"),
        (_TIME, "TIME"),
        (_SIZE, "SIZE"),
    ):
        text = pattern.sub(name, text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3].rsplit(" ", 1)[0] + " ..."
