"""The files and texts that the options of TLS name, as bytes and as paths that OpenSSL can read.

Owns: where a relative name is looked for, what is wrong with a file, texts that OpenSSL reads only from a file.
Does not know: what is in them.
Invariants: a text that is given without a file is never written to a disk where the system has files in memory (Linux).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka_core.errors import Fact, OptionsError

_folders: list[Callable[[], str | None]] = []


def look_also_in(folder: Callable[[], str | None]) -> None:
    """Look for relative names that the working directory lacks in this folder, too; None where there is none now."""
    _folders.append(folder)


@dataclass(frozen=True)
class Given:
    """The content of one option. `path`: its file, None for a text in the option itself."""

    option: str
    text: bytes = field(repr=False)
    path: str | None = None

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or "the text given"

    def refused(self, problem: str) -> OptionsError:
        """The error for what is wrong with it."""
        facts: dict[str, Fact] = {} if self.path is None else {"file": self.path}
        return OptionsError(f"{self.option}: {self.where} {problem}; nothing was opened", facts)

    @contextlib.contextmanager
    def as_file(self) -> Iterator[str]:
        """A path that OpenSSL can read for the time of the context."""
        if self.path is not None:
            yield self.path
            return
        with _in_memory(self.text) as path:
            yield path


def read(option: str, name: str) -> Given:
    """The content of a file; OptionsError with name and reason where it cannot be read."""
    path = find(name)
    try:
        with open(path, "rb") as file:
            return Given(option, file.read(), path)
    except OSError as error:
        seen = "" if os.path.isabs(name) else f" (looked for in {', '.join(_places())})"
        raise OptionsError(
            f"{option}: {name}{seen} cannot be read on this machine: {error.strerror}; the driver and every "
            "executor need the file; nothing was opened",
            {"file": name},
        ) from error


def find(name: str) -> str:
    """The path of a file: below the working directory, or else below the first folder that has it. The name itself
    where none does.
    """
    if os.path.isabs(name):
        return name
    return next((path for place in _places() if os.path.exists(path := os.path.join(place, name))), name)


def _places() -> list[str]:
    return [os.getcwd(), *(found for folder in _folders if (found := folder()))]


@contextlib.contextmanager
def _in_memory(text: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("kafka-eos")
        path = f"/proc/self/fd/{number}"
    else:
        # Readable by its owner alone, and gone a moment later.
        number, path = tempfile.mkstemp()
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if not hasattr(os, "memfd_create"):
            os.unlink(path)
