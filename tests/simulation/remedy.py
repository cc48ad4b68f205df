"""The operator: carries out the command that an error names before the query is started again.

Kafka's `kafka-transactions.sh abort` looks for the producer whose transaction begins at the offset, and has the
partition's leader write an abort marker for it (KIP-664), whatever any coordinator has of it. So the judge asks that no
coordinator has the producer id: a client could have ended that transaction.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from embedded_kafka.node import Node
from embedded_kafka.refusals import Refused
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC

if TYPE_CHECKING:
    from tests.simulation.play import Scene
    from tests.simulation.watch import Watch

_COMMAND = re.compile(r"kafka-transactions\.sh \S+ \S+ abort --topic (\S+) --partition (\d+) --start-offset (\d+)`")


def follow(scene: Scene, watch: Watch, error: Exception) -> None:
    """What the error's message asks for, where it names a command."""
    for topic, partition, offset in _COMMAND.findall(str(error)):
        _abort(scene, watch, TopicPartition(topic, int(partition)), int(offset))


def _abort(scene: Scene, watch: Watch, where: TopicPartition, offset: int) -> None:
    def act(node: Node) -> None:
        for each in node.parts.topics.log(where).producers() if node.parts.topics.has(where) else ():
            if each.transaction_start_offset != offset:
                continue
            known = [
                found
                for broker in scene.broker.nodes
                for found in broker.parts.transactions.listing(producer_ids=[each.producer_id])
            ]
            if known:
                watch.problem(f"{known[0][0]} could have ended what an operator is asked to abort in {where}")
            if where.topic == DEFAULT_LEDGER_TOPIC:
                watch.decisions.undone(each.producer_id)
            scene.world.note("operator", str(where))
            write(node, each.producer_id, each.epoch, each.coordinator_epoch)

    def write(node: Node, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        loop = scene.broker.loop
        assert loop is not None

        async def marked() -> None:
            # What fails is asked for again by the next run's error.
            with contextlib.suppress(OSError, Refused):
                await node.parts.markers.write(
                    where, producer_id, epoch, commit=False, coordinator_epoch=coordinator_epoch
                )

        scene.broker.tasks.append(loop.create_task(marked()))

    scene.broker.do(act)
