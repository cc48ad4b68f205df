"""Plays a bug: one seed, or seeds until one is refused."""

from __future__ import annotations

from tests.simulation.long_life import live
from tests.simulation.planted.recipes import RECIPES
from tests.simulation.planted.table import Bug
from tests.simulation.play import MOST_STEPS, Outcome, play

MOST_SEEDS = 2_000

SHORT_STEPS = 40_000
"""A history of one or two faults that turns in a circle is given up here. The longest without a bug takes 8,000."""


def play_healthy(bug: Bug, seed: int) -> Outcome:
    """The same history without the bug."""
    if bug.life:
        return live(
            bug.life,
            seed,
            scope=bug.scope,
            transaction_version=bug.transaction_version,
            handed_over=bool(bug.job),
        )
    return play(
        seed,
        RECIPES[bug.recipe],
        scope=bug.scope,
        transaction_version=bug.transaction_version,
        slots=bug.slots,
        job=bug.job,
        watched=bug.watched,
        most_steps=MOST_STEPS if bug.recipe == "storm" else SHORT_STEPS,
    )


def play_with(bug: Bug, seed: int) -> Outcome:
    """The history with the bug."""
    with bug.here():
        return play_healthy(bug, seed)


def hunt(bug: Bug, most: int = MOST_SEEDS) -> Outcome | None:
    """The first seed whose history is refused with the bug."""
    return next(
        (each for each in (play_with(bug, seed) for seed in range(bug.first, bug.first + most)) if each.problems),
        None,
    )
