"""The contents of a seal and of a decision, with their one JSON form, which the ledger keeps.

Owns: the fields, the format's version.
Does not know: how they are made, sent or stored.
Invariants:
- `from_json(to_json(x)) == x`.
- A field that a newer version adds is ignored by an older reader.
- A format version that a reader does not have is refused by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from connector.errors import LedgerUnreadable
from connector.model.ids import batch_transactional_id
from connector.model.traffic import Traffic
from connector.model.values import ProducerIdentity, TopicPartition

LEDGER_FORMAT_VERSION = 1
"""Version of the decision's JSON. Raised when an older reader would misread a newer record."""


@dataclass(frozen=True)
class SealedPartition:
    """What one slot wrote to one partition: where its records begin and the last sequence it used there.
    `digest`: this partition's share of the slot's digest; None in decisions of older versions and where a
    slot wrote to one partition only."""

    topic: str
    partition: int
    first_offset: int
    last_sequence: int
    records: int
    digest: int | None = None

    def to_json(self) -> list[Any]:
        """As the ledger keeps it; digests are stored apart,
        because older versions expect no more than this."""
        return [self.topic, self.partition, self.first_offset, self.last_sequence, self.records]


def _digest_text(digest: int | None) -> str | None:
    return None if digest is None else f"{digest:016x}"


def _digest_of(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


def _part(entry: Sequence[Any], digest: str | None) -> SealedPartition:
    topic, partition, first_offset, last_sequence, records = entry
    return SealedPartition(topic, partition, first_offset, last_sequence, records, _digest_of(digest))


def _parts(data: Mapping[str, Any], parts: str, digests: str) -> tuple[SealedPartition, ...]:
    entries = data.get(parts, ())
    told = data.get(digests) or [None] * len(entries)
    return tuple(_part(entry, text) for entry, text in zip(entries, told, strict=True))


@dataclass(frozen=True)
class KeptPartition:
    """What a slot wrote to one partition before it was repaired, committed under the identity of that time."""

    identity: ProducerIdentity
    part: SealedPartition

    def to_json(self) -> list[Any]:
        """As the ledger keeps it."""
        identity = [self.identity.producer_id, self.identity.epoch]
        return [*identity, *self.part.to_json(), _digest_text(self.part.digest)]

    @staticmethod
    def from_json(data: Sequence[Any]) -> KeptPartition:
        """Read one back."""
        producer_id, epoch, *place, digest = data
        return KeptPartition(ProducerIdentity(int(producer_id), int(epoch)), _part(place, digest))


@dataclass(frozen=True)
class Seal:
    """Proof of a slot's work: every record is acknowledged under an open transaction.

    An empty slot opens no transaction: `identity` is None and `records` is 0. `digest` is the
    order-insensitive sum of the records' hashes (`records.digest`, format 1); `bytes` counts record bytes
    before compression. `transaction_version` is the class that the transaction was opened with; a replay must
    use the same. `two_phase`: it has no timeout (KIP-939), so no broker aborts it by itself. `dead_letters`:
    how many of the records are rows that could not be written to their topic. `kept`: the parts that needed
    no repair, where the broker lost only a part of the slot; `records`, `bytes` and `digest` count them,
    `partitions` does not. `measured`: what a slot that is being repaired would have written to the partitions
    that it may not send to; no decision has it. For the metrics only: `retries`, record batches that were
    sent more than once; `attempt`, how many earlier attempts of the task this one has fenced; `traffic`, what
    sending took, which a task reports to the driver and the ledger keeps as the batch's sum. `time_zone`: the
    zone by which the task read times without one, "" where it read none; it goes the same way.
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
    traffic: Traffic | None = field(default=None, compare=False)
    time_zone: str = field(default="", compare=False)

    @property
    def empty(self) -> bool:
        """True where the slot wrote nothing and so has no transaction to end."""
        return self.identity is None

    @property
    def shares(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Partition -> (records, digest) of what the slot wrote there
        or would have written; the digest is None where unknown."""
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
    def end_identity(self) -> ProducerIdentity | None:
        """The identity under which the coordinator shows the transaction once it is committed (KIP-890:
        version 2 raises the epoch with the end)."""
        if self.identity is None or self.transaction_version < 2:
            return self.identity
        return ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)

    def to_json(self) -> dict[str, Any]:
        """The seal as the ledger keeps it, which is without `traffic` and `time_zone`."""
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
        }
        # Fields that older versions do not have are left out where they are empty.
        if any(part.digest is not None for part in self.partitions):
            body["digests"] = [_digest_text(part.digest) for part in self.partitions]
        if self.kept:
            body["kept"] = [each.to_json() for each in self.kept]
        if self.measured:
            body["measured"] = [part.to_json() for part in self.measured]
            body["measured_digests"] = [_digest_text(part.digest) for part in self.measured]
        return body

    def to_driver(self) -> dict[str, Any]:
        """The seal as a task returns it to the driver, with `traffic` and `time_zone`."""
        more: dict[str, Any] = {} if self.traffic is None else {"traffic": self.traffic.to_json()}
        if self.time_zone:
            more["time_zone"] = self.time_zone
        return {**self.to_json(), **more}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Seal:
        """Read a seal back, from either form; KeyError, TypeError or ValueError where it is not one."""
        producer = data["producer"]
        return Seal(
            transactional_id=str(data["transactional_id"]),
            slot=int(data["slot"]),
            identity=None if producer is None else ProducerIdentity(int(producer[0]), int(producer[1])),
            transaction_version=int(data["transaction_version"]),
            records=int(data["records"]),
            bytes=int(data["bytes"]),
            digest=int(data["digest"], 16),
            opened_ms=int(data["opened_ms"]),
            partitions=_parts({"partitions": data["partitions"], **data}, "partitions", "digests"),
            # Seals of older connectors have no such field.
            two_phase=bool(data.get("two_phase", False)),
            # Older connectors did not count these.
            retries=int(data.get("retries", 0)),
            attempt=int(data.get("attempt", 0)),
            dead_letters=int(data.get("dead_letters", 0)),
            kept=tuple(KeptPartition.from_json(entry) for entry in data.get("kept", ())),
            measured=_parts(data, "measured", "measured_digests"),
            traffic=Traffic.from_json(data.get("traffic")),
            time_zone=str(data.get("time_zone", "")),
        )


