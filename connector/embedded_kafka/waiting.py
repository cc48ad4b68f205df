"""Waiting for an event with a time limit, on the broker's event loop.

Owns: that a cancellation is never lost. `asyncio.wait_for` loses a cancellation where the event is set in the
same turn of the loop (Python up to 3.11; CPython issue 86296), and the task then waits without end.
Does not know: what is waited for.
"""

from __future__ import annotations

import asyncio


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set; False where `seconds` (None: no limit) passed first."""
    if seconds is None:
        return await event.wait()
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
        return event.is_set()
    finally:
        waiting.cancel()
