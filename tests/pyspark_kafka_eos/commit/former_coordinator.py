"""A broker that was the coordinator of transactional ids and of a group, was cut off, and goes on to tell what it knew.

Owns: what it answers. Does not know: what a client concludes.
What needs an append it cannot do: it answers with a lost connection. Brokers 1 and 3 are the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kafka_core.errors import BrokerUnavailable
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import GROUP, LEDGER, PIPELINE, World, decision_of
from tests.pyspark_kafka_eos.commit.node_kafka import CUT_OFF, NODE

ALL = [CUT_OFF, NODE, 3]
"""The broker that was cut off is asked first."""

SERVERS = {"kafka.bootstrap.servers": "memory:1"}
OPTIONS = SinkOptions.parse(
    {**SERVERS, "pipeline": PIPELINE, "topic": "out", "ledger.topic": LEDGER, "offsets.group": GROUP}
)


def committed(world: World, batch_id: int) -> Seal:
    """A batch of one slot, decided and ended."""
    seal = world.slot(0, {0: 2})
    world.decide(decision_of([seal], batch_id=batch_id))
    world.end(seal, commit=True)
    return seal


def started(world: World, batch_id: int) -> PerTask:
    """A new run, which finds nothing of the batch."""
    run = PerTask(Run(world.cluster, OPTIONS, "query"))
    assert run.start(batch_id) is None
    return run


def former_leader_of_the_ledger(world: World) -> None:
    """From now on the ledger has a new leader, and the client goes on to ask the one that it replaced."""
    world.kafka.cut_off(world.where)
    topic = world.cluster._topics[LEDGER]
    leaders, epochs = list(topic.leaders), list(topic.epochs)
    leaders[world.where.partition], epochs[world.where.partition] = CUT_OFF, 0
    world.cluster._topics[LEDGER] = replace(topic, leaders=tuple(leaders), epochs=tuple(epochs))


_APPENDS = frozenset(
    each.API_KEY
    for each in (m.InitProducerIdRequest, m.EndTxnRequest, m.AddPartitionsToTxnRequest, m.AddOffsetsToTxnRequest)
)


class FormerCoordinator:
    """From now on broker `CUT_OFF` answers as of now. `told`: how often what it knew was asked for."""

    def __init__(self, world: World) -> None:
        kafka = self._kafka = world.kafka
        self.told = 0
        self._real = kafka.answer
        self._ids = {name: self._described(name) for name in kafka.ids()}
        self._groups = deepcopy(kafka.committed)
        kafka.answer = self._answer  # type: ignore[method-assign]
        kafka.brokers = list(ALL)

    def is_asked_by(self, cluster: Cluster) -> None:
        """As if the client had known it as the coordinator of every id from before."""
        for name in (*self._ids, *self._kafka.ids()):
            cluster.take_coordinator(CoordinatorKind.TRANSACTION, name, (CUT_OFF, "memory", CUT_OFF))

    def _described(self, name: str) -> Any:
        request = m.DescribeTransactionsRequest(version=0, transactional_ids=[name])
        return self._real(request).transaction_states[0]  # type: ignore[union-attr]

    def _answer(self, request: Any, node: object = NODE) -> Any:
        if node != CUT_OFF:
            return self._real(request, node)
        if request.API_KEY in _APPENDS:
            return BrokerUnavailable("the former coordinator cannot append")
        answer: Any = self._real(request, node)
        if request.API_KEY == m.FindCoordinatorRequest.API_KEY:
            for found in answer.coordinators:
                found.node_id = CUT_OFF
        elif request.API_KEY == m.DescribeTransactionsRequest.API_KEY:
            self.told += 1
            answer.transaction_states = [
                self._ids.get(each.transactional_id) or self._unknown(each) for each in answer.transaction_states
            ]
        elif request.API_KEY == m.OffsetFetchRequest.API_KEY:
            self.told += 1
            for group in answer.groups:
                known = self._groups.get(group.group_id, {})
                for topic in group.topics:
                    for part in topic.partitions:
                        part.committed_offset = known.get(TopicPartition(topic.name, part.partition_index), -1)
        return answer

    @staticmethod
    def _unknown(state: Any) -> Any:
        return type(state)(
            error_code=int(Code.TRANSACTIONAL_ID_NOT_FOUND), transactional_id=state.transactional_id, transaction_state="",
            transaction_timeout_ms=0, transaction_start_time_ms=0, producer_id=-1, producer_epoch=-1, topics=[],
        )  # fmt: skip


class Hiccup:
    """The present coordinators do not answer one question (of this API): its connection is lost, or they load."""

    def __init__(
        self, world: World, how: str, api: Any = m.DescribeTransactionsRequest, matches: Callable[[Any], bool] = bool
    ) -> None:
        self.fired = 0
        self._how, self._api, self._matches, self._real = how, api, matches, world.kafka.answer
        world.kafka.answer = self._answer  # type: ignore[method-assign]

    def _answer(self, request: Any, node: object = NODE) -> Any:
        mine = request.API_KEY == self._api.API_KEY and node != CUT_OFF
        if not mine or self.fired or not self._matches(request):
            return self._real(request, node)
        self.fired = 1
        if self._how == "lost":
            return BrokerUnavailable("the connection was closed")
        answer: Any = self._real(request, node)
        for each in answer.groups if request.API_KEY == m.OffsetFetchRequest.API_KEY else answer.transaction_states:
            each.error_code = int(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return answer


def silent(world: World, broker: int, *, times: int) -> None:
    """This broker says so many times nothing of who coordinates."""
    real, asked = world.kafka.answer, itertools.count(1)

    def answer(request: Any, node: object = NODE) -> Any:
        if node == broker and request.API_KEY == m.FindCoordinatorRequest.API_KEY and next(asked) <= times:
            return BrokerUnavailable("no answer within the time allowed")
        return real(request, node)

    world.kafka.answer = answer  # type: ignore[method-assign]


def after_batch_0(world: World, knew: str) -> FormerCoordinator:
    """Batch 0 is committed, and the former coordinator knew "nothing" or something of it."""
    former = FormerCoordinator(world) if knew == "nothing" else None
    committed(world, 0)
    return former or FormerCoordinator(world)


__all__ = [
    "ALL",
    "OPTIONS",
    "SERVERS",
    "FormerCoordinator",
    "Hiccup",
    "after_batch_0",
    "committed",
    "former_leader_of_the_ledger",
    "silent",
    "started",
]
