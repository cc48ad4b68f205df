"""How a command ends: its answer is printed, as JSON or for people, and its exit code is the answer's.

Owns: printing, at the width that there is; errors, interruptions and defects as answers; a reader that goes away.
Does not know: what the commands do.
Invariants: with `--json` standard output has one document and nothing else, whatever happens; an answer that nobody reads any
more ends quietly, with the code that it has; an interruption ends with one line that says what is known.
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

from connector.cli import documents
from connector.cli.documents import Document
from connector.cli.tables import render
from connector.errors import ExactlyOnceError, InternalError, OptionsError

_NO_END = 100_000
"""Columns where nobody has any: what reads a pipe wants each row on a line of its own."""

NOTHING_CHANGED = "nothing was changed"

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for words that are no use of a command; the class has no name of typer's own in all of its versions."""


class ReaderGone(Exception):
    """Nobody reads standard output any more."""


class Answer:
    """The one answer of a command. `known`: what to say of the work that is done so far, where it is interrupted."""

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
        """Print text as it is. Where nobody reads it any more the command ends with `code`, and says nothing of it."""
        try:
            _write(text, error)
        except ReaderGone:
            raise typer.Exit(code) from None

    def interrupted(self) -> NoReturn:
        """Say in one line what is known, and end."""
        _ignore_more_interruptions()
        message = f"interrupted: {self.known()}"
        # Behind a document of which a part is printed another one would be no help.
        if self.as_json and not self._printed:
            self(documents.interrupted(self.command, message))
        self.write(f"kafka-eos: {message}\n", documents.INTERRUPTED, error=True)
        raise typer.Exit(documents.INTERRUPTED)


@contextmanager
def answering(command: str, as_json: bool) -> Iterator[Answer]:
    """Give the block what it answers with; what it raises is an answer too."""
    answer = Answer(command, as_json)
    try:
        yield answer
    except ExactlyOnceError as error:
        answer(documents.failed(command, error))
    except KeyboardInterrupt:
        answer.interrupted()
    except typer.Abort as stop:
        # The question whether to go on was interrupted, or standard input has ended.
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


def wrong_usage(error: Exception, words: Sequence[str]) -> int:
    """Print words that are no use of any command as a document; its exit code."""
    context = getattr(error, "ctx", None)
    # Not every error of typer says which command it is about.
    path = (
        " ".join(["", *words[: 2 if words[0] == "transactions" else 1]])
        if context is None
        else context.command_path
    )
    message = getattr(error, "format_message", lambda: str(error))()
    answer = Answer(path.partition(" ")[2], as_json=True)
    try:
        answer(
            documents.failed(
                answer.command, OptionsError(f"{message} See kafka-eos --help; {NOTHING_CHANGED}")
            )
        )
    except typer.Exit as end:
        return end.exit_code


# ---- printing


def _console(terminal: bool, error: bool) -> Console:
    """What a page is printed with: the terminal's width and colours, or neither."""
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
            # A terminal that knows fewer letters than a topic's name has.
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _hush(stream.fileno())
        raise ReaderGone from None


def _hush(descriptor: int) -> None:
    """Send what the interpreter still wants to print at its end to nowhere: it would complain of the closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _ignore_more_interruptions() -> None:
    """The command is ending: a second Ctrl-C would only cut off its last line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
