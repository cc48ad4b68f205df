"""The plan that every task of a batch gets before it writes.

Owns: the names of the transactional ids that tasks write under.
Does not know: which driver plans, how tasks write.
Invariants:
- A plan contains everything that a task needs besides its rows and its slot.
- A plan pickles.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kafka_core import runtime
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.model import (
    NO_BASIS,
    Basis,
    Routes,
    WriteSettings,
    batch_transactional_id,
    driver_transactional_id,
    slot_transactional_id,
)
from pyspark_kafka_eos.model.handed_over import HandedOver

ALL_OTHERS = -1
"""In `only_slots`: every slot that is not named, however many there are. No slot has this number."""

MEASURE_ALL = frozenset({-2})
"""As `only_slots`: no slot sends, and every one measures what it would send."""

_AS_THEY_ARE = Routes()
"""Of a batch that is not decided: each task routes by the topics as it finds them."""


@dataclass(frozen=True, kw_only=True)
class WritePlan(WriteSettings):
    """The plan for every task of a batch. Pickled to the executors.

    `only_slots`: in a decided batch, only these slots send (`ALL_OTHERS`: every other one too); the others measure what
    they would send. Where none sends, nothing is measured either. `only_partitions`: slots (or `ALL_OTHERS`) that send
    to some partitions only, with these partitions; they measure the rest. `driver`: the driver's identity when it
    planned, at `planned_ms` of its clock; a task that begins late compares it to find whether the batch is over.
    `two_phase`: transactions without a timeout (KIP-939). `sticky_bytes`: how many bytes of rows without a key go to
    one partition before the next. `basis`: what a decided batch's rows were read and judged by; what it leaves out is
    the session's, the topics' and the moment's of the plan. `routes`: in the replay of a decided batch, by which topics
    it was routed. `topic_ids`: the ids of the topics that options name, by the driver's metadata; `asks_anew`: every
    topic is asked for once more, because a try of the batch has failed or nobody knows how old a worker's metadata are.
    """

    batch_id: int
    transaction_timeout_ms: int = 0
    only_slots: frozenset[int] | None = None
    two_phase: bool = False
    only_partitions: tuple[tuple[int, tuple[TopicPartition, ...]], ...] = ()
    driver: ProducerIdentity | None = None
    planned_ms: int = 0
    sticky_bytes: int = 1_048_576
    basis: Basis = NO_BASIS
    routes: Routes = _AS_THEY_ARE
    topic_ids: tuple[tuple[str, str], ...] = ()
    asks_anew: bool = False

    @staticmethod
    def for_batch(options: WriteSettings, batch_id: int, only_slots: frozenset[int] | None, **chosen: Any) -> WritePlan:
        """The plan that the options call for. `chosen`: the further fields, which the driver chooses."""
        return WritePlan(
            **options.write_settings(),
            batch_id=batch_id,
            only_slots=only_slots,
            planned_ms=int(runtime.time() * 1000),
            **chosen,
        )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to write or to measure: the batch is finished, and only its plan still has to
        run.
        """
        return self.only_slots is not None and not self.only_slots

    def in_zone(self, session_zone: str) -> WritePlan:
        """The plan with the session's zone, where no decision has chosen one."""
        known = self.basis.time_zone
        return self if known else replace(self, basis=replace(self.basis, time_zone=session_zone))

    def sends_to(self, slot: int) -> frozenset[TopicPartition] | None:
        """The partitions that a slot may send to: None for all, none for a slot that only measures."""
        if self.only_slots is not None and not self.only_slots & {slot, ALL_OTHERS}:
            return frozenset()
        held = dict(self.only_partitions)
        named = held.get(slot, held.get(ALL_OTHERS))
        return None if named is None else frozenset(named)

    def doubts(self, topic: str, known_id: str) -> bool:
        """Whether a task that knows this id of a topic has to ask for it once more before it routes by it."""
        return self.asks_anew or dict(self.topic_ids).get(topic, known_id) != known_id

    def transactional_id(self, slot: int) -> str:
        """The slot's stable id: one per slot, never one per batch."""
        return slot_transactional_id(self.pipeline, slot)

    @property
    def driver_id(self) -> str:
        """The id under which the driver decides."""
        return driver_transactional_id(self.pipeline)


@dataclass(frozen=True)
class TurnsBegin:
    """Where the tasks of one try take turns: in this partition of the log, from this offset on. One means nothing
    without the other: which partition a pipeline has depends on how many the topic had when it was asked.

    `secret`: 16 bytes that the try's own processes know and nobody else. Who may write to the topic could give two
    tasks the same turn otherwise.
    """

    where: TopicPartition
    offset: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class SharedPlan(HandedOver):
    """The plan for every task of a batch in one transaction. Pickled to the executors.

    `writing`: how rows become batches, as in scope=task. `identity`: the one that all tasks write under;
    `transaction_version`: the class that the driver opened the transaction in. `turns`: where tasks take turns.
    """

    writing: WritePlan
    identity: ProducerIdentity
    transaction_version: int
    turns: TurnsBegin

    @property
    def transactional_id(self) -> str:
        """The id of the one transaction."""
        return batch_transactional_id(self.writing.pipeline)

    def in_zone(self, session_zone: str) -> SharedPlan:
        """As `WritePlan.in_zone`."""
        return replace(self, writing=self.writing.in_zone(session_zone))

    @property
    def key(self) -> str:
        """The key under which the tasks of this try take turns: unique to one try of one batch."""
        return turns_key(self.transactional_id, self.identity)


def turns_key(transactional_id: str, identity: ProducerIdentity) -> str:
    """The key of the records with the turns of one try of one batch."""
    return f"{transactional_id} {identity.producer_id} {identity.epoch}"


__all__ = ["ALL_OTHERS", "MEASURE_ALL", "SharedPlan", "TurnsBegin", "WritePlan", "turns_key"]
