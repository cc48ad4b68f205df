"""Named steps inside the broker's coordinators, where tests stop, delay or kill the broker; and the
writing of single markers.

Owns: the steps' names, the hooks.
Does not know: what happens at a step; `faults` decides.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from kafka_core.values import TopicPartition

STEPS = (
    "init-logged",
    "add-logged",
    "end-prepared",
    "abort-prepared",
    "marker-written:<n>",
    "end-completed",
)
"""The transaction coordinator's steps, where `Reached` is awaited, directly after the step and before its consequences.
"abort-prepared" is the broker's own abort (a timeout, or InitProducerId over an open transaction); n counts a
transaction's markers from 1, in the order of topics and partitions.
"""

_MARKER_WRITTEN = re.compile(r"marker-written:[1-9][0-9]*")


def is_step(name: str) -> bool:
    """Whether a coordinator can reach a step of this name."""
    return bool(_MARKER_WRITTEN.fullmatch(name)) or (name in STEPS and "<" not in name)


Reached = Callable[[str], Awaitable[None]]
"""Awaited with the step's name, e.g. "end-prepared"; returns at once unless a fault is set for the step."""


async def nothing(_step: str) -> None:
    """No faults are set."""


Marking = Callable[[str, TopicPartition, bool], Callable[[], Awaitable[bool]] | None]
"""Called before each marker with the transactional id, the partition and whether it is a commit. None: write
the marker now. Otherwise the caller awaits the returned function apart from the other markers: True then
writes the marker, False skips it and counts it as written."""


def now(_transactional_id: str, _partition: TopicPartition, _commit: bool) -> None:
    """No faults are set."""
