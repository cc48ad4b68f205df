"""What was logged during a test, by the code that the test is about.

`caplog.records` has the records of the whole process: of libraries, of other threads, and of clients that other tests use. A test
that counts records asks for those of the module that it is about.
"""

from __future__ import annotations

import pytest


def said_by(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of this logger and those below it, in order."""
    return [record.getMessage() for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")]
