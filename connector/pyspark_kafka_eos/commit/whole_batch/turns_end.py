"""The end of the turns of one try, before it is decided: from then on no start of a task may begin to write.

Owns: the driver's own record in the log of turns, and which starts had a turn before it.
Does not know: what was written during turns, the coordinator, the decision.
Invariants:
- Behind the driver's record no start is granted a turn.
- A start that was granted a turn before that record, and whose task was sealed without rows, is found.

Why: a task without rows writes nothing to the log. An earlier start of it, cut off from the driver and late,
is then the task's first one there. It could take a turn between the check of the transaction and its end, and
its records would be committed with those of the batch. A task with rows needs none of this: its start is in
the log, and another one is refused there.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.slot.plan import TurnsBegin
from pyspark_kafka_eos.slot.turn_log import TurnLog
from pyspark_kafka_eos.slot.turns import Stopped, TaskStarted, Turns

DRIVER = -1
"""The driver's number among the tasks of a try."""

_REASON = (
    "its batch is being committed without this start of the task, whose rows another start has written or did not have"
)
_DEADLINE_S = 30.0
"""How long the driver reads for its own record, which is acknowledged. As long as for the check beside which this
runs.
"""


def end_turns(cluster: Cluster, begin: TurnsBegin, key: str, idle: Collection[int]) -> int | None:
    """End a try's turns. Returns the first task of `idle` that has a start which was granted a turn, or None.

    `begin`: where the tasks of the try take turns. `idle`: tasks that were sealed without rows. BrokerUnavailable, with
    nothing decided, where the log does not answer.
    """
    log = TurnLog(cluster, begin, key)
    start = f"driver-{runtime.uuid4().hex}"
    log.append_events([TaskStarted(DRIVER, start), Stopped(DRIVER, start, _REASON)])
    turns = Turns()
    deadline = runtime.monotonic() + _DEADLINE_S
    try:
        while runtime.monotonic() < deadline:
            for event in log.new_events():
                turns, _ = turns.handle(event)
                if event.start == start and isinstance(event, Stopped):
                    return min((task for task in idle if turns.starts.get(task) in turns.granted), default=None)
    finally:
        log.close()
    raise BrokerUnavailable(
        f"{begin.where} does not show the end of the batch's turns, which it has acknowledged, within {_DEADLINE_S:.0f} s; "
        "no record of the batch is visible",
        {"partition": str(begin.where)},
    )
