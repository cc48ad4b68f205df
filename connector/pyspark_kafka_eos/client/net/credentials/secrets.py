"""The text of a secret, at the moment of its use.

Owns: reading the variable or the file that an option names; what an error may keep of where a secret was used.
Does not know: what the secret opens.
Invariants: a referenced secret is read anew at each use, so a running query takes a new password at its next
connection.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kafka_core.errors import ExactlyOnceError, OptionsError
from pyspark_kafka_eos.client.net.credentials import files
from pyspark_kafka_eos.model import Secret, SecretReference

E = TypeVar("E", bound=BaseException)
P = ParamSpec("P")
R = TypeVar("R")

_PROPERTY = re.compile(r"\s*([^#!=:\s][^=:\s]*)\s*[=:\s]\s*(.*)")


def text_of(value: Secret) -> str:
    """The secret. OptionsError, with the variable or the file, where that is missing."""
    if not isinstance(value, SecretReference):
        return value.reveal()
    if value.source == "env":
        found = os.environ.get(value.name)
        if not found:
            raise OptionsError(
                f"{value}: the environment variable {value.name} is not set or empty on this machine; the driver and "
                "every executor need it",
                {"variable": value.name},
            )
        return found
    text = _decoded(value)
    if value.key is None:
        # Editors and `echo` end a file with a newline; no password does.
        return text.rstrip("\r\n")
    for line in text.splitlines():
        pair = _PROPERTY.fullmatch(line)
        if pair is not None and pair[1] == value.key:
            return pair[2]
    raise OptionsError(f"{value}: {value.name} has no line {value.key}=...", {"file": value.name})


def texts_of(value: Secret | str | bool | None) -> str | bool | None:
    """The text of a secret; any other value as it is."""
    return text_of(value) if isinstance(value, Secret) else value


def framed_outside(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors come without the frames of it and of what it calls."""

    @functools.wraps(function)
    def outside(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ExactlyOnceError as error:
            raise _without_frames(error)  # noqa: B904 -- the same error

    return outside


def _without_frames(error: E) -> E:
    """The error; it, its causes and what was handled when it was raised have lost the frames that they came through."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]
    return error


def _decoded(value: SecretReference) -> str:
    given = files.read(str(value), value.name)
    try:
        return given.text.decode()
    except UnicodeDecodeError:
        # The error would show the bytes.
        raise OptionsError(f"{value}: {value.name} is not UTF-8", {"file": value.name}) from None
