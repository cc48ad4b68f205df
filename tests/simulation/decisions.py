"""Which batches are decided at each moment, and the group's offsets, from the bytes of the ledger and of the
coordinators' logs.

Owns: the decisions, the identities that they name, the offsets; the rules of what a decision has to hold.
Does not know: the output's order, processes.
Invariants: a batch counts as decided from PrepareCommit of its decision's transaction on. Markers follow one by one, on
Kafka in any order, so nothing is asked of their order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from embedded_kafka.groups.offsets_log import OffsetKey, decode_offset
from embedded_kafka.groups.offsets_log import decode_key as decode_offset_key
from embedded_kafka.transactions.machine.events import TransactionLogEntry as Coordinated
from embedded_kafka.transactions.machine.events import TransactionState
from embedded_kafka.transactions.state_log import decode_key, decode_value
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.ledger.notes import Mending, Settled, SettledInParts, from_bytes, is_note_of
from pyspark_kafka_eos.commit.ledger.parts import DecisionPart, Manifest
from pyspark_kafka_eos.commit.machine.events import DecisionDurable, DecisionRefused
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options.sink import DEFAULT_MARGIN_MS
from pyspark_kafka_eos.records import MarkerKind, control_marker, decode
from pyspark_kafka_eos.records.batch import Batch
from tests.chaos.history import Decided, OffsetsSeen
from tests.simulation.job import source_offset

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

PIPELINE = b"pipe"
SOURCE = ("src", 0)

Identity = tuple[int, int]
"""(producer id, epoch)."""


def pair(identity: ProducerIdentity) -> Identity:
    """An identity of the product as the logs have it."""
    return identity.producer_id, identity.epoch


class Decisions:
    """The decisions of one history."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.seen: list[Decided] = []
        self.offsets: list[OffsetsSeen] = []
        self.coordinator: dict[str, Coordinated] = {}
        self.kept = False
        """Whether a torn transaction was repaired."""
        self.newest: dict[int, Decision] = {}
        self.named: defaultdict[int, set[Identity]] = defaultdict(set)
        self.current: dict[str, Identity] = {}
        """Transactional id -> the identity that the newest decision names."""
        self.noted: set[Identity] = set()
        self.group: dict[Any, int] = {}
        self._undecided: dict[int, list[tuple[Identity, Decision]]] = {}
        self._written: dict[int, dict[int, Decision]] = {}
        """Producer id -> offset in the ledger -> a decision that no marker has ended there."""
        self._parts: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """Digest of a decision in parts -> number -> text."""
        self._settled: set[int] = set()
        """Offsets of decisions that a note states to be made."""
        self._pending_offsets: dict[int, dict[Any, int]] = {}
        self._undecided_offsets: dict[int, dict[Any, int]] = {}
        self._checked_s: dict[int, float] = {}
        self._decided_by: dict[Identity, int] = {}
        self._waits_for: dict[int, Identity] = {}
        self._made: set[Identity] = set()
        self._committed_with: dict[Identity, dict[Any, int] | None] = {}

    def names(self, identity: Identity) -> bool:
        """Whether any decision names it."""
        return any(identity in named for named in self.named.values())

    def check_begins(self) -> None:
        """The running process looks whether its batch may be decided."""
        world = self._watch.scene.world
        self._checked_s[world.running().process.number] = world.now

    def written(self) -> None:
        """The running process has put a decision into its transaction."""
        process = self._watch.scene.world.running().process.number
        for found in self._undecided.values():
            for identity, _ in found:
                if self._decided_by.setdefault(identity, process) == process:
                    self._waits_for[process] = identity

    def told(self, event: object) -> None:
        """The commit of the running process takes its decision for made, or for refused."""
        if not isinstance(event, DecisionDurable | DecisionRefused):
            return
        process = self._watch.scene.world.running().process.number
        identity = self._waits_for.pop(process, None)
        if identity is not None and (identity in self._made) != isinstance(event, DecisionDurable):
            made = "made" if identity in self._made else "not made"
            self._watch.problem(
                f"a commit takes {type(event).__name__} for true, and the decision of {identity} is {made}"
            )

    # ---- the logs

    def ledger(self, batch: Batch) -> None:
        info = batch[0]
        if info.control:
            if control_marker(batch).kind is not MarkerKind.OTHER:
                self._undecided.pop(info.producer_id, None)
                self._written.pop(info.producer_id, None)
            return
        rows = decode(batch)
        for key, value, at in zip(rows.key.to_pylist(), rows.value.to_pylist(), rows.offset.tolist(), strict=True):
            if key == PIPELINE and value:
                identity, decision = (info.producer_id, info.producer_epoch), self._decision(value)
                self._undecided.setdefault(info.producer_id, []).append((identity, decision))
                self._written.setdefault(info.producer_id, {})[at] = decision
            elif is_note_of(PIPELINE, key) and value:
                note = from_bytes(value)
                if isinstance(note, Mending):
                    self.noted.add((note.identity.producer_id, note.identity.epoch))
                elif isinstance(note, Settled | SettledInParts):
                    self._settled.add(note.offset)
                elif isinstance(note, DecisionPart):
                    self._parts[note.digest][note.number] = note.text

    def cut(self, offset: int) -> None:
        """The ledger has lost what stood from this offset on, of which nobody was told: decisions that are open."""
        for producer_id, found in list(self._written.items()):
            gone = [decision for at, decision in found.items() if at >= offset]
            self._written[producer_id] = {at: decision for at, decision in found.items() if at < offset}
            self._undecided[producer_id] = [
                each for each in self._undecided.get(producer_id, []) if each[1] not in gone
            ]

    def _decision(self, value: bytes) -> Decision:
        manifest = Manifest.from_record(value)
        if manifest is not None:
            parts = self._parts[manifest.digest]
            value = "".join(parts[number] for number in range(manifest.parts)).encode()
        return Decision.from_bytes(value)

    def undone(self, producer_id: int) -> None:
        """An operator was asked to abort what this producer has open in the ledger: decisions that were made, and of
        which no trace is left but their records. Nothing of their batches may be visible then, and they are made anew.
        """
        for at, decision in self._written.get(producer_id, {}).items():
            batch = decision.batch_id
            if at in self._settled or self.newest.get(batch) != decision:
                continue
            shown = self._watch.expected_of(batch).difference(self._watch.not_committed(batch + 1))
            if shown:
                self._watch.problem(
                    f"an operator undoes the decision of batch {batch}, and {sorted(shown)} are visible"
                )
            self.seen = [each for each in self.seen if each.batch_id != batch]
            del self.newest[batch]

    def coordinated(self, batch: Batch) -> None:
        rows = decode(batch)
        for key, value in zip(rows.key.to_pylist(), rows.value.to_pylist(), strict=True):
            name = decode_key(key)
            if name is None:
                continue
            if value is None:
                self.coordinator.pop(name, None)
                continue
            entry = self.coordinator[name] = decode_value(value)
            if entry.state is TransactionState.PREPARE_COMMIT:
                self._prepared(entry)

    def _prepared(self, entry: Coordinated) -> None:
        for partition in self._watch.partitions.values():
            for each in partition.open_of(entry.producer_id):
                each.sure = True
        decided = [each for each in self._undecided.pop(entry.producer_id, []) if each[0][1] <= entry.epoch]
        # Where a marker was forgotten, a second transaction mends it, and these offsets are not its own.
        offsets = self._undecided_offsets.pop(entry.producer_id, None)
        if offsets and not decided and not self._repeated((entry.producer_id, entry.epoch), offsets):
            self._watch.problem(f"offsets {offsets} are committed without a decision")
        for identity, decision in decided:
            self._made.add(identity)
            self._committed_with[identity] = offsets
            self._decide(decision, offsets)
            if identity in self._decided_by:
                self._check_was_right(decision, self._checked_s.get(self._decided_by[identity], 0.0))

    def _decide(self, decision: Decision, offsets: dict[Any, int] | None) -> None:
        batch = decision.batch_id
        first = batch not in self.newest
        self.seen.append(Decided(self._watch.moment(), batch, decision.repaired))
        self.newest[batch] = decision
        for seal in decision.seals:
            identities = [seal.identity, *(kept.identity for kept in seal.kept)]
            self.named[batch] |= {(each.producer_id, each.epoch) for each in identities if each is not None}
            self.kept = self.kept or bool(seal.kept)
            if seal.identity is not None:
                self.current[seal.transactional_id] = (seal.identity.producer_id, seal.identity.epoch)
        expected = {SOURCE: source_offset(batch)}
        if offsets != expected and (first or offsets):
            self._watch.problem(f"batch {batch} is decided with the source offsets {offsets}, not {expected}")
        if decision.records != len(self._watch.expected_of(batch)):
            self._watch.problem(f"batch {batch} is decided with {decision.records} records")
        if first:
            # The end of a batch is awaited, marker by marker, before the next one is decided.
            missing = self._watch.not_committed(batch)
            if missing:
                self._watch.problem(
                    f"batch {batch} is decided while {sorted(missing)} of an earlier one is not committed"
                )

    def _repeated(self, identity: Identity, offsets: dict[Any, int]) -> bool:
        """Whether the network delivered the whole of a decision's transaction twice: AddOffsetsToTxn, TxnOffsetCommit
        and EndTxn. Under transaction version 1 its identity stays valid until the next InitProducerId, so Kafka carries
        it out again, and commits the offsets that the decision has committed. Version 2 has fenced it.
        """
        doubled = self._watch.scene.world.fired["doubled request TxnOffsetCommit"] > 0
        return doubled and self._committed_with.get(identity) == offsets

    def _check_was_right(self, decision: Decision, checked_s: float) -> None:
        """What a decision names was open when its process looked, with the margin left."""
        options = self._watch.scene.job.options
        longest_s = (int(options["kafka.transaction.timeout.ms"]) - DEFAULT_MARGIN_MS) / 1000
        for seal in decision.seals:
            if seal.identity is None or decision.repaired:
                continue
            identity = seal.identity.producer_id, seal.identity.epoch
            if self._watch.aborted_s.get(identity, checked_s) < checked_s:
                self._watch.problem(
                    f"batch {decision.batch_id} is decided with slot {seal.slot}, which was aborted before the check"
                )
            if checked_s - self._watch.written_s.get(identity, checked_s) > longest_s:
                self._watch.problem(
                    f"batch {decision.batch_id} is decided too close to the timeout of slot {seal.slot}"
                )

    def group_log(self, batch: Batch) -> None:
        info = batch[0]
        if info.control:
            self._undecided_offsets.pop(info.producer_id, None)
            pending = self._pending_offsets.pop(info.producer_id, {})
            if control_marker(batch).kind is MarkerKind.COMMIT and pending:
                self.group = self.group | pending
                self.offsets.append(OffsetsSeen(self._watch.moment(), dict(self.group)))
            return
        rows = decode(batch)
        for key, value, at in zip(rows.key.to_pylist(), rows.value.to_pylist(), rows.offset.tolist(), strict=True):
            found = decode_offset_key(key)
            if not isinstance(found, OffsetKey) or found.group_id != PIPELINE.decode() or value is None:
                continue
            if not info.transactional:
                self._watch.problem(f"an offset of the group is committed outside any transaction at {at}")
                continue
            where = found.where.topic, found.where.partition
            offset = decode_offset(value, at).offset
            self._pending_offsets.setdefault(info.producer_id, {})[where] = offset
            self._undecided_offsets.setdefault(info.producer_id, {})[where] = offset
