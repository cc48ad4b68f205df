"""What one slot wrote, as its task states it: the seal, its parts, the topics as they were when the task routed its
rows.

Owns: the fields, and their JSON form within a decision and on the way from a task to the driver.
Does not know: how they are made, sent or stored; what is decided.
Invariants:
- `from_json(to_json(x)) == x`, but for what only the way to the driver has.
- Every field is written but those that say that they are left out where empty; a reader has no defaults for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.model import strict
from pyspark_kafka_eos.model.basis import Basis, Expired
from pyspark_kafka_eos.model.routes import Apart, RoutedTopic
from pyspark_kafka_eos.model.traffic import Traffic

_MOST_VERSION = 127
"""Of transactions: far more than Kafka has."""


@dataclass(frozen=True)
class SealedPartition:
    """What one slot wrote to one partition: where its records begin and the last sequence it used there.
    `digest`: this partition's share of the slot's digest; None where a slot wrote to one partition only.
    `leader_epoch`: of the newest leader that the writer knew when all was acknowledged, -1 where its brokers report
    none. That leader and every later one have the records, unless they are lost (KIP-320); an earlier one cannot know
    of them.
    """

    topic: str
    partition: int
    first_offset: int
    last_sequence: int
    records: int
    digest: int | None = None
    leader_epoch: int = -1

    def to_json(self) -> list[Any]:
        """As a list of all fields."""
        place = [self.topic, self.partition, self.first_offset, self.last_sequence, self.records]
        return [*place, None if self.digest is None else f"{self.digest:016x}", self.leader_epoch]

    @staticmethod
    def from_json(data: Any) -> SealedPartition:
        """Read one back."""
        topic, partition, first_offset, last_sequence, records, digest, leader_epoch = strict.several(data)
        return SealedPartition(
            strict.topic(topic),
            strict.int32(partition),
            strict.offset(first_offset),
            strict.sequence(last_sequence),
            strict.whole(records),
            None if digest is None else strict.digest(digest),
            strict.sequence(leader_epoch),
        )


@dataclass(frozen=True)
class KeptPartition:
    """What a slot wrote to one partition before it was repaired, committed under the identity of that time."""

    identity: ProducerIdentity
    part: SealedPartition

    def to_json(self) -> list[Any]:
        """As the ledger keeps it."""
        return [self.identity.producer_id, self.identity.epoch, *self.part.to_json()]

    @staticmethod
    def from_json(data: Any) -> KeptPartition:
        """Read one back."""
        producer_id, epoch, *part = strict.several(data)
        return KeptPartition(identity_of([producer_id, epoch]), SealedPartition.from_json(part))


@dataclass(frozen=True)
class StageTask:
    """A task of Spark's: the number of its stage, and its own, which Spark counts over all starts of tasks of the
    application.
    """

    stage: int
    number: int


@dataclass(frozen=True)
class Seal:
    """Proof of a slot's work: every record is acknowledged under an open transaction.

    An empty slot opens no transaction: `identity` is None and `records` is 0. `digest` is the
    order-insensitive sum of the records' hashes (`records.digest`, format 1); `bytes` counts record bytes
    before compression. `transaction_version` is the class that the transaction was opened with; a replay must
    use the same. `two_phase`: it has no timeout (KIP-939), so no broker aborts it by itself. `dead_letters`:
    how many of the records are rows that could not be written to their topic. `kept`: the parts that needed
    no repair, where the broker lost only a part of the slot; `records`, `bytes` and `digest` count them,
    `partitions` does not. `measured`: what a slot that is being repaired would have written to the partitions that it
    may not send to; no decision has it. `topics`: every topic that the slot wrote to, as the task routed by it, in
    order of name and id; `apart`: in the one seal of a batch in one transaction, the tasks that routed by
    others. For the metrics only: `retries`, record batches that were sent more than once; `attempt`, how many earlier
    attempts of the task this one has fenced; `traffic`, what sending took, which a task reports to the driver and the
    ledger keeps as the batch's sum. `basis`: what the task read and judged its rows by; it goes the same way.
    `expired`: what it wrote that a topic does not keep, for a warning.
    `stage`: which task of Spark's wrote it, for the driver alone.
    """

    transactional_id: str
    slot: int
    identity: ProducerIdentity | None
    transaction_version: int
    records: int = 0
    bytes: int = 0
    digest: int = 0
    opened_ms: int = 0
    partitions: tuple[SealedPartition, ...] = ()
    two_phase: bool = False
    retries: int = 0
    attempt: int = 0
    dead_letters: int = 0
    kept: tuple[KeptPartition, ...] = ()
    measured: tuple[SealedPartition, ...] = ()
    topics: tuple[RoutedTopic, ...] = ()
    apart: Apart = ()
    traffic: Traffic | None = field(default=None, compare=False)
    basis: Basis | None = field(default=None, compare=False)
    stage: StageTask | None = field(default=None, compare=False)
    expired: tuple[Expired, ...] = field(default=(), compare=False)

    @property
    def empty(self) -> bool:
        """True where the slot wrote nothing and so has no transaction to end."""
        return self.identity is None

    @property
    def shares(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Partition -> (records, digest) of what the slot wrote there or would have written; the digest is None where
        unknown.
        """
        parts = [*self.partitions, *(each.part for each in self.kept), *self.measured]
        only = self.digest if len(parts) == 1 else None
        return {
            TopicPartition(part.topic, part.partition): (
                part.records,
                only if part.digest is None else part.digest,
            )
            for part in parts
        }

    @property
    def topic_names(self) -> frozenset[str]:
        """The topics that the slot wrote to, or would have written to."""
        parts = [*self.partitions, *(each.part for each in self.kept), *self.measured]
        return frozenset(part.topic for part in parts)

    @property
    def end_identity(self) -> ProducerIdentity | None:
        """The identity under which the coordinator shows the transaction once it is committed (KIP-890:
        version 2 raises the epoch with the end)."""
        if self.identity is None or self.transaction_version < 2:
            return self.identity
        return ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)

    def to_json(self) -> dict[str, Any]:
        """The seal as the ledger keeps it, which is without `traffic`, `basis` and `stage`."""
        identity = None if self.identity is None else [self.identity.producer_id, self.identity.epoch]
        body: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "slot": self.slot,
            "producer": identity,
            "transaction_version": self.transaction_version,
            "two_phase": self.two_phase,
            "dead_letters": self.dead_letters,
            "records": self.records,
            "bytes": self.bytes,
            "digest": f"{self.digest:016x}",
            "opened_ms": self.opened_ms,
            "retries": self.retries,
            "attempt": self.attempt,
            "partitions": [part.to_json() for part in self.partitions],
            "topics": [topic.to_json() for topic in self.topics],
        }
        # Left out where empty, as nearly always: a decision has up to 10,000 seals.
        if self.kept:
            body["kept"] = [each.to_json() for each in self.kept]
        if self.measured:
            body["measured"] = [part.to_json() for part in self.measured]
        if self.apart:
            body["apart"] = [[slot, [topic.to_json() for topic in topics]] for slot, topics in self.apart]
        return body

    def to_driver(self) -> dict[str, Any]:
        """The seal as a task returns it to the driver, with these."""
        more: dict[str, Any] = {} if self.traffic is None else {"traffic": self.traffic.to_json()}
        if self.stage is not None:
            more["stage"] = [self.stage.stage, self.stage.number]
        if self.basis is not None:
            more["basis"] = self.basis.to_json()
        if self.expired:
            more["expired"] = [each.to_json() for each in self.expired]
        return {**self.to_json(), **more}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Seal:
        """Read a seal back, from either form; KeyError, TypeError or ValueError where it is not one."""
        producer = data["producer"]
        return Seal(
            transactional_id=strict.text(data["transactional_id"]),
            slot=strict.int32(data["slot"]),
            identity=None if producer is None else identity_of(producer),
            transaction_version=strict.whole(data["transaction_version"], 0, _MOST_VERSION),
            records=strict.whole(data["records"]),
            bytes=strict.whole(data["bytes"]),
            digest=strict.digest(data["digest"]),
            opened_ms=strict.time_ms(data["opened_ms"]),
            partitions=_parts(data["partitions"]),
            two_phase=strict.flag(data["two_phase"]),
            retries=strict.whole(data["retries"]),
            attempt=strict.whole(data["attempt"]),
            dead_letters=strict.whole(data["dead_letters"]),
            kept=tuple(map(KeptPartition.from_json, strict.several(data.get("kept", [])))),
            measured=_parts(data.get("measured", [])),
            topics=_topics(data["topics"]),
            apart=tuple(
                (strict.int32(slot), _topics(entries)) for slot, entries in strict.several(data.get("apart", []))
            ),
            traffic=Traffic.from_json(data.get("traffic")),
            stage=StageTask(*map(int, data["stage"])) if "stage" in data else None,
            basis=Basis.from_json(data["basis"]) if "basis" in data else None,
            expired=tuple(Expired.from_json(entry) for entry in data.get("expired", ())),
        )


def identity_of(data: Any) -> ProducerIdentity:
    """The identity in a list of producer id and epoch."""
    producer_id, epoch = strict.several(data, 2)
    return ProducerIdentity(strict.whole(producer_id), strict.epoch(epoch))


def _parts(entries: Any) -> tuple[SealedPartition, ...]:
    return tuple(map(SealedPartition.from_json, strict.several(entries)))


def _topics(entries: Any) -> tuple[RoutedTopic, ...]:
    return tuple(map(RoutedTopic.from_json, strict.several(entries)))


__all__ = ["KeptPartition", "Seal", "SealedPartition", "identity_of"]
