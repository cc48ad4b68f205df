"""The end of a command: prints its answer, as JSON or for people, and exits with the answer's code.

Owns: printing at the available width; errors, interruptions and defects as answers; a reader that closes the
pipe.
Does not know: what the commands do.
Invariants:
- With `--json` standard output has exactly one document, in every case.
- A command whose reader has closed the pipe ends silently, with its answer's code.
- An interruption ends with one line that states what is known.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import NoReturn

import typer
from rich.console import Console, RenderableType

from kafka_core.errors import ExactlyOnceError, InternalError, OptionsError
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.documents import Document
from pyspark_kafka_eos.cli.tables import render

_NO_END = 100_000
"""Columns where there is no terminal: a program that reads a pipe wants each row on a line of its own."""

NOTHING_CHANGED = "nothing was changed"

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The error that typer raises for wrong usage. Not every version of typer has a name of its own for this
class."""


class ReaderGone(Exception):
    """The reader of the output has closed it."""


class CommandAnswer:
    """The one answer of a command. `known`: the text about the work done so far, for an interruption."""

    def __init__(self, command: str, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json
        self.known: Callable[[], str] = lambda: NOTHING_CHANGED
        self._printed = False

    def __call__(self, document: Document) -> NoReturn:
        """Print the document and end the command with its exit code."""
        if self.as_json:
            self._printed = True
            self.write(json.dumps(document, indent=2) + "\n", document["exit_code"])
        else:
            self.show(render(document), document["exit_code"], error="error" in document)
        raise typer.Exit(document["exit_code"])

    def show(self, page: RenderableType, code: int, *, error: bool = False) -> None:
        """Print a part of the answer for people; `code` as for `write`."""
        stream = sys.stderr if error else sys.stdout
        console = _console(stream is not None and stream.isatty(), error)
        console.print(page, soft_wrap=True)
        assert isinstance(console.file, StringIO)
        self.write(console.file.getvalue(), code, error=error)

    def write(self, text: str, code: int, *, error: bool = False) -> None:
        """Print text unchanged. If the reader has closed the output, end the command silently with `code`."""
        try:
            _write(text, error)
        except ReaderGone:
            raise typer.Exit(code) from None

    def confirm(self, question: str) -> None:
        """Ask on standard error; another answer than yes ends the command before anything was changed."""
        if not typer.confirm(question, err=True):
            self.write(f"{NOTHING_CHANGED}\n", documents.WRONG, error=True)
            raise typer.Exit(documents.WRONG)

    def interrupted(self) -> NoReturn:
        """Print in one line what is known, and end."""
        _ignore_more_interruptions()
        message = f"interrupted: {self.known()}"
        # A second document after a partly printed one would not help.
        if self.as_json and not self._printed:
            self(documents.interrupted(self.command, message))
        self.write(f"kafka-eos: {message}\n", documents.INTERRUPTED, error=True)
        raise typer.Exit(documents.INTERRUPTED)


@contextmanager
def answering(command: str, as_json: bool) -> Iterator[CommandAnswer]:
    """Give the block its `CommandAnswer`; an exception of the block becomes an answer too."""
    answer = CommandAnswer(command, as_json)
    try:
        yield answer
    except ExactlyOnceError as error:
        answer(documents.failed(command, error))
    except KeyboardInterrupt:
        answer.interrupted()
    except typer.Abort as stop:
        # The confirmation was interrupted, or standard input has ended.
        if isinstance(stop.__context__, KeyboardInterrupt):
            answer.interrupted()
        answer.write(f"{NOTHING_CHANGED}\n", documents.WRONG, error=True)
        raise typer.Exit(documents.WRONG) from None
    except (typer.Exit, USAGE_ERROR):
        raise
    except Exception as defect:
        if not as_json:
            raise
        traceback.print_exc()
        text = f"{type(defect).__name__}: {defect}; this is a defect of this package: report it with the lines above"
        answer(documents.failed(command, InternalError(text)))


def require_a_way_to_confirm(as_json: bool, yes: bool) -> None:
    """OptionsError where a command would have to ask between two halves of a document."""
    if as_json and not yes:
        raise OptionsError(f"--json cannot ask for confirmation, so give --yes too; {NOTHING_CHANGED}")


def wrong_usage(error: Exception, words: Sequence[str]) -> int:
    """Print wrong usage as a document; returns its exit code."""
    context = getattr(error, "ctx", None)
    # Not every error of typer names its command.
    path = (
        " ".join(["", *words[: 2 if words[0] in ("transactions", "topic") else 1]])
        if context is None
        else context.command_path
    )
    message = getattr(error, "format_message", lambda: str(error))()
    answer = CommandAnswer(path.partition(" ")[2], as_json=True)
    try:
        answer(documents.failed(answer.command, OptionsError(f"{message} See kafka-eos --help; {NOTHING_CHANGED}")))
    except typer.Exit as end:
        return end.exit_code


# ---- printing


def _console(terminal: bool, error: bool) -> Console:
    """The console that prints a page: with the terminal's width and colours, or with neither."""
    stream = sys.stderr if error else sys.stdout
    width = None
    if "COLUMNS" not in os.environ:
        width = os.get_terminal_size(stream.fileno()).columns if terminal else _NO_END
    return Console(
        file=StringIO(), width=width or None, force_terminal=True if terminal else None, highlight=False,
        legacy_windows=False,
    )  # fmt: skip


def _write(text: str, error: bool) -> None:
    stream = sys.stderr if error else sys.stdout
    if stream is None:
        raise ReaderGone
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            # The terminal's encoding lacks a character.
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _hush(stream.fileno())
        raise ReaderGone from None


def _hush(descriptor: int) -> None:
    """Discard the interpreter's last output: its flush at exit would complain of the closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _ignore_more_interruptions() -> None:
    """The command is ending: a second Ctrl-C would only cut off its last line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
