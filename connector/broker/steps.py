"""Named steps inside the broker's coordinators, where tests stop, delay or kill it.

Owns: the hook.
Does not know: what happens there; `faults` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Reached = Callable[[str], Awaitable[None]]
"""Awaited with the step's name, e.g. "commit-prepared"; returns at once unless a fault is set for the step."""


async def nothing(_step: str) -> None:
    """No faults are set."""
