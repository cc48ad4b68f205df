"""Named steps inside the broker's coordinators, where tests stop, delay or kill it; and the writing of single markers.

Owns: the hooks.
Does not know: what happens there; `faults` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from connector.model import TopicPartition

Reached = Callable[[str], Awaitable[None]]
"""Awaited with the step's name, e.g. "commit-prepared"; returns at once unless a fault is set for the step."""


async def nothing(_step: str) -> None:
    """No faults are set."""


Marking = Callable[[str, TopicPartition, bool], Callable[[], Awaitable[bool]] | None]
"""Asked before each marker, with the transactional id, the partition and whether it is a commit. None: write it now. Else
what to await apart from the other markers: True then writes it, False leaves it out and takes it for written."""


def now(_transactional_id: str, _partition: TopicPartition, _commit: bool) -> None:
    """No faults are set."""
