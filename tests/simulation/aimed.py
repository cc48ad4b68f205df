"""Histories that reach rows of the machines which chance does not reach.

Owns: the table `AIMED`: which faults come together, for which job.
Does not know: the rows (`coverage` counts them); what an act does (`planted.recipes`, `circumstances`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embedded_kafka.faults.fault import AnswerFault, Fault, WireFault
from kafka_core.protocol.error_codes import Code
from tests.simulation import circumstances as given
from tests.simulation.circumstances import LEDGER
from tests.simulation.faults import STRIKES, after_batch
from tests.simulation.planted.recipes import Act, at, cut, forgotten, frozen, frozen_tasks, kill_this, later
from tests.simulation.play import OUTPUT, Faults, Scene

DRIVER = "pipe:driver"
BOTH, TASK, BATCH = ("task", "batch"), ("task",), ("batch",)


@dataclass(frozen=True)
class Aimed:
    """`scopes`, `versions`: those in which it means something."""

    faults: Faults
    scopes: tuple[str, ...] = BOTH
    versions: tuple[int, ...] = (1, 2)
    job: str = ""
    batches: int = 2


AIM = "aimed: "
"""Before the name, where storms are named."""


# ---- acts


def executors_killed(seconds: float) -> Act:
    """All executors die again and again for so long, so every attempt of every task fails."""

    def act(scene: Scene) -> None:
        until = scene.world.now + seconds

        def kill() -> None:
            for executor in scene.job.executors:
                scene.world.kill(executor)
            if scene.world.now < until:
                scene.world.schedule(0.3, kill)

        kill()

    return act


def one_executor_killed(seconds: float) -> Act:
    """The second executor alone, so that the first task may be done."""

    def act(scene: Scene) -> None:
        until = scene.world.now + seconds

        def kill() -> None:
            scene.world.kill(scene.job.executors[1])
            if scene.world.now < until:
                scene.world.schedule(0.2, kill)

        kill()

    return act


def frozen_here(seconds: float) -> Act:
    """The process that reaches the point freezes, which with a hand-over is not the driver."""
    return lambda scene: scene.world.freeze(scene.world.running().process, seconds)


def denied(operation: str, resource: str, name: str, seconds: float) -> Act:
    """See `circumstances.denied`."""
    return lambda scene: given.denied(scene, (operation, resource, name), seconds)


def full(seconds: float, after: int = 0) -> Act:
    """The disk is full for so long, after so many more writes."""
    return lambda scene: given.disk_full(scene, seconds, after)


def late(topic: str, seconds: float) -> Act:
    """The next marker there, of a commit or an abort, is late."""
    return lambda scene: given.late_marker(scene, topic, seconds)


def answered(api: str, code: Code, *, skip: int = 0, times: int = 1) -> Act:
    """The broker does what is asked and answers with an error."""

    def act(scene: Scene) -> None:
        faults = scene.broker.faults
        fault = faults.inject(Fault(AnswerFault.ERROR, api=api, code=code, skip=skip, times=times))
        faults.names[fault.number] = "done and refused"

    return act


def refused(api: str, code: Code, *, skip: int = 0, times: int = 1) -> Act:
    """The broker does nothing and answers with an error."""

    def act(scene: Scene) -> None:
        faults = scene.broker.faults
        fault = faults.inject(Fault(WireFault.ERROR, api=api, code=code, skip=skip, times=times))
        faults.names[fault.number] = "refused request"

    return act


def answer_lost(api: str, *, skip: int = 0) -> Act:
    """The broker does what is asked and closes the connection."""

    def act(scene: Scene) -> None:
        faults = scene.broker.faults
        faults.names[faults.inject(Fault(WireFault.DROP_ANSWER, api=api, skip=skip)).number] = "lost answer"

    return act


def delayed(api: str, seconds: float, *, skip: int = 0) -> Act:
    """The broker handles a request later."""

    def act(scene: Scene) -> None:
        faults = scene.broker.faults
        fault = faults.inject(Fault(WireFault.DELAY, api=api, delay_ms=round(1000 * seconds), skip=skip))
        faults.names[fault.number] = "slow request"

    return act


def struck(kind: str) -> Act:
    """A strike of `STRIKES`."""
    return lambda scene: STRIKES[kind](scene)


def rest(days: float) -> Act:
    """See `circumstances.long_rest`."""
    return lambda scene: given.long_rest(scene, days)


def _no_right_to_ask(scene: Scene) -> None:
    denied("DESCRIBE", "TRANSACTIONAL_ID", DRIVER, 20)(scene)


REPAIRED = "before-end"
"""Where a frozen driver lets the slots that it has decided time out, so that they are repaired."""

AIMED: Mapping[str, Aimed] = {
    # ---- what Spark gives up
    "every attempt of a task fails": Aimed(at({("after-init-producer-id", n): [kill_this] for n in range(1, 12)}), TASK),
    "every attempt of a task fails, in one transaction": Aimed(at({("after-turn", n): [kill_this] for n in range(1, 12)}), BATCH),
    "a task fails, a hand-over gives the batch up": Aimed(
        at({("after-init-producer-id", n): [kill_this] for n in range(2, 12)}), TASK, job="handed over"
    ),
    "a task fails, a hand-over gives the batch up, in one transaction": Aimed(
        at({("after-turn", 2): [kill_this]}), BATCH, job="handed over"
    ),
    "a task of a repair fails": Aimed(
        at({REPAIRED: [frozen(30)], **{("after-init-producer-id", n): [kill_this] for n in range(3, 14)}}), TASK
    ),
    # ---- decisions without an answer
    "the decision's answer held up": Aimed(at({"decision-written": [cut("broker", "driver")]})),
    "the decision held up for longer than it may be open": Aimed(
        at({"decision-written": [delayed("EndTxn", 70)]})
    ),
    "nothing shows the decision's outcome": Aimed(
        at({"decision-written": [lambda scene: _cut_off(scene, 200)]})
    ),
    # ---- repairs
    "the repair's record has its answer held up": Aimed(
        at({REPAIRED: [frozen(30)], ("decision-written", 2): [cut("broker", "driver")]}), TASK
    ),
    "the repair's record held up for longer than it may be open": Aimed(
        at({REPAIRED: [frozen(30)], ("decision-written", 2): [delayed("EndTxn", 70)]}), TASK
    ),
    "nothing shows the outcome of the repair's record": Aimed(
        at({REPAIRED: [frozen(30)], ("decision-written", 2): [lambda scene: _cut_off(scene, 200)]}), TASK
    ),
    "the right to write the ledger gone before the repair's record": Aimed(
        at({REPAIRED: [frozen(30)], ("before-decision", 2): [denied("WRITE", "TOPIC", LEDGER, 20)]}), TASK
    ),
    "a repair with a hand-over": Aimed(at({REPAIRED: [frozen_here(30)]}), TASK, job="handed over"),
    # ---- a step that fails
    "nobody answers the check": Aimed(at({"before-check": [lambda scene: _cut_off(scene, 200)]})),
    "nobody answers the ends": Aimed(at({"before-end": [lambda scene: _cut_off(scene, 200)]}), TASK),
    "nobody says whether markers are there": Aimed(at({"after-decision": [lambda scene: _cut_off(scene, 200)]}), BATCH),
    "the right to end a decided slot gone": Aimed(
        at({"before-end": [denied("WRITE", "TRANSACTIONAL_ID", "pipe:0", 20)]}), TASK
    ),
    "nobody says whether a repair stands alone": Aimed(
        at({REPAIRED: [frozen(30)], "after-rewrite": [lambda scene: _cut_off(scene, 200)]}), TASK
    ),
    "the decision refused, and no right to ask why": Aimed(
        at({"before-decision": [refused("AddOffsetsToTxn", Code.INVALID_PRODUCER_EPOCH), _no_right_to_ask]})
    ),
    "the repair's record refused, and no right to ask why": Aimed(
        at(
            {
                REPAIRED: [frozen(30)],
                ("before-decision", 2): [refused("AddOffsetsToTxn", Code.INVALID_PRODUCER_EPOCH), _no_right_to_ask],
            }
        ),
        TASK,
    ),
    # ---- one partition, many batches. The first one of an epoch is alone in flight, so what fails is one behind it.
    "produce refused for now": Aimed(
        at({"mid-produce": [refused("Produce", Code.NOT_LEADER_OR_FOLLOWER, skip=1, times=4)]}), job="many batches"
    ),
    "one of many produce requests refused for now": Aimed(
        at({"mid-produce": [refused("Produce", Code.NOT_ENOUGH_REPLICAS, skip=1)]}), job="many batches"
    ),
    "produce done and refused for good": Aimed(
        at({"mid-produce": [answered("Produce", Code.UNKNOWN_SERVER_ERROR, skip=2)]}), job="many batches"
    ),
    "a produce request too many": Aimed(
        at({"mid-produce": [refused("Produce", Code.OUT_OF_ORDER_SEQUENCE_NUMBER, skip=2)]}), job="many batches"
    ),
    "a produce request too many, the next one's answer lost": Aimed(
        at(
            {
                "mid-produce": [
                    refused("Produce", Code.OUT_OF_ORDER_SEQUENCE_NUMBER, skip=2),
                    answer_lost("Produce", skip=2),
                ]
            }
        ),
        job="many batches",
    ),
    "all produce requests refused for good": Aimed(
        at({"mid-produce": [refused("Produce", Code.INVALID_RECORD, skip=1, times=4)]}), job="many batches"
    ),
    "produce held up and connections reset": Aimed(
        at({"mid-produce": [delayed("Produce", 0.5), later(0.1, struck("reset"))]}), job="many batches"
    ),
    # ---- turns
    "a turn passed on after the try has broken": Aimed(
        at({("after-turn", 2): [frozen_tasks(0.0), one_executor_killed(0.1)]}), BATCH
    ),
    # ---- coordinators
    "a week without the query": Aimed(after_batch(0, rest(8))),
    "two weeks without the query": Aimed(
        after_batch(0, lambda scene: (rest(8)(scene), scene.world.schedule(0.001, lambda: rest(8)(scene)))[0])
    ),
    **{
        f"the disk full {after} writes after {point}": Aimed(at({point: [full(2.0, after)]}))
        for point in ("before-decision", "decision-written", "before-end", "after-init-producer-id")
        for after in (0, 2, 7)
    },
    "the disk full when a slot begins again": Aimed(at({("before-init-producer-id", 3): [full(2.0)]}), TASK),
    "the marker of an abort late, its transaction asked for more": Aimed(
        at({"after-last-acknowledgement": [late(OUTPUT, 3.0), executors_killed(0.1)]})
    ),
    "the marker of an abort late, the broker killed": Aimed(
        at(
            {
                "after-last-acknowledgement": [
                    late(OUTPUT, 30.0),
                    executors_killed(0.1),
                    later(2.0, struck("kill broker")),
                ]
            }
        )
    ),
    **{
        f"the marker of an abort late, the disk full {after} writes later": Aimed(
            at(
                {
                    "after-last-acknowledgement": [
                        late(OUTPUT, 3.0),
                        kill_this,
                        later(2.0, full(2.0, after)),
                    ]
                }
            ),
            TASK,
        )
        for after in (1, 2, 3, 4)
    },
    "a marker of the ledger forgotten, the next batch's tasks killed": Aimed(
        at({"before-decision": [forgotten(LEDGER)], ("after-last-acknowledgement", 3): [kill_this]})
    ),
    "a marker of the ledger forgotten, the driver killed in the next batch's tasks": Aimed(
        at({"before-decision": [forgotten(LEDGER)], ("after-last-acknowledgement", 3): [struck("kill driver")]})
    ),
    "a marker forgotten, a batch later a week without the query": Aimed(
        at({"before-decision": [forgotten(OUTPUT)], ("before-check", 2): [rest(8)]})
    ),
}  # fmt: skip
"""What reaches a row that random strikes miss."""


def _cut_off(scene: Scene, seconds: float) -> None:
    scene.net.cut("driver", "broker", seconds)
    scene.net.cut("broker", "driver", seconds)