@dataclass(frozen=True)
class Decision:
    """The driver's durable decision to commit a batch: which slots wrote what, and from which source offsets.

    `source_offsets` is Spark's offset-log line per source (JSON text), `highest_slot` the
    highest slot index that this pipeline ever used (written for older versions, which require
    it). `repaired` counts rewrites of lost slots. `earlier`: the ids of this pipeline that
    have no part in this batch, each with the identity that its last commit left, and after a repair those whose missing markers
    were written under another identity than the sealed one; None where an
    older version wrote the decision. `warnings`: the warnings that were logged for the batch. `traffic`: what
    its tasks needed to send its records, as far as this run wrote them; None in decisions of older versions.
    `sticky_bytes`: of the plan that its tasks had (`slot.plan`), which a repair has to have too. `time_zone`: the
    zone by which they read times without one, likewise; "" where there were none.
    """

    pipeline: str
    query_id: str
    batch_id: int
    seals: tuple[Seal, ...]
    source_offsets: tuple[str, ...] = ()
    highest_slot: int = -1
    decided_ms: int = 0
    connector_version: str = ""
    repaired: int = 0
    earlier: tuple[tuple[str, ProducerIdentity], ...] | None = None
    warnings: tuple[str, ...] = ()
    traffic: Traffic | None = None
    sticky_bytes: int = 0
    time_zone: str = ""

    @property
    def ends(self) -> dict[str, ProducerIdentity]:
        """Transactional id -> the identity under which its
        coordinator shows its last commit, as of this decision."""
        own = {seal.transactional_id: seal.end_identity for seal in self.seals}
        return {name: each for name, each in own.items() if each is not None} | dict(self.earlier or ())

    def repaired_by(
        self, seals: tuple[Seal, ...], last_commits: Mapping[str, ProducerIdentity] | None = None
    ) -> Decision:
        """This decision with the seals after one more repair. `last_commits`: id -> the identity that its last commit left it at,
        which is not the sealed one where missing markers of a slot were written since."""
        before = {seal.slot: seal for seal in self.seals}
        again = [seal for seal in seals if seal != before.get(seal.slot)]
        traffic = Traffic.of_all([self.traffic, *(seal.traffic for seal in again)])
        written = {seal.transactional_id for seal in again if seal.identity is not None}
        left = {**self.ends, **(last_commits or {})}
        sealed = {seal.transactional_id: seal.end_identity for seal in seals}
        earlier = [
            (name, each)
            for name, each in sorted(left.items())
            if name not in written and each != sealed.get(name)
        ]
        repaired = self.repaired + 1
        return replace(self, seals=seals, repaired=repaired, traffic=traffic, earlier=tuple(earlier))

    @property
    def records(self) -> int:
        """Records of the whole batch."""
        return sum(seal.records for seal in self.seals)

    @property
    def dead_letters(self) -> int:
        """How many of the batch's records are dead letters."""
        return sum(seal.dead_letters for seal in self.seals)

    @property
    def in_one_transaction(self) -> bool:
        """True where the records were in the decision's own transaction
        (transaction.scope=batch): a decided batch is committed then."""
        whole = batch_transactional_id(self.pipeline)
        return any(seal.transactional_id == whole for seal in self.seals)

    def to_bytes(self) -> bytes:
        """The ledger record's value: versioned JSON in UTF-8."""
        before = {
            "version": LEDGER_FORMAT_VERSION,
            "pipeline": self.pipeline,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
        }
        body: dict[str, Any] = {
            "source_offsets": list(self.source_offsets),
            "highest_slot": self.highest_slot,
            "decided_ms": self.decided_ms,
            "connector_version": self.connector_version,
            "repaired": self.repaired,
        }
        if self.earlier is not None:
            body["earlier"] = [[name, each.producer_id, each.epoch] for name, each in self.earlier]
        if self.warnings:
            body["warnings"] = list(self.warnings)
        if self.traffic is not None:
            body["traffic"] = self.traffic.to_json()
        if self.sticky_bytes:
            body["sticky_bytes"] = self.sticky_bytes
        if self.time_zone:
            body["time_zone"] = self.time_zone
        # Seal by seal: all of them as dicts at once take 11 MB for 10,000 slots, of which the process keeps the pages.
        seals = ",".join(_text_of(seal.to_json()) for seal in self.seals)
        return f'{_text_of(before)[:-1]},"seals":[{seals}],{_text_of(body)[1:]}'.encode()

    @staticmethod
    def from_bytes(value: bytes) -> Decision:
        """Read a ledger record's value; LedgerUnreadable where it is garbled or from a newer version."""
        try:
            body = json.loads(value, object_hook=_seal_in)
            version = body["version"]
            if version != LEDGER_FORMAT_VERSION:
                raise LedgerUnreadable(
                    "the ledger record was written by a newer version of this connector; nothing was changed; "
                    "run at least that version",
                    {"record_version": version, "known_version": LEDGER_FORMAT_VERSION},
                )
            return Decision(
                pipeline=str(body["pipeline"]),
                query_id=str(body["query_id"]),
                batch_id=int(body["batch_id"]),
                seals=tuple(
                    each if isinstance(each, Seal) else Seal.from_json(each) for each in body["seals"]
                ),
                source_offsets=tuple(str(line) for line in body["source_offsets"]),
                highest_slot=int(body["highest_slot"]),
                decided_ms=int(body["decided_ms"]),
                connector_version=str(body["connector_version"]),
                repaired=int(body["repaired"]),
                earlier=None if "earlier" not in body else _identities(body["earlier"]),
                warnings=tuple(str(text) for text in body.get("warnings", ())),
                traffic=Traffic.from_json(body.get("traffic")),
                sticky_bytes=int(body.get("sticky_bytes", 0)),
                time_zone=str(body.get("time_zone", "")),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise LedgerUnreadable(
                f"a ledger record is not a decision of this connector ({error!r}); nothing was changed; "
                "look at the record with a console consumer and name another ledger topic or restore this one",
                {"value_start": value[:80].decode("utf-8", "replace")},
            ) from error


def _seal_in(data: dict[str, Any]) -> Any:
    """A seal as soon as it is read, so that its dict is free again. What is none stays as it is and is judged after the version."""
    if "transactional_id" not in data:
        return data
    try:
        return Seal.from_json(data)
    except (KeyError, TypeError, ValueError, IndexError):
        return data


_text_of = json.JSONEncoder(separators=(",", ":")).encode


def _identities(entries: Iterable[Sequence[Any]]) -> tuple[tuple[str, ProducerIdentity], ...]:
    return tuple(
        (str(name), ProducerIdentity(int(producer_id), int(epoch))) for name, producer_id, epoch in entries
    )
