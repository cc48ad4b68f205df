"""What changes around the job: markers that are forgotten, the disk, time, access rights, the cluster, the links of all
processes.

Owns: the tables `CIRCUMSTANCES` and `LOSSES`; a strike of `LOSSES` takes records away and names them in `scene.lost`.
Does not know: the product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from embedded_kafka.faults.fault import Fault, MarkerFault
from embedded_kafka.node import Node
from embedded_kafka.security.authorizer import ANY
from embedded_kafka.settings.config import DAY_MS
from kafka_core.errors import AuthorizationFailed, DecisionBroken, UnknownTopic
from kafka_core.values import TopicPartition
from tests.simulation.hooks import BROKER
from tests.simulation.play import OUTPUT, PARTITIONS, SAFE, Scene

LEDGER = "exactly-once-ledger"
OFFSETS = "__consumer_offsets"

KEPT = {"retention.ms": "-1", **SAFE}
"""The output's configuration wherever a fault changes it: the broker's clock may be days ahead of its records."""

RIGHTS = (
    ("WRITE", "TOPIC", OUTPUT),
    ("DESCRIBE", "TOPIC", OUTPUT),
    ("READ", "TOPIC", OUTPUT),
    ("WRITE", "TOPIC", LEDGER),
    ("READ", "TOPIC", LEDGER),
    ("WRITE", "TRANSACTIONAL_ID", ANY),
    ("DESCRIBE", "TRANSACTIONAL_ID", ANY),
    ("READ", "GROUP", ANY),
)
"""(operation, resource, name): those that the connector needs."""


# ---- markers


def forget_marker(scene: Scene, topic: str = ANY, *, commit: bool | None = True) -> None:
    """The next marker in a partition of the topic is never written, although its transaction is complete. `commit`:
    None means also one of an abort.
    """
    fault = scene.broker.faults.inject(Fault(MarkerFault.FORGET, topic=topic, commit=commit))
    scene.broker.faults.names[fault.number] = "forgotten marker"


def _forget_marker(scene: Scene) -> None:
    # Not those of aborts: the job has them written before its next batch, but nobody does after its last one.
    forget_marker(scene, scene.world.random.choice((OUTPUT, LEDGER, OFFSETS)))


def late_marker(scene: Scene, topic: str, seconds: float) -> None:
    """The next marker in the topic is written later; until then its transaction is prepared."""
    fault = scene.broker.faults.inject(Fault(MarkerFault.LATE, topic=topic, delay_ms=round(1000 * seconds)))
    scene.broker.faults.names[fault.number] = "late marker"


def _late_marker(scene: Scene) -> None:
    chance = scene.world.random
    late_marker(scene, chance.choice((OUTPUT, LEDGER, OFFSETS)), chance.choice((0.3, 5, 40, 90)))


# ---- the disk


def torn_write(scene: Scene, after: int = 0) -> None:
    """The broker is killed in the middle of a write, after so many whole ones, and started again."""
    scene.broker.disk.torn_after = after


def _torn_write(scene: Scene) -> None:
    torn_write(scene, scene.world.random.choice((0, 0, 1, 3, 8)))


def disk_full(scene: Scene, seconds: float, after: int = 0) -> None:
    """No write finds room for so long, after so many more writes."""
    scene.broker.disk.fill(seconds, after)


def _disk_full(scene: Scene) -> None:
    chance = scene.world.random
    disk_full(scene, chance.choice((0.05, 1.0, 10.0, 40.0)), chance.choice((0, 0, 1, 3, 8)))


# ---- time


def long_rest(scene: Scene, days: float) -> None:
    """The broker's clock moves on. Open transactions time out, idle producers of partitions expire after a day,
    transactional ids after a week."""

    def act(node: Node) -> None:
        if node.parts.topics.get(OUTPUT) is not None:
            node.parts.topics.configure(OUTPUT, KEPT)
        ids, producers = _ids(scene), _producers(node)
        assert scene.broker.cluster is not None
        scene.broker.cluster.advance(round(days * DAY_MS))
        # Whatever was open is aborted by its timeout.
        scene.world.fired["long rest"] += 1
        if gone := ids - _ids(scene):
            scene.world.fired["transactional id expired"] += gone
        if gone := producers - _producers(node):
            scene.world.fired["producer expired"] += gone

    scene.broker.do(act)


def _ids(scene: Scene) -> int:
    return sum(len(node.parts.transactions.everything()) for node in scene.broker.nodes)


def _producers(node: Node) -> int:
    return sum(len(log.producers()) for _, log in node.parts.topics.opened())


def _long_rest(scene: Scene) -> None:
    long_rest(scene, scene.world.random.choice((0.01, 2, 8)))


# ---- the cluster


def denied(scene: Scene, right: tuple[str, str, str], seconds: float) -> None:
    """A right is gone for so long. A query that it stops is started again until the right is back."""
    scene.job.explained.add(AuthorizationFailed)
    scene.broker.rights.deny(*right)
    scene.world.schedule(seconds, lambda: scene.broker.rights.grant(*right))


def _denied(scene: Scene) -> None:
    chance = scene.world.random
    denied(scene, chance.choice(RIGHTS), chance.choice((0.05, 1.0, 10.0, 70.0)))


def upgrade(scene: Scene, *, restart: bool) -> None:
    """transaction.version becomes 2, while the broker runs or by its next start."""
    if scene.broker.config.transaction_version == 2 or scene.broker.older:
        return
    scene.world.fired["upgrade"] += 1
    if restart:
        scene.broker.stop()
    scene.broker.finalize(2)
    if restart:
        scene.world.schedule(1.0, scene.broker.start)


def _upgrade(scene: Scene) -> None:
    upgrade(scene, restart=scene.world.random.random() < 0.5)


def elect(scene: Scene, where: TopicPartition) -> None:
    """Another leader, which has every record."""

    def act(node: Node) -> None:
        if node.parts.topics.has(where):
            node.parts.controller.elect(where)
            scene.world.fired["leader elected"] += 1

    scene.broker.do(act)


def _elect(scene: Scene) -> None:
    chance = scene.world.random
    elect(
        scene,
        chance.choice([*(TopicPartition(OUTPUT, number) for number in range(PARTITIONS)), TopicPartition(LEDGER, 0)]),
    )


# ---- links


def swizzle(scene: Scene) -> None:
    """The links of all processes are cut one after another, and healed in another order."""
    world, chance = scene.world, scene.world.random
    sides = [scene.job.driver.name, *(each.name for each in scene.job.executors)]
    apart_s, longest_s = chance.choice((0.01, 0.3, 2.0)), chance.choice((2.0, 15.0, 75.0))
    chance.shuffle(sides)
    heals = sorted(chance.uniform(0, longest_s) for _ in sides)
    chance.shuffle(heals)
    held_before = world.fired["cut link"]

    def cut(side: str, seconds: float) -> None:
        scene.net.cut(side, BROKER, seconds)
        scene.net.cut(BROKER, side, seconds)

    for number, (side, heal) in enumerate(zip(sides, heals, strict=True)):
        begin = number * apart_s
        world.schedule(begin, partial(cut, side, len(sides) * apart_s + heal - begin))

    def count() -> None:
        if world.fired["cut link"] > held_before:
            world.fired["swizzle"] += 1

    world.schedule(len(sides) * apart_s + longest_s, count)


# ---- what loses records


def retention(scene: Scene, *, all_of_it: bool) -> None:
    """The head of the output is deleted: every record, or the first half of each partition."""

    def act(node: Node) -> None:
        if node.parts.topics.get(OUTPUT) is None or not (written := scene.broker.written(OUTPUT, PARTITIONS)):
            return
        _lose(scene, written, "retention")
        for number in range(PARTITIONS):
            log = node.parts.topics.log(TopicPartition(OUTPUT, number))
            if all_of_it:
                node.parts.topics.configure(OUTPUT, {**KEPT, "retention.ms": "1"})
                log.retention(node.parts.clock.now_ms() + DAY_MS)
                node.parts.topics.configure(OUTPUT, KEPT)
            else:
                log.delete_records((log.log_start_offset + log.end_offset) // 2)

    scene.broker.do(act)


def _retention(scene: Scene) -> None:
    retention(scene, all_of_it=scene.world.random.random() < 0.5)


def topic_recreated(scene: Scene, seconds: float) -> None:
    """The output topic is deleted, and after so many seconds there is an empty one of its name."""
    scene.job.explained.add(UnknownTopic)

    def delete(node: Node) -> None:
        if node.parts.topics.get(OUTPUT) is not None:
            _lose(scene, scene.broker.written(OUTPUT, PARTITIONS), "topic deleted")
            node.parts.topics.delete(OUTPUT)

    def create(node: Node) -> None:
        if node.parts.topics.get(OUTPUT) is None:
            node.parts.topics.create(OUTPUT, PARTITIONS, KEPT)

    def make() -> None:
        if scene.broker.up:
            scene.broker.do(create)
        scene.world.schedule(1.0, check)

    def check() -> None:
        node = scene.broker.node
        if not scene.broker.up or node is None or node.parts.topics.get(OUTPUT) is None:
            make()

    scene.broker.do(delete)
    scene.world.schedule(seconds, make)


def _topic_recreated(scene: Scene) -> None:
    topic_recreated(scene, scene.world.random.choice((0.0, 1.0, 15.0)))


def _lose(scene: Scene, rows: set[str], kind: str) -> None:
    scene.world.fired[kind] += 1
    scene.lost |= rows
    # Whether a batch whose records are gone was committed cannot be known: that is for the operator.
    scene.job.final.add(DecisionBroken)


Strike = Callable[[Scene], None]

CIRCUMSTANCES: dict[str, Strike] = {
    "forgotten marker": _forget_marker,
    "late marker": _late_marker,
    "torn write": _torn_write,
    "disk full": _disk_full,
    "long rest": _long_rest,
    "right denied": _denied,
    "upgrade": _upgrade,
    "leader elected": _elect,
    "swizzle": swizzle,
}

LOSSES: dict[str, Strike] = {
    "retention": _retention,
    "topic recreated": _topic_recreated,
}
"""Strikes after which the judge may not ask for the rows in `scene.lost`, and the query may end with DecisionBroken."""


def calm(scene: Scene) -> None:
    """Nothing of it is left: faults that have not fired are gone, rights are back, the disk has room."""
    if scene.broker.up:
        # In its loop, because tasks may wait there for the end of a fault.
        scene.broker.do(lambda node: node.parts.faults.clear())
    else:
        scene.broker.faults.clear()
    scene.broker.tap.meetings.clear()
    scene.broker.rights.allow_all()
    scene.broker.disk.empty()
    scene.broker.disk.torn_after = None
