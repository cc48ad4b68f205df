"""Errors while a real broker is set up on this machine.

Apart from the product's error tree: these reach only people who run the demo, the tests or the benchmarks,
never a user of the connector.
"""

from __future__ import annotations


class LocalError(RuntimeError):
    """Something this machine lacks, or a child process that failed; the message says what to do."""
