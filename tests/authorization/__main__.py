"""Asks both brokers as every client: `python -m tests.authorization [--write]`."""

from __future__ import annotations

import argparse
import sys

from tests.authorization import play
from tests.authorization.known import unknown
from tests.authorization.page import PAGE, page


def main() -> int:
    """0 where all answers are equal, or differ for a known reason."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.authorization", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into evidence/rights.md")
    arguments = parser.parse_args()
    embedded, real = play.tables()
    text = page(embedded, real)
    print(text)  # noqa: T201  a command's output
    if arguments.write:
        PAGE.write_text(text)
    return bool(unknown(embedded, real))


if __name__ == "__main__":
    sys.exit(main())
