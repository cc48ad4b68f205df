"""The faults of a broker: at the wire, in answers, at the coordinators' steps, at single markers, and other leaders
than the present one.

Owns: which faults are set, and when each fires.
Does not know: sockets; the connection and the coordinators carry the faults out.
Invariants:
- A fault counts how often it fired, so a test can prove that it did.
- Without faults the broker looks nothing up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from embedded_kafka.faults import answer_faults
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.faults.fault import (
    PLACES,
    Action,
    AnswerFault,
    Fault,
    LeaderFault,
    MarkerFault,
    StepFault,
    WireFault,
)
from embedded_kafka.refusals import Disconnect
from embedded_kafka.waiting import set_within
from embedded_kafka.wire.server import Message, api_name, frame_of
from kafka_core import runtime
from kafka_core.values import TopicPartition


class Faults:
    """The faults of one broker."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.before_kill: Callable[[], None] = lambda: None
        """Called just before a fault kills the broker: the counts would end with it."""
        self._set: dict[type[Action], list[Fault]] = {kind: [] for kind in PLACES.values()}

    def inject(self, fault: Fault) -> Fault:
        """Set a fault; it has its number from then on."""
        fault.number = next(self._numbers)
        self._set[type(fault.action)].append(fault)
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

    def clear(self) -> dict[int, int]:
        """Remove all faults and resume everything they hold; returns their last `counts`."""
        counts = self.counts()
        for fault in self._all():
            self.release(fault)
        for faults in self._set.values():
            faults.clear()
        return counts

    def counts(self) -> dict[int, int]:
        """The number of each fault that is set -> how often it has fired."""
        return {fault.number: fault.fired for fault in self._all()}

    def _all(self) -> list[Fault]:
        return [fault for faults in self._set.values() for fault in faults]

    async def around(
        self,
        request: Message,
        client_id: str,
        correlation_id: int,
        handle: Callable[[], Awaitable[bytes | None]],
        broker: int | None = None,
    ) -> bytes | None:
        """The answer of `handle`, or what the first fault that fires for the request makes of it. Disconnect."""
        fault = self.take(request.API_KEY, client_id, request, broker)
        if fault is None:
            return await handle()
        if fault.action is WireFault.DROP_REQUEST:
            raise Disconnect(f"fault {fault.number}")
        if fault.action is WireFault.ERROR:
            return frame_of(refusal(request, fault.code), correlation_id)
        if fault.action is WireFault.DELAY:
            await asyncio.sleep(fault.delay_ms / 1000)
        answer = await handle()
        if fault.action is WireFault.DROP_ANSWER:
            raise Disconnect(f"fault {fault.number}")
        if fault.action is WireFault.CUT and answer is not None:
            raise Disconnect(f"fault {fault.number}", bytes(answer[: fault.after_bytes]))
        return answer

    def take(
        self, api_key: int, client_id: str, request: Message | None = None, broker: int | None = None
    ) -> Fault | None:
        """The first fault that fires for this request at this broker."""
        if not self._set[WireFault]:
            return None
        name = api_name(api_key)
        for fault in self._set[WireFault]:
            meant = fault.api in ("*", name) and (request is None or fault.concerns(request))
            if meant and fault.fires(client_id=client_id, broker=broker):
                return fault
        return None

    @property
    def any_in_answers(self) -> bool:
        """Whether `alter` may have anything to do."""
        return bool(self._set[AnswerFault])

    async def alter(self, request: Message, response: Message, client_id: str, broker: int | None = None) -> None:
        """Alter the answer to a request by every fault that fires for it. Only altered answers count."""
        facts = {"api": api_name(request.API_KEY), "client_id": client_id, "broker": broker}
        for fault in self._set[AnswerFault]:
            if not fault.meets(**facts):
                continue
            change = await answer_faults.prepare(fault, request, response)
            if change is not None and fault.fires(**facts):
                change()

    def leading(self, where: TopicPartition, api_key: int, client_id: str) -> Fault | None:
        """The first fault by which another leader answers this request for the partition."""
        for fault in self._set[LeaderFault]:
            if fault.fires(topic=where.topic, partition=where.partition, client_id=client_id, api=api_name(api_key)):
                return fault
        return None

    async def reached(self, step: str) -> None:
        """A coordinator has reached a step."""
        for fault in [fault for fault in self._set[StepFault] if fault.fires(step=step)]:
            if fault.action is StepFault.KILL:
                self.before_kill()
                runtime.kill()
            elif fault.action is StepFault.DELAY:
                await asyncio.sleep(fault.delay_ms / 1000)
            else:
                await fault.released.wait()

    def marking(
        self, transactional_id: str, where: TopicPartition, commit: bool
    ) -> Callable[[], Awaitable[bool]] | None:
        """A coordinator is about to write a marker; see `steps.Marking`."""
        for fault in self._set[MarkerFault]:
            if fault.fires(
                topic=where.topic, partition=where.partition, transactional_id=transactional_id, commit=commit
            ):
                return lambda: _held(fault)
        return None


async def _held(fault: Fault) -> bool:
    """Whether the marker is to be written; returns once that is decided."""
    if fault.action is MarkerFault.FORGET:
        return False
    await set_within(fault.released, fault.delay_ms / 1000 or None)
    return True
