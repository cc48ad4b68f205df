"""What happens to one broker of three: it is killed, frozen, cut off from the others, started again as it was never
before; partitions and coordinators move; a new leader lags, or lacks what nobody was told to be there.

Owns: the table `ONE_BROKER`, none of which loses an acknowledged record; `lost_tail`, which does.
Does not know: the product; how the cluster carries it out (`cluster`, `hooks`).

How Kafka bounds what an election may lose: with acks=all a record is acknowledged when every replica in sync has it,
and it is refused where these are fewer than min.insync.replicas. A clean election takes a replica in sync, so it loses
only what is not acknowledged yet: the end of the log, of which no client was told (`unacknowledged_tail`). An unclean
election takes any replica, and may lose whatever was acknowledged (`lost_tail`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from embedded_kafka.faults.fault import Fault, LeaderFault
from embedded_kafka.leader_views import take_stand
from embedded_kafka.node import Node
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import REQUESTS, api_name
from kafka_core.errors import DecisionBroken
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.records import MarkerKind, control_marker
from tests.simulation.cluster import BROKERS, LINKS, values_of
from tests.simulation.judge import PARTITIONS
from tests.simulation.play import Scene
from tests.simulation.watch import OUTPUT

TOPICS = (OUTPUT, DEFAULT_LEDGER_TOPIC, TRANSACTIONS_TOPIC, OFFSETS_TOPIC)

FOR_S = (0.05, 1.0, 12.0, 38.0)
"""How long something lasts. 12 s is longer than the controller waits for a broker that is silent, 38 s longer than one
request of a client waits for its answer.
"""

BEHIND = 8
"""How many offsets a new leader's high watermark may be behind at most: what a follower gets with one answer."""

LAGS_S = (0.01, 0.3, 3.0)

OLDER: Mapping[int, Mapping[str, int]] = {
    1: {"Produce": 11, "InitProducerId": 4, "EndTxn": 4, "AddPartitionsToTxn": 4, "TxnOffsetCommit": 4, "Fetch": 12,
        "Metadata": 11, "ListOffsets": 7, "FindCoordinator": 4},
    2: {"Fetch": 12, "Metadata": 11, "ListOffsets": 7, "FindCoordinator": 4, "ListTransactions": 0, "ApiVersions": 3},
}  # fmt: skip
"""transaction.version of the cluster -> what a broker of an earlier release has of the APIs that the client uses. All
brokers of a cluster that has finalized version 2 have what belongs to it.
"""

Strike = Callable[[Scene], None]


def any_broker(scene: Scene) -> int:
    """The id of one of them."""
    return scene.world.random.randrange(BROKERS)


def _noticed(scene: Scene) -> bool:
    return scene.world.random.random() < 0.7


# ---- a broker's life


def _killed(scene: Scene) -> None:
    scene.broker.kill_one(any_broker(scene), scene.world.random.choice(FOR_S), noticed=_noticed(scene))


def _frozen(scene: Scene) -> None:
    scene.broker.freeze_one(any_broker(scene), scene.world.random.choice(FOR_S), noticed=_noticed(scene))


def _cut_off(scene: Scene) -> None:
    scene.broker.cut_off(any_broker(scene), scene.world.random.choice(FOR_S), noticed=_noticed(scene))


def _links_cut(scene: Scene) -> None:
    """Nothing gets to one broker, or from it, while the others hear of it as before."""
    chance = scene.world.random
    link, seconds = LINKS[any_broker(scene)], chance.choice(FOR_S)
    side = chance.choice(("driver", "executor0", "executor1", "*"))
    ways = chance.choice((((side, link),), ((link, side),), ((side, link), (link, side))))
    for way in ways:
        scene.net.cut(*way, seconds)


def _other_port(scene: Scene) -> None:
    """It comes back at another port."""
    chance = scene.world.random
    scene.broker.kill_one(
        any_broker(scene), chance.choice((0.05, 1.0)), noticed=_noticed(scene), port=scene.net.free_port()
    )


def older_release(scene: Scene, node_id: int, seconds: float, *, noticed: bool) -> None:
    """It comes back as an earlier release, in the middle of a rolling upgrade, and stays one."""
    versions = OLDER[scene.broker.config.transaction_version]
    known = {api_name(key) for key in REQUESTS}
    scene.broker.older = True
    scene.broker.kill_one(
        node_id, seconds, noticed=noticed, api_versions={api: version for api, version in versions.items() if api in known}
    )  # fmt: skip


def _older_release(scene: Scene) -> None:
    older_release(scene, any_broker(scene), scene.world.random.choice((0.05, 1.0)), noticed=_noticed(scene))


# ---- leaders and coordinators


def moved(scene: Scene, topic: str | None, seed: int) -> None:
    """Other leaders, by chance, for the partitions of a topic; None: of all, so the coordinators move too."""

    def act(node: Node) -> None:
        if node.parts.controller.scatter(topic, random.Random(seed)):
            scene.world.fired["leaders moved"] += 1

    scene.broker.do(act)


def _moved(scene: Scene) -> None:
    chance = scene.world.random
    moved(scene, chance.choice((None, *TOPICS)), chance.getrandbits(32))


