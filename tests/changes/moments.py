"""When a change comes: a query is brought to a moment of its second batch, and the change is made there.

Owns: the moments, and the proof that each was reached.
Does not know: what changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark_kafka_eos import crash_points
from tests.changes.small_spark import Query
from tests.changes.world import OUTPUT, PIPELINE, World

TIMEOUT_MS = 16 * 60 * 1000
"""Longer than any transaction may last: the longest that the connector asks for is 15 minutes."""


class Died(BaseException):
    """The driver is killed."""


class NotReached(AssertionError):
    """The query did not come to the moment."""


Change = Callable[[], None]
Bring = Callable[[World, Change], Query | None]
"""Returns the run that goes on; None where it is dead, and a new one has to be started."""


@dataclass(frozen=True)
class Moment:
    """`name`: for the page. `means`: what has happened by then."""

    name: str
    means: str
    bring: Bring


def _one_batch(world: World) -> Query:
    world.feed()
    query = world.start()
    if not query.batch():
        raise NotReached("the first batch found nothing")
    return query


def _running(world: World, change: Change) -> Query:
    query = _one_batch(world)
    change()
    return query


def _restarted(world: World, change: Change) -> None:
    _one_batch(world)
    change()


def _within(point: str) -> Bring:
    def bring(world: World, change: Change) -> Query:
        query = _one_batch(world)
        world.feed()
        world.hooks[point] = change
        return query

    return bring


def _killed(point: str, rests_ms: int = 0) -> Bring:
    def bring(world: World, change: Change) -> None:
        query = _one_batch(world)
        world.feed()
        kill(query, point)
        if rests_ms:
            world.clusters[world.sink].advance(rests_ms)
        change()

    return bring


def _torn(world: World, change: Change) -> None:
    query = _one_batch(world)
    world.feed()
    name = f"{PIPELINE}:{'batch' if world.scope == 'batch' else '0'}"
    fault = world.clusters[world.sink].fault_at_marker(OUTPUT, None, "forget", transactional_id=name, commit=True)
    kill(query, "mend-added")
    if fault.fired != 1:
        raise NotReached("no marker was forgotten")
    world.clusters[world.sink].advance(TIMEOUT_MS)
    change()


def kill(query: Query, point: str) -> None:
    """Run the next batch up to a point, at which its processes die."""
    fired = []

    def die() -> None:
        fired.append(point)
        raise Died

    crash_points.arm(point, 1, die)
    try:
        query.batch()
    except Died:
        pass
    finally:
        crash_points.arm("")
    if not fired:
        raise NotReached(f"the batch did not reach {point}")
    query.many.end_all()


MOMENTS = (
    Moment("running", "between two batches of one run", _running),
    Moment("restarted", "between two runs, nothing left open", _restarted),
    Moment("planned", "the source has planned the batch, its tasks have not read yet", _within("planned")),
    Moment("begun", "the driver has planned the batch, its tasks have not begun", _within("begun")),
    Moment("written", "every task is sealed, the driver has not decided", _within("written")),
    Moment("written, killed", "the same, and the driver is killed", _killed("before-check")),
    Moment("decided", "killed behind the decision, its transactions are open", _killed("after-decision")),
    Moment("timed out", "killed behind the decision, and the coordinator has aborted what was open", _killed("after-decision", TIMEOUT_MS)),
    Moment("torn", "a marker was forgotten and its mending timed out: committed in some partitions, aborted in one", _torn),
    Moment("ended", "killed when every marker is there, without the note that says so", _killed("before-note-ended")),
    Moment("noted", "killed behind that note, before Spark's commit log", _killed("after-note-ended")),
)  # fmt: skip
