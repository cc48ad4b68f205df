"""The faults under which planted bugs show: by crash point, by name.

Does not know: the bugs.
Invariants: a recipe draws nothing, so the seed decides about the network alone; `storm` and `at a step` are the
exceptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from embedded_kafka.faults.fault import Fault, LeaderFault, MarkerFault, WireFault
from embedded_kafka.leader_views import take_stand
from embedded_kafka.node import Node
from kafka_core import runtime
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.writing.appending import one_value
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.records import murmur2_of
from tests.simulation.circumstances import elect, long_rest
from tests.simulation.cluster import BROKERS
from tests.simulation.faults import STRIKES, storm
from tests.simulation.judge import PARTITIONS
from tests.simulation.long_life import REFUSALS, long_life
from tests.simulation.play import Faults, Scene, no_faults
from tests.simulation.watch import OUTPUT

Act = Callable[[Scene], None]

UNANSWERED_S = 80.0
"""A little longer than a client asks for an outcome, so that what follows from not knowing it meets a broker that
answers.
"""


def at(moments: Mapping[str | tuple[str, int], Sequence[Act]]) -> Faults:
    """Acts at crash points; with a number: the time that the point is reached, from 1."""

    def schedule(scene: Scene) -> None:
        seen: Counter[str] = Counter()

        def reached(name: str) -> None:
            seen[name] += 1
            acts = [*moments.get((name, seen[name]), ()), *(moments.get(name, ()) if seen[name] == 1 else ())]
            for act in acts:
                act(scene)
            if acts:
                # A step of its own: a process that was killed does not pass it.
                runtime.sleep(0.0)

        scene.at_crash_points(reached)

    return schedule


# ---- acts


def strike(name: str) -> Act:
    """One of `STRIKES`."""
    return lambda scene: STRIKES[name](scene)


def zombie(seconds: float) -> Act:
    """The driver freezes, and another one is started."""

    def act(scene: Scene) -> None:
        scene.world.fired["zombie"] += 1
        scene.job.abandon_driver(seconds)

    return act


def short_zombie(scene: Scene) -> None:
    """The first driver goes on while the second one is at work; the seed gives when."""
    zombie(0.015 + 0.0007 * (scene.world.seed % 200))(scene)


def moved_on(scene: Scene) -> None:
    """The driver is killed, and Spark's commit log has its batch as done: somebody put it there, or the function of
    `foreachBatch` returned when the batch was run again.
    """
    scene.world.fired["commit log moved on"] += 1
    KILL(scene)
    scene.job.done_batches += 1


def frozen(seconds: float) -> Act:
    """The driver freezes, and Spark does not notice."""
    return lambda scene: scene.world.freeze(scene.job.driver, seconds)


def frozen_tasks(seconds: float) -> Act:
    """All executors freeze."""

    def act(scene: Scene) -> None:
        for executor in scene.job.executors:
            scene.world.freeze(executor, seconds)

    return act


def cut(sender: str, receiver: str) -> Act:
    """One way is cut for a little longer than a client asks for an outcome: what is sent meanwhile arrives late."""
    return lambda scene: scene.net.cut(sender, receiver, UNANSWERED_S)


def later(seconds: float, act: Act) -> Act:
    """An act some time after the moment."""
    return lambda scene: scene.world.schedule(seconds, lambda: act(scene))


def forgotten(topic: str, *, commit: bool | None = True, transactional_id: str | None = None, skip: int = 0) -> Act:
    """The broker counts a marker as written and does not write it."""

    def act(scene: Scene) -> None:
        assert scene.broker.node is not None
        scene.broker.node.parts.faults.inject(
            Fault(MarkerFault.FORGET, topic=topic, commit=commit, transactional_id=transactional_id, skip=skip)
        )
        scene.world.fired["forgotten marker"] += 1

    return act


def late_marker(topic: str, seconds: float) -> Act:
    """The broker writes a marker late."""

    def act(scene: Scene) -> None:
        assert scene.broker.node is not None
        scene.broker.node.parts.faults.inject(Fault(MarkerFault.LATE, topic=topic, delay_ms=round(1000 * seconds)))
        scene.world.fired["late marker"] += 1

    return act


def lost(api: str, action: WireFault, seconds: float, transactional_id: str | None = None) -> Act:
    """For so long every request of an API is lost, or every answer to one."""

    def act(scene: Scene) -> None:
        assert scene.broker.node is not None
        faults = scene.broker.node.parts.faults
        fault = faults.inject(Fault(action, api=api, times=10**6, transactional_id=transactional_id))
        scene.world.fired[f"{action.value} {api}"] += 1
        scene.world.schedule(seconds, lambda: faults.release(fault))

    return act


def kill_this(scene: Scene) -> None:
    """The process that is at the point."""
    scene.world.kill(scene.world.running().process)


def freeze_this(scene: Scene) -> None:
    """The process that is at the point, for longer than its transactions may take."""
    scene.world.freeze(scene.world.running().process, 30)


def slow(api: str, seconds: float, *, skip: int = 0, **of: str) -> Act:
    """The broker handles one request late: of a transactional id, or of a topic."""

    def act(scene: Scene) -> None:
        assert scene.broker.node is not None
        scene.broker.node.parts.faults.inject(
            Fault(WireFault.DELAY, api=api, delay_ms=round(1000 * seconds), skip=skip, **of)  # type: ignore[arg-type]
        )
        scene.world.fired[f"slow {api}"] += 1

    return act


def refused_for_now(api: str, code: Code, transactional_id: str) -> Act:
    """The broker does not do what one request asks, and says that it will soon."""

    def act(scene: Scene) -> None:
        assert scene.broker.node is not None
        scene.broker.node.parts.faults.inject(
            Fault(WireFault.ERROR, api=api, code=code, transactional_id=transactional_id)
        )
        scene.world.fired["refused for now"] += 1

    return act


def each_output(act: Callable[[Scene, Node, TopicPartition], None]) -> Act:
    """Something that happens to each partition of the output, in the broker."""

    def all_of_them(scene: Scene) -> None:
        for number in range(PARTITIONS):
            where = TopicPartition(OUTPUT, number)
            scene.broker.do(lambda node, where=where: act(scene, node, where))  # type: ignore[misc]

    return all_of_them


def lose_in_election(scene: Scene, node: Node, where: TopicPartition) -> None:
    """A leader is elected that has nothing of the first batch, and the client hears of it at its next question about
    producers.
    """
    if where.partition == 0:
        node.parts.controller.elect(where, lost_from=0)
        node.parts.readers.wake(where)
        node.parts.faults.inject(
            Fault(WireFault.ERROR, api="DescribeProducers", code=Code.NOT_LEADER_OR_FOLLOWER, topic=where.topic)
        )
        scene.world.fired["records lost in an election"] += 1


def answers_of(leader: LeaderFault, end: int) -> Callable[[Scene, Node, TopicPartition], None]:
    """Another leader than the present one answers some times, whose log ends at this offset."""

    def act(scene: Scene, node: Node, where: TopicPartition) -> None:
        fault = Fault(leader, topic=where.topic, partition=where.partition, end=end, times=OTHER_ANSWERS)
        node.parts.faults.inject(take_stand(node.parts, fault))
        scene.world.fired[f"{leader.value} {where}"] += 1

    return act


def remove(scene: Scene, node: Node, where: TopicPartition) -> None:
    """All records are deleted."""
    scene.lost |= scene.broker.written(OUTPUT, PARTITIONS)
    log = node.parts.topics.log(where)
    log.delete_records(log.end_offset)
    scene.world.fired["records removed"] += 1


def grow_ledger(scene: Scene) -> None:
    """The ledger topic has more partitions, and the pipeline's key another one."""

    def act(node: Node) -> None:
        topic = node.parts.topics.get(LEDGER)
        assert topic is not None
        hashed = int(murmur2_of(one_value(scene.job.options["pipeline"].encode()))[0]) & 0x7FFFFFFF
        before = count = topic.partitions
        while hashed % count == hashed % before:
            count += 1
        node.parts.topics.add_partitions(LEDGER, count)
        scene.world.fired["ledger grown"] += 1

    scene.broker.do(act)


