"""One cell: a change at a moment, in a way of writing, a scope and a transaction version; what became of the query.

Owns: playing it, and the judgement of what was seen.
Does not know: which cells there are.

What holds of every cell: the query goes on and each row is there once, or it is refused in words that name the change,
with nothing written, and where the change can be put back the query goes on then. A refusal is of a class whom somebody
has to act on, and what a start by itself heals is not.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_core.errors import AbortableError, ExactlyOnceError, OutcomeUnknown, ProducerFenced, RetriableError
from pyspark_kafka_eos.client.reading import absence
from tests.changes.changes import Change
from tests.changes.moments import Moment
from tests.changes.small_spark import Query
from tests.changes.world import World, world

STARTS = 3
"""How often a query is started that ends with an error. What stops it each time is a refusal."""

HEALS = (AbortableError, OutcomeUnknown, ProducerFenced, RetriableError)
"""Classes that tell the reader to do nothing but to have the query started again."""

GOES_ON, REFUSED = "goes on", "refused"


@dataclass(frozen=True)
class Cell:
    """What is played."""

    change: Change
    moment: Moment
    way: str
    scope: str
    version: int

    def __str__(self) -> str:
        return f"{self.change.name} | {self.moment.name} | {self.way} | {self.scope} | {self.version}"


@dataclass
class Outcome:
    """What was seen. `ended`: GOES_ON or REFUSED. `problems`: what does not hold, in words. `said`: the errors, in
    their order.
    """

    cell: Cell
    ended: str = GOES_ON
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """For a table."""
        stops = f", stopped {len(self.said)} times" if self.ended == GOES_ON and self.said else ""
        return self.ended + stops


def play(cell: Cell) -> Outcome:
    """Play one cell. `moments.NotReached` where the query did not come to its moment."""
    with _quiet(), _impatient(), world(cell.way, cell.scope, cell.version) as here:
        outcome = Outcome(cell)
        cell.change.before(here)
        query = cell.moment.bring(here, lambda: cell.change.apply(here))
        here.feed()
        before = None if query is not None else here.visible()
        errors = _go_on(here, query)
        here.at_the_end()
        outcome.said = [f"{type(error).__name__}: {error}" for error in errors]
        if len(errors) < STARTS:
            outcome.problems = [*here.verdict(whole=True), *_needless(errors)]
            return outcome
        outcome.ended = REFUSED
        outcome.problems = [*here.verdict(whole=False), *_judge_words(cell.change, errors[-1])]
        if before is not None and here.visible() != before and not cell.change.may_finish:
            outcome.problems.append("the refused query has written something")
        outcome.problems += _put_back(here)
        return outcome


def _put_back(here: World) -> list[str]:
    """What does not hold where the change is put back, or the way on is gone that the refusal names. It may lead to the
    next refusal, which names the next one.
    """
    while here.undo is not None:
        undo, here.undo = here.undo, None
        undo()
        again = _go_on(here, None)
        if len(again) < STARTS:
            return [f"when it was put back: {each}" for each in here.verdict(whole=True)]
        if here.undo is None:
            return [f"when it was put back, the query was refused: {again[-1]}"]
    return []


def _go_on(here: World, query: Query | None) -> list[Exception]:
    """Run the query until it has nothing more to read, or has ended with an error so many times."""
    errors: list[Exception] = []
    while len(errors) < STARTS:
        try:
            query = query or here.start()
            while query.batch():
                pass
        except ExactlyOnceError as error:
            errors.append(error)
            query = None
        else:
            break
    return errors


def _needless(errors: Sequence[Exception]) -> list[str]:
    """Errors that told somebody to act where a start by itself was enough."""
    return [
        f"a start by itself went on, but {type(error).__name__} tells {getattr(error, 'who_acts', '')} to act: {error}"
        for error in errors
        if not isinstance(error, HEALS)
    ]


def _judge_words(change: Change, error: Exception) -> list[str]:
    said = str(error)
    if isinstance(error, HEALS):
        return [f"nobody is told to act, and no start goes on: {type(error).__name__}: {said}"]
    if not change.words:
        return [f"refused, where nothing stands against going on: {type(error).__name__}: {said}"]
    lacking = [each for each in change.words if not re.search(each, said, re.IGNORECASE | re.DOTALL)]
    return [f"the words lack {each!r}: {type(error).__name__}: {said}" for each in lacking]


@contextmanager
def _quiet() -> Iterator[None]:
    """What the product logs of each refusal is not what is asked here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _impatient() -> Iterator[None]:
    """What a broker says to be gone is gone here. The product waits for one that has just started or lags."""
    before, absence.NEW_TOPIC_MS = absence.NEW_TOPIC_MS, 200
    try:
        yield
    finally:
        absence.NEW_TOPIC_MS = before


def counted(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many ended in which way; those with a problem are bad."""
    return Counter("bad" if each.problems else each.ended for each in outcomes)
