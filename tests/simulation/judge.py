"""What is asked of a history when it is over, beside what `watch` asks at every moment.

Owns: the history that the checker of tests/chaos judges, what is needless, how long the job may take after the last
fault.
Does not know: how a history is played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embedded_kafka.transactions.machine.events import TransactionState
from tests.chaos.checker import Kind, check
from tests.chaos.history import Batch, History, Isolation, LogEntry, Read, Scope
from tests.simulation.decisions import SOURCE
from tests.simulation.handed_over import HandedOver
from tests.simulation.job import rows_of, source_offset
from tests.simulation.tail import log_of
from tests.simulation.watch import OUTPUT, Watch
from tests.simulation.world import PARTS

if TYPE_CHECKING:
    from tests.simulation.play import Scene

OFFSETS = "__consumer_offsets"
PARTITIONS = 2
"""Of the output topic."""

ALIVE_S = 200.0
"""How long after the last fault the job may take at most. One run can wait for a decision without an end for 90 s, and
for markers or an answer for 60 s; at half, an unlucky history would be refused, at double one run that waits in vain
would pass.
"""

SETTLED_S = 100.0
"""After the job's end. What zombies have open is aborted by its timeout of 20 s within this time."""

_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True)
class Allowed:
    """What a history may do that had one kind of fault, or none. `errors`: runs that ended with one. `seconds`: from
    the end of the last fault to the job's.
    """

    seconds: float
    runs: int = 1
    errors: int = 0
    redone: int = 0
    repairs: int = 0


CALM = Allowed(0.3)
"""Measured: 0.07 to 0.09 s. No wait of the product is as short as 0.1 s."""

ALONE: Mapping[str, Allowed] = {
    # A connection that is lost and a clock that jumps cost nothing: requests are sent again, and no rule asks a clock.
    "reset": CALM,
    "refused for now": CALM,
    "clock": CALM,
    # Spark looks every 0.5 s whether the driver lives. What was open is ended or aborted at once, never waited for.
    "kill driver": Allowed(1.5, runs=2),
    # A batch is done again where the last decision lacks its marker. Mending takes no repair. Measured: 0.48 to 0.58 s,
    # of which Spark takes up to 0.5 s to notice. Five looks at the ledger that a broker holds for 0.1 s each would
    # show.
    "kill driver, forgotten marker": Allowed(1.0, runs=2, redone=1),
    "zombie": Allowed(1.5, runs=2, errors=1),
    # It goes on as the newest run, whose query nobody waits for any more: its successor is fenced, and the query is
    # started again. Measured: up to 3.5 s.
    "zombie, before it took its id": Allowed(4.5, runs=3, errors=2),
    # Spark notices after 1 s. With scope=batch the batch is done again: the dead task may have had a turn.
    "kill executor": Allowed(1.8),
    # Nobody can do the batch again in the process that commits: the query is started again. Measured: up to 3.6 s.
    "kill executor, batch handed over": Allowed(4.5, runs=2, errors=1),
    # Down for up to 30 s or frozen for as long, where transactions time out after 20 s: too late to decide or to end,
    # once. A driver that finds no broker for 30 s gives up. A driver whose decision timed out looks for a newer run for
    # 1 s.
    "kill broker": Allowed(3.5, runs=2, errors=1, redone=1, repairs=1),
    "freeze": Allowed(3.5, redone=1, repairs=1),
    # One broker of three: no run ends, and the batch is done again at most where it outlasts its transactions.
    # Measured: up to 1.92 s behind the end of the fault.
    **dict.fromkeys(("broker killed", "broker frozen"), Allowed(3.5, redone=1, repairs=1)),
    **dict.fromkeys(("leaders moved", "leader lags", "unacknowledged tail lost"), Allowed(1.0)),
    "too few in sync": Allowed(1.0, redone=1),
    # What a leader that was cut off has in flight is not acknowledged for as long as a request may take, which may be
    # longer than its transaction.
    "broker cut off": Allowed(3.5, runs=2, errors=1, redone=1, repairs=1),
    # The process that commits finds the loss and cannot mend it, the next one's start defers it to the tasks, their
    # commit mends it.
    "freeze, batch handed over": Allowed(4.5, runs=2, errors=1, repairs=3),
}
"""What one fault alone may cause. Where a repair is allowed, `watch` still asks for the abort marker that it needs."""


