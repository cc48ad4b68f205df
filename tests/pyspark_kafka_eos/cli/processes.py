"""`kafka-eos` as processes of their own: what an operator starts, with the exit code and all that it printed.

Owns: starting commands two at a time, into a file or in a terminal of a given width, and waiting for their end; the
same words in this process, where there are too many for processes of their own.
Does not know: what a command should answer.

What goes into a file is forked from a process that has imported the command line, which spares two seconds of a core;
in a terminal, and in test_command.py, it starts from nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_kafka_eos.cli import main
from tests.support.brokers import AnyKafka
from tests.support.forks import Command

WITHIN_S = 120
_AT_ONCE = 2
"""Processes beside each other: the smallest supported machine has two cores."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON document; the exit code must be the one that it names."""
        document: dict[str, Any] = json.loads(self.out)
        assert document["exit_code"] == self.code, self
        assert "Traceback" not in self.err, self.err
        return document

    @property
    def text(self) -> str:
        """All that a person reads, with single spaces."""
        return " ".join((self.out + self.err).split())


def environment(broker: AnyKafka | None = None, **more: str) -> dict[str, str]:
    """The environment of a command: no width, colour or option that this machine happens to have."""
    left_out = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "KAFKA_BOOTSTRAP_SERVERS")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    address = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers} if broker is not None else {}
    return {**kept, **address, "TERM": "xterm-256color", **more}


def command(*words: str) -> list[str]:
    """The command's own words behind the interpreter's."""
    return [sys.executable, "-m", "pyspark_kafka_eos.cli", *words]


def kafka_eos(broker: AnyKafka | None, *words: str, answer: str = "") -> Ended:
    """Run a command whose output is a file. The process is forked from one that has imported the command line."""
    return Ended(*Command(words, environment(broker), answer).ended(WITHIN_S))


def all_of(broker: AnyKafka | None, commands: Sequence[Sequence[str]]) -> list[Ended]:
    """Run several commands that do not depend on each other, in the order of their answers."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda words: kafka_eos(broker, *words), commands))


def in_process(capsys: pytest.CaptureFixture[str], broker: AnyKafka | None, *words: str) -> Ended:
    """Run a command in this process, from its words to its exit code."""
    code = main([*words, *(["-b", broker.bootstrap_servers] if broker is not None else [])])
    printed = capsys.readouterr()
    return Ended(code, printed.out, printed.err)


def in_terminal(broker: AnyKafka, *words: str, columns: int, more: Mapping[str, str] | None = None) -> Ended:
    """Run a command whose output is a terminal of that many columns; `out` has the lines as the terminal gets them."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    try:
        process = subprocess.Popen(
            command(*words), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
            env=environment(broker, **(more or {})), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(theirs)
    read = bytearray()
    try:
        while chunk := _read(ours):
            read += chunk
        _, err = process.communicate(timeout=WITHIN_S)
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    return Ended(process.returncode, read.decode().replace("\r\n", "\n"), err.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # Linux says so when the last writer has closed the terminal.
        return b""