def nobody_to_ask(scene: Scene) -> None:
    """An error that asks a person to act ends the history."""
    scene.job.final |= REFUSALS


def rest(days: float) -> Act:
    """The broker's clock moves on: ids expire."""
    return lambda scene: long_rest(scene, days)


def another_leader(scene: Scene) -> None:
    """The output has another leader, and the executors are new ones, so the next batch is written under it."""
    for number in range(PARTITIONS):
        elect(scene, TopicPartition(OUTPUT, number))
    for executor in scene.job.executors:
        scene.world.kill(executor, struck=False)


OTHER_ANSWERS = 6
"""Of another leader. A start asks some three times before it would conclude."""

KILL = strike("kill driver")
LEDGER = DEFAULT_LEDGER_TOPIC


def at_a_step(victim: str, steps: int = 600) -> Faults:
    """At a step that the seed gives, spread over the first so many."""

    def schedule(scene: Scene) -> None:
        world = scene.world
        last = world.steps + 3 + 37 * world.seed % steps

        def look() -> None:
            if world.steps >= last:
                world.before_step = None
                STRIKES[victim](scene)

        world.before_step = look

    return schedule


def to_one_broker(does: Callable[[Scene, int], None]) -> Faults:
    """To one broker of the three, at a moment of two batches; the seed gives both."""

    def schedule(scene: Scene) -> None:
        seed = scene.world.seed
        scene.world.schedule(0.001 * (7 * seed % 120), lambda: does(scene, seed % BROKERS))

    return schedule


