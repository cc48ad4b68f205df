"""A server in a child process: its `with` block, its data directory, and the wait until it answers.

Owns: what all servers of this package have in common.
Does not know: which server it is, how it is asked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from embedded_kafka.child.processes import Child

_Server = TypeVar("_Server", bound="ChildServer")
_T = TypeVar("_T")


class ChildServer(ABC):
    """Starts with a `with` block and stops with it. `data_dir`: kept; None = a directory of its own, which goes with
    it.
    """

    def __init__(self, kind: str, data_dir: str | os.PathLike[str] | None) -> None:
        self._kind = kind
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._dir: Path | None = None

    def __enter__(self: _Server) -> _Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def start(self: _Server) -> _Server:
        """Start, and return when the server answers. After a failure nothing is left running."""

    @abstractmethod
    def stop(self) -> None:
        """Stop, and remove the data unless its directory was given."""

    def _make_dir(self) -> Path:
        self._dir = self._given_dir or Path(tempfile.mkdtemp(prefix=f"{self._kind}-"))
        return self._dir

    def _remove_dir(self) -> None:
        if self._dir is not None and self._given_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)


def first_answer(child: Child, ask: Callable[[], _T | None], within_ms: int, every_s: float) -> _T | None:
    """What `ask` returns as soon as that is something; None where the child ends first, or the time."""
    deadline = time.monotonic() + within_ms / 1000
    while True:
        # Looked at before the question: an answer that came before the end counts.
        over = child.poll() is not None or time.monotonic() > deadline
        answer = ask()
        if answer is not None or over:
            return answer
        time.sleep(every_s)
