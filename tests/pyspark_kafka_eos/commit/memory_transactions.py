"""The transaction coordinator in memory: `machines.transaction.moves` with a log that never fails, and markers that a test may hold back.

Owns: transactional ids, fresh producer ids, which markers are forgotten or late, time.
Does not know: requests. Which change is allowed is judged by the machine, as in the embedded broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from embedded_kafka.transactions.machine.events import (
    Add,
    Answer,
    End,
    Entry,
    Event,
    Finish,
    Init,
    Log,
    Logged,
    MarkerWritten,
    NeedProducerId,
    Refuse,
    State,
    TimeOut,
    WriteMarkers,
)
from embedded_kafka.transactions.machine.moves import Transaction
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition

WriteMarker = Callable[[TopicPartition, ProducerIdentity, bool], None]


@dataclass
class MarkerFault:
    """A marker that is not written: never (`late` False), or when the test releases it. `fired` counts."""

    where: TopicPartition
    transactional_id: str | None
    late: bool
    times: int = 1
    fired: int = 0

    def takes(self, where: TopicPartition, transactional_id: str) -> bool:
        if self.fired >= self.times or where != self.where:
            return False
        if self.transactional_id not in (None, transactional_id):
            return False
        self.fired += 1
        return True


class MemoryTransactions:
    """All transactional ids of the cluster."""

    def __init__(self, version: int, write_marker: WriteMarker) -> None:
        self.version = version
        self.now_ms = 1_000_000
        self.faults: list[MarkerFault] = []
        self._write_marker = write_marker
        self._ids: dict[str, Transaction] = {}
        self._next_id = 1_000
        self._late: list[tuple[str, TopicPartition, WriteMarkers]] = []

    # ---- what clients ask for

    def init(
        self, name: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ProducerIdentity | Code:
        if name is None:
            return ProducerIdentity(self._fresh_id(), 0)
        value = self._ids.setdefault(name, Transaction(name, Entry(self._fresh_id())))
        was_open = value.state is State.ONGOING
        answer = self._change(name, Init(timeout_ms, self.now_ms, expected, self.version))
        refused = isinstance(answer, Code)
        return Code.CONCURRENT_TRANSACTIONS if was_open and not refused else answer

    def add(
        self, name: str, identity: ProducerIdentity, partitions: Collection[TopicPartition], version: int
    ) -> Code:
        answer = self._change(name, Add(identity, frozenset(partitions), self.now_ms, version))
        return answer if isinstance(answer, Code) else Code.NONE

    def ensure(self, name: str, identity: ProducerIdentity, where: TopicPartition, *, add: bool) -> Code:
        """Before transactional records are written: that the partition is, or from now on is, part of the transaction."""
        if add:
            code = self.add(name, identity, [where], 2)
        elif name not in self._ids:
            code = Code.INVALID_PRODUCER_ID_MAPPING
        else:
            refusal = self._ids[name].verify(identity, where)
            code = Code.NONE if refusal is None else Code[refusal.name]
        return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED else code

    def end(
        self, name: str, identity: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerIdentity | Code:
        return self._change(name, End(identity, commit, version, self.now_ms))

    def entry(self, name: str) -> Entry | None:
        value = self._ids.get(name)
        return None if value is None else value.current

    def listing(self) -> dict[str, Entry]:
        return {name: value.current for name, value in self._ids.items()}

    # ---- what happens to coordinators

    def advance(self, ms: int) -> None:
        """Time goes on: what is older than its timeout by then is aborted."""
        self.now_ms += ms
        for name, value in list(self._ids.items()):
            if value.timed_out(self.now_ms):
                self._change(name, TimeOut(self.now_ms, self.version))

    def expire(self, name: str) -> None:
        """Forget an id that nobody has used for long."""
        assert self._ids[name].state is not State.ONGOING
        del self._ids[name]

    def set_epoch(self, name: str, epoch: int) -> None:
        """As if so many epochs had been used."""
        value = self._ids[name]
        self._ids[name] = replace(value, current=replace(value.current, epoch=epoch))

    def release_markers(self) -> None:
        """Write every marker that is late."""
        late, self._late = self._late, []
        for name, where, markers in late:
            self._mark(name, where, markers)
        for name in dict.fromkeys(name for name, _, _ in late):
            self._run(name, Finish())

    # ---- the machine

    def _fresh_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _change(self, name: str, event: Event) -> ProducerIdentity | Code:
        if name not in self._ids:
            return Code.INVALID_PRODUCER_ID_MAPPING
        return self._run(name, event)

    def _run(self, name: str, event: Event) -> ProducerIdentity | Code:
        answer: ProducerIdentity | None = None
        events = deque([event])
        while events:
            asked = events.popleft()
            value, effects = self._ids[name].handle(asked)
            self._ids[name] = value
            for effect in effects:
                if isinstance(effect, Refuse):
                    return Code[effect.refusal.name]
                if isinstance(effect, NeedProducerId):
                    assert isinstance(asked, Init | End | TimeOut)
                    events.append(replace(asked, fresh_id=self._fresh_id()))
                elif isinstance(effect, Log):
                    events.append(Logged(self.now_ms))
                elif isinstance(effect, Answer) and answer is None:
                    answer = effect.identity
                elif isinstance(effect, WriteMarkers):
                    self._mark_all(name, effect)
                    events.append(Finish())
        return answer if answer is not None else self._ids[name].current.identity

    def _mark_all(self, name: str, markers: WriteMarkers) -> None:
        for where in sorted(markers.partitions):
            fault = next((each for each in self.faults if each.takes(where, name)), None)
            if fault is None:
                self._mark(name, where, markers)
            elif fault.late:
                self._late.append((name, where, markers))
            else:
                # As Kafka where its metadata name no leader: taken for written.
                self._ids[name], _ = self._ids[name].handle(MarkerWritten(where))

    def _mark(self, name: str, where: TopicPartition, markers: WriteMarkers) -> None:
        self._write_marker(where, markers.identity, markers.commit)
        self._ids[name], _ = self._ids[name].handle(MarkerWritten(where))
