"""Named steps inside the broker's coordinators, where tests stop, delay or kill the broker; and the
writing of single markers.

Owns: the hooks.
Does not know: what happens at a step; `faults` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafka_core.values import TopicPartition

Reached = Callable[[str], Awaitable[None]]
"""Awaited with the step's name, e.g. "commit-prepared"; returns at once unless a fault is set for the step."""


async def nothing(_step: str) -> None:
    """No faults are set."""


Marking = Callable[[str, TopicPartition, bool], Callable[[], Awaitable[bool]] | None]
"""Called before each marker with the transactional id, the partition and whether it is a commit. None: write
the marker now. Otherwise the caller awaits the returned function apart from the other markers: True then
writes the marker, False skips it and counts it as written."""


def now(_transactional_id: str, _partition: TopicPartition, _commit: bool) -> None:
    """No faults are set."""
