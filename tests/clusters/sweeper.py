"""Ends what a NodeManager has started, when the tests end, in whatever way.

    python sweeper.py DIRECTORY

A NodeManager starts each container in a session of its own, which the guard of `embedded_kafka.child.processes` does
not reach. This process runs under such a guard, which asks it to end when the tests have ended.

Owns: SIGKILL to every process whose working directory lies in DIRECTORY.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.clusters.scene import kill, pids_in


def main() -> None:
    """Wait for SIGTERM, then sweep until nothing is left."""
    signal.sigwait({signal.SIGTERM})
    directory = Path(sys.argv[1])
    while pids := pids_in(directory):
        kill(pids)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()
