"""The command line, `kafka-eos`.

Owns: which commands there are.
"""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="kafka-eos", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["broker"], help="broker: run the embedded Kafka broker")
    options = parser.parse_args(words[:1])
    assert options.command == "broker"
    from connector.broker.__main__ import main as broker

    return broker(words[1:])
