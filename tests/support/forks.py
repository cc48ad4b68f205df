"""Children that are forked from one server, which has imported everything before: a test costs no imports.

A process of pytest has one such server, and the first child starts it, with what is preloaded then; whoever asks later
for more gets a server that lacks it. So there is one list for all.

Owns: that server, what it has imported; a command of `kafka-eos` in a child.
Does not know: what a child does.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

_PRELOADED = [
    "tests.pyspark_kafka_eos.commit.warm_kernels", "tests.pyspark_kafka_eos.commit.child",
    "tests.pyspark_kafka_eos.commit.batch_child", "tests.chaos.job", "pyspark_kafka_eos.cli.app", "pytest",
]  # fmt: skip
"""pytest is what each child would import else: it prepares the main module of its parent."""


def forks() -> ForkServerContext:
    """What starts children from the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


class Command:
    """`kafka-eos` with these words, in a process of its own; `typed` is its standard input."""

    def __init__(self, words: tuple[str, ...], environ: Mapping[str, str] | None = None, typed: str = "") -> None:
        self._files = [tempfile.NamedTemporaryFile("w+", encoding="utf-8") for _ in range(3)]  # noqa: SIM115
        self._files[0].write(typed)
        self._files[0].flush()
        names = [each.name for each in self._files]
        self._process: BaseProcess = forks().Process(target=_run, args=(words, environ, names))
        self._process.start()

    def ended(self, within_s: float) -> tuple[int, str, str]:
        """Its exit code and what it printed on both streams."""
        self._process.join(within_s)
        code = self._process.exitcode
        self._process.kill()
        self._process.join()
        out, err = (each.read() for each in self._files[1:])
        for each in self._files:
            each.close()
        assert code is not None, f"no end within {within_s} s: {out}{err}"
        return code, out, err


def _run(words: tuple[str, ...], environ: Mapping[str, str] | None, files: list[str]) -> None:
    from pyspark_kafka_eos.cli import main

    if environ is not None:
        os.environ.clear()
        os.environ.update(environ)
    for stream, path, mode in zip((sys.stdin, sys.stdout, sys.stderr), files, "rww", strict=True):
        with open(path, mode, encoding="utf-8") as file:
            os.dup2(file.fileno(), stream.fileno())
    code = main(list(words))
    sys.stdout.flush()
    sys.exit(code)
