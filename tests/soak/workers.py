"""Which processes of a Spark application are the tasks' Python workers."""

from __future__ import annotations

from collections.abc import Mapping

_DAEMON = "pyspark.daemon"


def forks_of_the_daemon(processes: Mapping[int, tuple[int, str]]) -> list[int]:
    """The workers, in any order. `processes`: process id -> (its parent, its command line).

    A worker has its daemon's command line, so the parents tell them apart: process ids begin anew when the
    system has used all of them. With the daemon gone Spark would keep the workers, which are nobody's then.
    """
    daemons = {pid for pid, (_, command) in processes.items() if _DAEMON in command}
    return [pid for pid in daemons if processes[pid][0] in daemons]