def in_sync(scene: Scene, seconds: float) -> None:
    """Only its leader is in sync with each partition of the output and the ledger: nothing is acknowledged."""

    def act(node: Node) -> None:
        scene.world.fired["too few in sync"] += 1
        scene.broker.whole_at = max(scene.broker.whole_at, scene.world.now + seconds)
        for where in _places(node):
            placed = node.parts.leaders.placed(where)
            if placed.leader in placed.replicas:
                node.parts.controller.set_in_sync(where, (placed.leader,))

    def again(node: Node) -> None:
        leaderless = False
        for where in _places(node):
            placed = node.parts.leaders.placed(where)
            alive = [each.node_id for each in node.parts.brokers.alive]
            if placed.leader in placed.replicas:
                node.parts.controller.set_in_sync(
                    where, tuple(each for each in placed.replicas if each in alive or each == placed.leader)
                )
            else:
                leaderless = True
        if leaderless:
            # Its leader went meanwhile: the followers catch up when it is back.
            scene.world.schedule(1.0, lambda: scene.broker.do(again))

    scene.broker.do(act)
    scene.world.schedule(seconds, lambda: scene.broker.do(again))


def _in_sync(scene: Scene) -> None:
    in_sync(scene, scene.world.random.choice(FOR_S[:3]))


def _places(node: Node) -> Iterator[TopicPartition]:
    for name in (OUTPUT, DEFAULT_LEDGER_TOPIC):
        topic = node.parts.topics.get(name)
        for number in range(0 if topic is None else topic.partitions):
            yield TopicPartition(name, number)


def lagging(scene: Scene, topic: str, behind: int, seconds: float) -> None:
    """New leaders of a topic's partitions, whose high watermark is so many offsets behind at first."""

    def act(node: Node) -> None:
        for where in _places(node):
            if where.topic != topic:
                continue
            log = node.parts.topics.log(where)
            end = max(log.log_start_offset, log.end_offset - behind)
            fault = Fault(LeaderFault.LAGGING, topic=topic, partition=where.partition, end=end, times=10**6)
            node.parts.faults.inject(take_stand(node.parts, fault))
            scene.world.fired["leader lags"] += 1
            scene.broker.whole_at = max(scene.broker.whole_at, scene.world.now + seconds)
            scene.world.schedule(
                seconds, lambda fault=fault: scene.broker.do(lambda node: node.parts.faults.release(fault))  # type: ignore[misc]
            )  # fmt: skip

    scene.broker.do(act)


def _lagging(scene: Scene) -> None:
    chance = scene.world.random
    lagging(
        scene,
        chance.choice((OUTPUT, DEFAULT_LEDGER_TOPIC)),
        chance.randint(1, BEHIND),
        chance.choice(LAGS_S),
    )


def unacknowledged_tail(scene: Scene, topic: str, skip: int, *, told: bool) -> None:
    """A leader is replaced before its followers have the next batch that it appends, behind so many others. `told`: it
    says so; else it ends the connection.
    """
    scene.broker.faults.lose_tail(topic, skip, told=told)


def _unacknowledged_tail(scene: Scene) -> None:
    chance = scene.world.random
    topic = chance.choice((OUTPUT, DEFAULT_LEDGER_TOPIC))
    unacknowledged_tail(scene, topic, chance.choice((0, 0, 1, 3)), told=chance.random() < 0.5)


ONE_BROKER: dict[str, Strike] = {
    "broker killed": _killed,
    "broker frozen": _frozen,
    "broker cut off": _cut_off,
    "links of a broker cut": _links_cut,
    "broker at another port": _other_port,
    "broker of an older release": _older_release,
    "leaders moved": _moved,
    "too few in sync": _in_sync,
    "leader lags": _lagging,
    "unacknowledged tail lost": _unacknowledged_tail,
}


# ---- what loses records


def lost_tail(scene: Scene, number: int, share: float) -> None:
    """An unclean election: the new leader lacks the newest transactions of a partition of the output, whole ones, as
    many as make up that share of them.
    """
    where = TopicPartition(OUTPUT, number)

    def act(node: Node) -> None:
        if not node.parts.topics.has(where):
            return
        cuts = list(_between_transactions(scene, number))
        if not cuts:
            return
        at = cuts[min(int(len(cuts) * (1 - share)), len(cuts) - 1)]
        scene.world.fired["tail lost in an election"] += 1
        # Whether a batch whose records are gone was committed cannot be known: that is for the operator.
        scene.job.final.add(DecisionBroken)
        scene.lost |= {
            value
            for info, batch in scene.broker._batches(OUTPUT, number)
            if not info.control and info.base_offset >= at
            for value in values_of(info, batch)
        }
        node.parts.controller.elect(where, lost_from=at)

    scene.broker.do(act)


def _between_transactions(scene: Scene, number: int) -> Iterator[int]:
    """The offsets at which a transaction begins and none is open: what a log that is cut there lacks is whole."""
    still_open: set[int] = set()
    for info, batch in scene.broker._batches(OUTPUT, number):
        if info.control:
            if control_marker((info, batch)).kind is not MarkerKind.OTHER:
                still_open.discard(info.producer_id)
            continue
        if not still_open:
            yield info.base_offset
        if info.transactional:
            still_open.add(info.producer_id)


def _lost_tail(scene: Scene) -> None:
    chance = scene.world.random
    lost_tail(scene, chance.randrange(PARTITIONS), chance.choice((0.01, 0.5, 1.0)))


TAILS: dict[str, Strike] = {"tail lost in an election": _lost_tail}
"""Strikes after which the judge may not ask for the rows in `scene.lost`."""
