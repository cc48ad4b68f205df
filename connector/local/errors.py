"""What can go wrong while a real broker is set up on this machine.

Apart from the product's error tree: these never reach a user of the connector, only whoever runs demo, tests or
benchmarks.
"""

from __future__ import annotations


class LocalError(RuntimeError):
    """Something this machine lacks, or a child process that did not do its work; the message says what to do."""
