"""How a refusal reaches the reader of Spark's error.

Owns: the traceback that an error keeps on which a person has to act.
Does not know: what is refused.
Invariant: such an error leaves a decorated step without the frames below it. Spark prints all frames first, and the
sentence was its tenth to twenty-fifth line.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

from kafka_core.errors import AuthorizationFailed, DataLoss, UnknownTopic, UserError, WrongClock

log = logging.getLogger(__name__)

FOR_A_PERSON = (UserError, UnknownTopic, DataLoss, AuthorizationFailed, WrongClock)
"""Errors whose sentence says all; of the others the frames tell where."""

P = ParamSpec("P")
R = TypeVar("R")


def sentence_first(step: Callable[P, R]) -> Callable[P, R]:
    """The step that Spark calls, whose errors `FOR_A_PERSON` have no frames but its caller's. The whole traceback is
    logged at DEBUG.
    """

    @functools.wraps(step)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return step(*arguments, **named)
        except FOR_A_PERSON as error:
            log.debug("refused by %s", step.__qualname__, exc_info=True)
            raise error.with_traceback(None) from None

    return called


def each_sentence_first(found: Iterable[R]) -> Iterator[R]:
    """The same for what a step yields, where its errors come later than the step's end."""
    try:
        yield from found
    except FOR_A_PERSON as error:
        log.debug("refused while it was read", exc_info=True)
        raise error.with_traceback(None) from None
