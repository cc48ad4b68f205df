"""Named points at which tests kill the process, to show that no moment of a commit is special.

Owns: the names, and the kill (or the action that a test armed instead) at one of them.
Does not know: what happens at the points.
Invariants:
- Without `KAFKA_EOS_CRASH_POINT` in the environment a point costs one comparison and does nothing.
- The kill is SIGKILL, so no code can clean up.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kafka_core import runtime

ENVIRONMENT = "KAFKA_EOS_CRASH_POINT"
"""`name` kills the first time the point is reached, `name:k` the k-th time (from 1)."""

TASK_POINTS = (
    "before-init-producer-id",
    "after-init-producer-id",
    "mid-produce",
    "after-last-acknowledgement",
    "after-seal",
)
DRIVER_POINTS = (
    "before-check",
    "before-decision",
    "decision-written",
    "decision-sent",
    "decision-answered",
    "after-decision",
    "before-end",
    "after-end",
    "before-return",
)
REPAIR_POINTS = (
    "before-rewrite",
    "after-rewrite",
)
MENDING_POINTS = (
    "before-mend",
    "mend-initialized",
    "before-note-mending",
    "after-note-mending",
    "mend-added",
    "mend-ended",
)
"""Passed where a broker has not written a marker of a committed transaction; aborts write no note."""

SETTLING_POINTS = (
    "before-note-settled",
    "after-note-settled",
    "decision-settled",
)
"""Passed by the next run's start where the missing marker is the decision's own, before the points of
mending."""

PARTS_POINTS = (
    "decision-part-sent",
    "settled-part-noted",
)
"""Passed where a decision is larger than a record of the ledger: behind each of its records, and behind each part that
goes in front of the note of its commit.
"""

HANDOVER_POINTS = (
    "before-begin",
    "begun",
    "gone-on",
    "wrested",
)
"""Passed where one process begins a batch and another one commits it or abandons it."""

END_POINTS = (
    "before-note-ended",
    "after-note-ended",
)
"""Passed when every marker of a batch was seen."""

POINTS = TASK_POINTS + DRIVER_POINTS
"""Those that every batch passes (scope=task)."""

BATCH_TASK_POINTS = (
    "before-turn",
    "after-turn",
    "mid-produce",
    "turn-passed",
    "after-last-acknowledgement",
    "after-seal",
)
BATCH_DRIVER_POINTS = (
    "before-init-producer-id",
    "after-init-producer-id",
    "before-check",
    "before-decision",
    "decision-written",
    "decision-sent",
    "decision-answered",
    "after-decision",
    "before-return",
)
"""Those that every batch passes with scope=batch. Its driver initialises the identity that the tasks
share."""

Action = Callable[[], None]

_name = ""
_left = 0
_action: Action | None = None


def arm(point: str, count: int = 1, action: Action | None = None) -> None:
    """Run `action` once, the `count`-th time that the point is reached; without an action the process is
    killed there."""
    global _name, _left, _action
    _name, _left, _action = point, count, action


def read_environment() -> None:
    """Arm the point that the environment names. Runs at import; a process forked later calls it again."""
    name, _, count = os.environ.get(ENVIRONMENT, "").partition(":")
    arm(name, int(count or 1))


def reached(point: str) -> None:
    """Run the armed action if this point is the armed one."""
    if _name and point == _name:
        _act_when_due()


def armed(point: str) -> bool:
    """Whether this point is armed."""
    return bool(_name) and point == _name


def _act_when_due() -> None:
    global _left
    _left -= 1
    if _left == 0:
        (_action or runtime.kill)()


read_environment()
