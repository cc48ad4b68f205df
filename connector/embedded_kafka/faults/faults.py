"""Faults that tests set: at the wire for any API, in its answers, at the steps of the
coordinators, at single markers, and other leaders than the present one.

Owns: which faults are set, how often each fired.
Does not know: sockets; the connection and the coordinators carry the faults out.
Invariants:
- A fault counts how often it fired, so a test can prove that it did.
- Without faults the broker looks nothing up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

from embedded_kafka.faults import answer_faults, request_facts
from embedded_kafka.faults.answer_faults import Alteration, Answer
from embedded_kafka.waiting import set_within
from embedded_kafka.wire.server import REQUESTS, Message, api_name
from kafka_core import runtime
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition


class Wire(Enum):
    """What happens to a request."""

    DELAY = "delay"
    """The broker processes it after `delay_ms`."""
    DROP_REQUEST = "drop-request"
    """The broker does not process it and closes the connection."""
    DROP_ANSWER = "drop-answer"
    """The broker processes it, and closes the connection instead of answering."""
    ERROR = "error"
    """The broker does not process it; the answer has `code` in every field that can hold one."""
    CUT = "cut"
    """The broker processes it, cuts the answer after `after_bytes`, and closes the connection."""


class Step(Enum):
    """What happens when a coordinator reaches a step."""

    STOP = "stop"
    """The coordinator waits there until the fault is released."""
    DELAY = "delay"
    """The coordinator waits there for `delay_ms`."""
    KILL = "kill"
    """SIGKILL ends the broker's process at once; only for a broker in a process of its own."""


class Marker(Enum):
    """What happens to a transaction's marker for one partition. Other partitions' markers are not delayed."""

    FORGET = "forget"
    """The marker is never written, but counts as written: the transaction is complete and
    hangs in this partition."""
    LATE = "late"
    """The marker is written after `delay_ms`, or with 0 on release; until then the
    transaction is prepared."""


class Leader(Enum):
    """Which leader answers for a partition. The broker writes as the present leader in any case."""

    STALE = "stale-leader"
    """One that was cut off from the controller, and has been replaced without noticing: it answers as the log
    was at an earlier end, under its own epoch. What was written since it does not have."""
    LAGGING = "lagging-high-watermark"
    """A new one that has every record and does not know yet how far its followers are: readers
    get nothing from its high watermark on, and "latest" is not available (KIP-207)."""


@dataclass
class Standpoint:
    """What the leader of a fault knows. `end`: its high watermark, and for STALE the end of its log. `leader_epoch`: STALE's own."""

    end: int = 0
    leader_epoch: int = -1


@dataclass
class Fault:
    """One fault. It first skips `skip` matches, then fires at most `times` times."""

    number: int
    target: str
    """The name of an API ("Produce"), a step ("end-prepared") or a topic; "*" stands for all."""
    action: Wire | Answer | Step | Marker | Leader
    times: int = 1
    skip: int = 0
    delay_ms: int = 0
    code: Code = Code.UNKNOWN_SERVER_ERROR
    after_bytes: int = 0
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    transactional_id: str | None = None
    commit: bool | None = None
    api: str | None = None
    alteration: Alteration = field(default_factory=Alteration)
    standpoint: Standpoint = field(default_factory=Standpoint)
    fired: int = 0
    met: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def fires(self, target: str, **facts: object) -> bool:
        """Whether it fires now; counts the match. `facts`: values of the fields by which a
        fault can be restricted."""
        if self.target not in ("*", target) or self.fired >= self.times:
            return False
        if any(getattr(self, name) not in (None, value) for name, value in facts.items()):
            return False
        self.met += 1
        if self.met <= self.skip:
            return False
        self.fired += 1
        return True

    def concerns(self, request: Message) -> bool:
        """Whether the request names everything that the fault is restricted to."""
        if self.transactional_id not in (None, *request_facts.transactional_ids(request)):
            return False
        return (self.topic is None and self.partition is None) or any(
            self.topic in (None, topic) and self.partition in (None, partition)
            for topic, partition in request_facts.places(request)
        )


APIS = frozenset(api_name(key) for key in REQUESTS)
"""The names under which faults can be set at the wire."""