LIVES = ("broker killed", "broker frozen", "broker cut off")
OF_ONE_BROKER = (*LIVES, "leaders moved", "leader lags", "unacknowledged tail lost", "too few in sync")
"""Rows of `ALONE` that strike one broker of three, or what it leads."""


def judge(scene: Scene, watch: Watch) -> list[str]:
    """What is wrong with it, in words. Ends the history: faults are over, the broker runs until nothing is open."""
    world, job = scene.world, scene.job
    # A fault took records away: what the looks hold against the logs may be its work.
    seen = [] if scene.lost or _unchecked(scene) else watch.problems
    explained = isinstance(job.fatal, tuple(job.final))
    if job.fatal is not None and not explained:
        return [*seen, f"stopped by {type(job.fatal).__name__}: {job.fatal}"]
    if not explained and job.done_batches < job.batches:
        return [
            *seen,
            f"not finished after {world.now:.0f} s and {world.steps} steps: {job.errors[-2:]}",
        ]
    problems = list(_needless(scene, watch))
    unended = watch.not_committed(job.batches)
    if unended and not scene.lost:
        problems.append(f"Spark holds all for done, and {sorted(unended)} is not committed")
    if not _settled(scene):
        return [*seen, f"the broker does not serve: {scene.broker.error!r}"]
    if scene.lost:
        return list(_what_is_left(scene))
    if _unchecked(scene):
        return [each for each in _what_is_left(scene) if each.startswith("twice or foreign {'")]
    # What the looks found goes first: it tells when a history went wrong.
    return [*watch.problems, *_at_the_end(scene, watch), *problems]


def judge_the_end(scene: Scene) -> list[str]:
    """The same of a history that nobody watched: it is finished, every row is there once, and nothing is open."""
    job = scene.job
    if job.fatal is not None or job.done_batches < job.batches:
        return [f"{job.done_batches} of {job.batches} batches after {scene.world.now:.0f} s: {job.errors[-2:]}"]
    if not _settled(scene):
        return [f"the broker does not serve: {scene.broker.error!r}"]
    return list(_what_is_left(scene))


def _settled(scene: Scene) -> bool:
    """Faults are over, and the broker runs until nothing is open. Whether it serves."""
    world = scene.world
    scene.net.cut_until.clear()
    scene.net.slow = 0.0
    world.before_step = None
    scene.broker.start()
    world.run(lambda: scene.broker.up, seconds=60)
    world.run(lambda: False, seconds=max(0.0, scene.broker.whole_at - world.now))
    world.run(lambda: False, seconds=SETTLED_S)
    return scene.broker.up


def _unchecked(scene: Scene) -> bool:
    """Whether markers may be missing that the product could not look for: without READ on the output it takes them for
    written.
    """
    fired = scene.world.fired
    return fired["right denied"] > 0 and any(each.startswith("forgotten marker") for each in fired)


def _what_is_left(scene: Scene) -> Iterator[str]:
    """Of a history in which a fault took records away: the others are there, and none comes twice."""
    job = scene.job
    found, still_open = scene.broker.records(OUTPUT, PARTITIONS)
    foreign = found - job.expected(job.batches)
    missing = job.expected(job.done_batches) - found
    missing = Counter({row: count for row, count in missing.items() if row not in scene.lost})
    if foreign or missing:
        yield f"twice or foreign {dict(foreign)}, missing {dict(missing)}"
    if still_open:
        yield f"{still_open} records are open"


def _at_the_end(scene: Scene, watch: Watch) -> Iterator[str]:
    job = scene.job
    found, still_open = scene.broker.records(OUTPUT, PARTITIONS)
    expected = job.expected(job.batches)
    if found != expected:
        yield f"twice or foreign {dict(found - expected)}, missing {dict(expected - found)}"
    if still_open:
        yield f"{still_open} records are open"
    # Where only the offsets' marker is missing, the next start of the query has it written. This job has no next start.
    pending = scene.world.fired[f"forgotten marker {OFFSETS}"] > 0
    for anomaly in check(history_of(scene, watch)):
        if anomaly.kind is Kind.INCONSISTENT_OFFSETS and pending:
            continue
        # A mending that timed out leaves a transaction torn. Its repair keeps the committed part.
        if anomaly.kind is not Kind.SPLIT_TRANSACTION or not watch.decisions.kept:
            yield str(anomaly)
    if Counter(row.record for row in watch.final_rows()) != expected:
        yield "a reader of committed records was not given every row once"
    if watch.decisions.group != {SOURCE: source_offset(job.batches - 1)} and not pending:
        yield f"the group is at {watch.decisions.group}"


