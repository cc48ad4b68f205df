"""How a refusal reaches the reader of Spark's error.

Owns: the traceback that a `UserError` keeps.
Does not know: what is refused.
Invariant: a `UserError` leaves a decorated step without the frames below it. Spark prints all frames first, and the sentence was its
tenth to twenty-fifth line.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from connector.errors import UserError

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def sentence_first(step: Callable[P, R]) -> Callable[P, R]:
    """The step that Spark calls, whose `UserError`s have no frames but its caller's. The whole traceback is logged at DEBUG."""

    @functools.wraps(step)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return step(*arguments, **named)
        except UserError as error:
            log.debug("refused by %s", step.__qualname__, exc_info=True)
            raise error.with_traceback(None) from None

    return called
