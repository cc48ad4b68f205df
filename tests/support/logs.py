"""What was logged during a test, by the code that the test is about.

`caplog.records` has the records of the whole process: of libraries, of other threads, and of clients that other tests
use. A test that counts records asks for those of the module that it is about.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def said_by(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of this logger and those below it, in order."""
    return [record.getMessage() for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")]


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """What the process and kafka-python log meanwhile, at DEBUG, with the arguments of each record."""
    said = io.StringIO()
    handler, root = logging.StreamHandler(said), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)r"))
    before = {each: each.level for each in (root, logging.getLogger("kafka"))}
    root.addHandler(handler)
    for each in before:
        each.setLevel(logging.DEBUG)
    try:
        yield said
    finally:
        root.removeHandler(handler)
        for each, level in before.items():
            each.setLevel(level)