def history_of(scene: Scene, watch: Watch) -> History:
    """The history as the checker of tests/chaos takes it: the logs' bytes, read anew, and what the looks saw."""
    job = scene.job
    moment = watch.moment()
    return History(
        scope=Scope.BATCH if watch.in_one_transaction else Scope.TASK,
        batches=tuple(
            Batch(
                number,
                tuple(tuple(rows_of(number, slot, job.rows_in(number, slot))) for slot in range(job.slots)),
                {SOURCE: source_offset(number)},
            )
            for number in range(job.batches)
        ),
        log=tuple(_log(scene)),
        reads=(*watch.reads, Read(moment, Isolation.COMMITTED, watch.final_rows(), watch.decisions.group)),
        decisions=tuple(watch.decisions.seen),
        offsets_seen=tuple(watch.decisions.offsets),
        open_transactions=tuple(
            name for name, entry in sorted(watch.decisions.coordinator.items()) if entry.state in _OPEN
        ),
        finished=tuple(range(job.done_batches)),
    )


def _log(scene: Scene) -> Iterator[LogEntry]:
    data = scene.broker.directory / "data"
    for number in range(PARTITIONS):
        yield from log_of(OUTPUT, number, data.glob(f"**/{OUTPUT}-{number}/*.log"))


# ---- what is needless


def _needless(scene: Scene, watch: Watch) -> Iterator[str]:
    took_s = scene.world.now - last_trouble_s(scene, watch)
    job, alone = scene.job, only_fault(scene)
    if alone is None:
        if took_s > ALIVE_S:
            yield f"the job took {took_s:.0f} s after the last fault"
        return
    # With one transaction a dead task may have had a turn; without, only another process can write lost slots again.
    if isinstance(job, HandedOver) and alone == ("kill executor" if watch.in_one_transaction else "freeze"):
        alone = f"{alone}, batch handed over"
    allowed = CALM if alone == "" else ALONE[alone]
    redone = 1 if alone == "kill executor" and watch.in_one_transaction else allowed.redone
    after = f"after {alone!r} alone" if alone else "without a fault"
    for what, found, most in (
        ("runs", job.runs, allowed.runs),
        ("runs that ended with an error", len(job.errors), allowed.errors),
        ("repairs", watch.repairs_begun, allowed.repairs),
        ("batches done again", job.redone, redone),
        ("seconds", round(took_s, 3), allowed.seconds),
    ):
        if found > most:
            yield f"{found} {what} {after}, {most} allowed: {job.errors}"


def only_fault(scene: Scene) -> str | None:
    """The one kind of fault that struck, a row of `ALONE`; "" where none did, None where one strike does not tell
    all.
    """
    fired = {kind: count for kind, count in scene.world.fired.items() if kind not in PARTS}
    if fired == {"kill": 1, "forgotten marker": 1} and scene.world.victims == ["driver"]:
        return "kill driver, forgotten marker"
    if not fired:
        return ""
    if fired == {"kill": 1}:
        return f"kill {scene.world.victims[0].rstrip('01')}"
    if fired == {"zombie": 1}:
        return "zombie, before it took its id" if scene.job.overtakes else "zombie"
    if fired == {"freeze": 1}:
        return "freeze"
    if fired.get("clock", 0) > 1:
        # Two jumps may add up to more than the hour by which a broker lets a record's timestamp be ahead.
        return None
    (kind, *more) = fired
    if not more and kind in OF_ONE_BROKER:
        # Two brokers at once are more than a cluster of three can do without; nobody has measured hand-overs.
        once = fired[kind] == 1 or kind not in LIVES
        return kind if once and not isinstance(scene.job, HandedOver) else None
    return kind if not more and kind in ("reset", "clock", "refused for now") else None


def last_trouble_s(scene: Scene, watch: Watch) -> float:
    """When the last fault was over: struck, thawed, linked and started again."""
    world = scene.world
    moments = [
        watch.last_fault_s,
        *(process.frozen_until for process in world.processes),
        *scene.net.cut_until.values(),
        scene.broker.ready_at,
        scene.broker.whole_at,
    ]
    return min(world.now, max(moments))