LEADER_APIS = frozenset({"DescribeProducers", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch"})
"""The APIs that `leader_views` answers."""


class Faults:
    """The faults of one broker."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._wire: list[Fault] = []
        self._steps: list[Fault] = []
        self._markers: list[Fault] = []
        self._answers: list[Fault] = []
        self._leaders: list[Fault] = []

    def at_wire(
        self, api: str, action: Wire, *, times: int = 1, skip: int = 0, delay_ms: int = 0,
        code: Code = Code.UNKNOWN_SERVER_ERROR, after_bytes: int = 0, client_id: str | None = None,
        transactional_id: str | None = None, topic: str | None = None, partition: int | None = None,
    ) -> Fault:  # fmt: skip
        """Set a fault for an API, by its Kafka name, or "*". ValueError for an unknown name.

        `transactional_id`, `topic`, `partition`: only for requests that name them.
        """
        if api != "*" and api not in APIS:
            raise ValueError(f"unknown API {api!r}; known APIs: {', '.join(sorted(APIS))}")
        fault = Fault(
            next(self._numbers), api, action, times, skip, delay_ms, code, after_bytes, client_id,
            topic, partition, transactional_id,
        )  # fmt: skip
        self._wire.append(fault)
        return fault

    def in_answer(
        self, api: str, action: Answer, alteration: Alteration, *, times: int = 1, skip: int = 0,
        client_id: str | None = None,
    ) -> Fault:  # fmt: skip
        """Set a fault for an API's answers. Only altered answers count. ValueError
        where it can alter none."""
        answer_faults.check(api, action, alteration)
        fault = Fault(
            next(self._numbers), api, action, times, skip, client_id=client_id, alteration=alteration
        )
        self._answers.append(fault)
        return fault

    def at_step(self, step: str, action: Step, *, times: int = 1, skip: int = 0, delay_ms: int = 0) -> Fault:
        """Set a fault for a coordinator's step, by its name, or "*"."""
        fault = Fault(next(self._numbers), step, action, times, skip, delay_ms)
        self._steps.append(fault)
        return fault

    def at_marker(
        self, topic: str, action: Marker, *, partition: int | None = None, times: int = 1, skip: int = 0,
        delay_ms: int = 0, transactional_id: str | None = None, commit: bool | None = None,
    ) -> Fault:  # fmt: skip
        """Set a fault for the markers in one partition of a topic, or in all of them; every marker counts."""
        fault = Fault(
            next(self._numbers), topic, action, times, skip, delay_ms, partition=partition,
            transactional_id=transactional_id, commit=commit,
        )  # fmt: skip
        self._markers.append(fault)
        return fault

    def at_leader(
        self, where: TopicPartition, action: Leader, stand: Callable[[], Standpoint], *, times: int = 1, skip: int = 0,
        client_id: str | None = None, api: str | None = None,
    ) -> Fault:  # fmt: skip
        """Have another leader than the present one answer for a partition: each API that asks a leader, and Metadata.
        `api`: only this one; ValueError where it asks no leader. `stand`: called once nothing can refuse the fault but itself."""
        if api is not None and api not in LEADER_APIS:
            raise ValueError(f"{api} asks no leader; these do: {', '.join(sorted(LEADER_APIS))}")
        fault = Fault(
            next(self._numbers), where.topic, action, times, skip, partition=where.partition, client_id=client_id,
            api=api, standpoint=stand(),
        )  # fmt: skip
        self._leaders.append(fault)
        return fault

    def get(self, number: int) -> Fault:
        """A fault by its number; KeyError."""
        for fault in self._all():
            if fault.number == number:
                return fault
        raise KeyError(number)

    def release(self, fault: Fault) -> None:
        """Resume everything the fault holds, and disable the fault."""
        fault.times = fault.fired
        fault.released.set()

    def clear(self) -> None:
        """Remove all faults and resume everything they hold."""
        for fault in self._all():
            self.release(fault)
        self._wire.clear()
        self._steps.clear()
        self._markers.clear()
        self._answers.clear()
        self._leaders.clear()

    def _all(self) -> tuple[Fault, ...]:
        return (*self._wire, *self._steps, *self._markers, *self._answers, *self._leaders)

    def take(self, api_key: int, client_id: str, request: Message | None = None) -> Fault | None:
        """The first fault that fires for this request."""
        if not self._wire:
            return None
        name = api_name(api_key)
        for fault in self._wire:
            meant = fault.target in ("*", name) and (request is None or fault.concerns(request))
            if meant and fault.fires(name, client_id=client_id):
                return fault
        return None

    @property
    def any_in_answers(self) -> bool:
        """Whether `alter` may have anything to do."""
        return bool(self._answers)

    async def alter(self, request: Message, response: Message, client_id: str) -> None:
        """Alter the answer to a request by every fault that fires for it."""
        for fault in self._answers:
            name = api_name(request.API_KEY)
            if fault.target != name or fault.fired >= fault.times or fault.client_id not in (None, client_id):
                continue
            assert isinstance(fault.action, Answer)
            change = await answer_faults.prepare(fault.action, fault.alteration, request, response)
            if change is not None and fault.fires(name):
                change()

    def leading(self, where: TopicPartition, api_key: int, client_id: str) -> Fault | None:
        """The first fault by which another leader answers this request for the partition."""
        for fault in self._leaders:
            if fault.fires(
                where.topic, partition=where.partition, client_id=client_id, api=api_name(api_key)
            ):
                return fault
        return None

    async def reached(self, step: str) -> None:
        """A coordinator has reached a step."""
        for fault in [fault for fault in self._steps if fault.fires(step)]:
            if fault.action is Step.KILL:
                runtime.kill()
            elif fault.action is Step.DELAY:
                await asyncio.sleep(fault.delay_ms / 1000)
            else:
                await fault.released.wait()

    def marking(
        self, transactional_id: str, where: TopicPartition, commit: bool
    ) -> Callable[[], Awaitable[bool]] | None:
        """A coordinator is about to write a marker; see `steps.Marking`."""
        for fault in self._markers:
            if fault.fires(
                where.topic, partition=where.partition, transactional_id=transactional_id, commit=commit
            ):
                return lambda: _held(fault)
        return None


async def _held(fault: Fault) -> bool:
    """Whether the marker is to be written; returns once that is decided."""
    if fault.action is Marker.FORGET:
        return False
    await set_within(fault.released, fault.delay_ms / 1000 or None)
    return True