LONG_S = 38.0
"""Longer than one request of a client waits for its answer."""

RECIPES: Mapping[str, Faults] = {
    "one broker frozen for longer than a request": to_one_broker(
        lambda scene, node_id: scene.broker.freeze_one(node_id, LONG_S, noticed=False)
    ),
    "none": no_faults,
    "storm": storm,
    "driver killed at a step": at_a_step("kill driver"),
    "executor killed at a step": at_a_step("kill executor", 1_000),
    "broker killed at a step": at_a_step("kill broker"),
    "zombie at a step": at_a_step("zombie"),
    "reset at a step": at_a_step("reset"),
    "driver killed after the decision": at({"after-decision": [KILL]}),
    "commit log moved on behind a decision": at({"after-decision": [moved_on]}),
    "driver killed after the ends": at({"after-end": [KILL]}),
    "driver killed before the check": at({"before-check": [KILL]}),
    "driver frozen before the check": at({"after-seal": [frozen(30)]}),
    "driver held up before the check": at({"after-seal": [frozen(13)]}),
    "driver frozen in the decision": at({"decision-written": [frozen(30)]}),
    "driver frozen before the ends": at({"before-end": [frozen(30)]}),
    "driver frozen before the ends, killed after the rewriting": at(
        {"before-end": [frozen(30)], "after-rewrite": [KILL]}
    ),
    "the decision's answer held up": at({"decision-written": [cut("broker", "driver")]}),
    "the decision held up": at({"decision-written": [cut("driver", "broker")]}),
    # The fifth ListOffsets is that of the look behind the coordinators' answers. The tasks freeze, so the answers are
    # old ones.
    "a zombie ends its batch while its successor judges the ledger": at(
        {
            ("before-init-producer-id", 3): [
                slow("ListOffsets", 1.2, topic=LEDGER, skip=4),
                frozen_tasks(0.6),
                zombie(0.6),
            ]
        }
    ),
    "an end refused for now": at(
        {"before-end": [refused_for_now("EndTxn", Code.COORDINATOR_LOAD_IN_PROGRESS, "pipe:0")]}
    ),
    "Produce: answers lost": at({"after-init-producer-id": [lost("Produce", WireFault.DROP_ANSWER, 0.05)]}),
    "ends: answers lost": at({"before-end": [lost("EndTxn", WireFault.DROP_ANSWER, 5, "pipe:0")]}),
    "one end lost, driver frozen": at(
        {"before-end": [lost("EndTxn", WireFault.DROP_REQUEST, 30, "pipe:1"), later(0.02, frozen(30))]}
    ),
    "the ends' answers held up": at({"before-end": [cut("broker", "driver")]}),
    "the ends held up": at({"before-end": [cut("driver", "broker")]}),
    "driver frozen before the ends, the repair held up": at(
        {"before-end": [frozen(30)], ("decision-written", 2): [cut("driver", "broker")]}
    ),
    "a short zombie over its batch": at({"before-check": [short_zombie]}),
    "a zombie decides while its successor waits for the fence": at(
        {"decision-written": [slow("InitProducerId", 1.2, transactional_id="pipe:driver"), zombie(0.6)]}
    ),
    "a marker of the output forgotten": at({"before-decision": [forgotten("out")]}),
    "a marker of the output late": at({("before-decision", 2): [late_marker("out", 1.0)]}),
    "a marker of the output late, broker killed meanwhile": at(
        {"before-end": [late_marker("out", 1.0), later(0.3, strike("kill broker"))]}
    ),
    "a marker of the ledger forgotten, driver killed": at(
        {"before-decision": [forgotten(LEDGER)], "after-decision": [KILL]}
    ),
    "a marker of the ledger forgotten, driver frozen in the next decision": at(
        {"before-decision": [forgotten(LEDGER)], ("decision-written", 2): [frozen(30)]}
    ),
    "a marker of the ledger forgotten, driver killed in the next batch's tasks": at(
        {"before-decision": [forgotten(LEDGER)], ("after-last-acknowledgement", 3): [KILL]}
    ),
    "a marker of the ledger forgotten, driver killed after the ends": at(
        {"before-decision": [forgotten(LEDGER)], "after-end": [KILL]}
    ),
    "long life": long_life,
    "records lost in an election, driver killed before the ends": at(
        {"before-end": [each_output(lose_in_election), KILL]}
    ),
    "the process that commits frozen before the ends, nobody there to ask": at(
        {"before-end": [nobody_to_ask, freeze_this]}
    ),
    "records lost in an election before the ends": at({"before-end": [each_output(lose_in_election)]}),
    "driver killed before the note, ids expired, a former leader of the output answers": at(
        {
            "after-note-ended": [another_leader],
            ("before-note-ended", 2): [rest(8), each_output(answers_of(LeaderFault.STALE, 1)), KILL],
        }
    ),
    "driver killed before the note, ids expired, a new leader of the output lags": at(
        {("before-note-ended", 2): [rest(8), each_output(answers_of(LeaderFault.LAGGING, 1)), KILL]}
    ),
    "driver killed behind the note, ids expired, records removed": at(
        {"after-note-ended": [rest(8), each_output(remove), KILL]}
    ),
    "driver killed after the ends, the ledger has more partitions": at({"after-end": [grow_ledger, KILL]}),
    "a marker of the output forgotten, driver killed while mending": at(
        {"before-decision": [forgotten("out")], "mend-added": [KILL]}
    ),
    "a marker of the output forgotten, driver frozen while mending": at(
        {"before-decision": [forgotten("out")], "mend-added": [frozen(30)]}
    ),
    "a task killed, the marker of its abort forgotten": at(
        {"after-last-acknowledgement": [forgotten("out", commit=False), kill_this]}
    ),
    "driver frozen before the ends, a task of the repair killed, the marker of its abort forgotten": at(
        {
            "before-end": [frozen(30)],
            ("after-last-acknowledgement", 3): [forgotten("out", commit=False), kill_this],
        }
    ),
}
