"""Named points at which tests kill the process, to show that no moment of a commit is special.

Owns: the names, and dying at the one that the environment arms.
Does not know: what happens at the points.
Invariants: without `KAFKA_EOS_CRASH_POINT` in the environment a point costs one comparison and does nothing; death is
SIGKILL, so nothing gets the chance to tidy up.
"""

from __future__ import annotations

import os
import signal

ENVIRONMENT = "KAFKA_EOS_CRASH_POINT"
"""`name` kills at the first time the point is reached, `name:k` at the k-th (from 1)."""

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
POINTS = TASK_POINTS + DRIVER_POINTS
"""Those that every batch passes."""

_name = ""
_left = 0


def read_environment() -> None:
    """Arm what the environment names. Done at import; a process that was forked later calls it again."""
    global _name, _left
    _name, _, count = os.environ.get(ENVIRONMENT, "").partition(":")
    _left = int(count or 1)


def reached(point: str) -> None:
    """Die here if this point is armed."""
    if _name and point == _name:
        _die_when_due()


def armed(point: str) -> bool:
    """Whether this point is armed: ends then go one by one, so that the k-th is a moment of its own."""
    return bool(_name) and point == _name


def _die_when_due() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


read_environment()
