"""Where a fault gets into the simulated broker: its requests and markers, its access rights, its disk, its network.

Owns: the hooks, and the count of each fault where it takes effect.
Does not know: which fault is set when (`requests`, `circumstances`, `faults`).
Invariants:
- A hook outlives the broker's process, as a rule of the network, an access right and a disk do.
- A hook without a fault draws nothing, so a seed keeps its history.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from embedded_kafka.faults.fault import AnswerFault, Fault, MarkerFault, WireFault
from embedded_kafka.faults.faults import Faults
from embedded_kafka.log import PartitionLog, claimed_header, only_batch
from embedded_kafka.refusals import Disconnect
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.wire.server import Message, ProduceRequest, api_name
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.simulation.network import Net, SimSocket
from tests.simulation.world import Ended, Process, World

BROKER, BOX = "broker", "box"
_HEADER_BYTES = 12
"""Length, API key, version and correlation id."""


@dataclass
class Tail:
    """The batch that a leader appends to a topic behind `skip` others, and that no follower has. `told`: see
    `CountedFaults.lose_tail`.
    """

    topic: str
    skip: int
    told: bool


class CountedFaults(Faults):
    """The broker's own faults, counted in the world. `seen`: requests of each API so far. `elect`: has a leader elected
    for a partition that lacks everything from an offset on.
    """

    def __init__(
        self,
        world: World,
        log_of: Callable[[TopicPartition], PartitionLog | None],
        elect: Callable[[TopicPartition, int], None],
    ) -> None:
        super().__init__()
        self._log_of, self._elect = log_of, elect
        self._tails: list[Tail] = []
        self._ends: dict[int, dict[TopicPartition, int]] = {}
        self.world = world
        self.seen: Counter[str] = Counter()
        self.names: dict[int, str] = {}
        """Number of a fault -> the name under which it counts."""

    def lose_tail(self, topic: str, skip: int, *, told: bool) -> None:
        """The leader of a partition of the topic is replaced before its followers have the batch that it appends next,
        behind so many others. Its client was not told that it is there. `told`: it is told by whom it is led now, else
        the connection ends.
        """
        self._tails.append(Tail(topic, skip, told))

    def clear(self) -> dict[int, int]:
        """Also the tails that are to be lost."""
        self._tails.clear()
        return super().clear()

    async def around(
        self,
        request: Message,
        client_id: str,
        correlation_id: int,
        handle: Callable[[], Awaitable[bytes | None]],
        broker: int | None = None,
    ) -> bytes | None:
        """See `Faults`. Notes where the logs end before an append, which tells a new batch from one that is there."""
        if not self._tails or request.API_KEY != ProduceRequest.API_KEY:
            return await super().around(request, client_id, correlation_id, handle, broker)
        self._ends[id(request)] = {
            where: log.end_offset for where in _written(request) if (log := self._log_of(where)) is not None
        }
        try:
            return await super().around(request, client_id, correlation_id, handle, broker)
        finally:
            self._ends.pop(id(request), None)

    @property
    def any_in_answers(self) -> bool:
        """See `Faults`."""
        return bool(self._tails) or super().any_in_answers

    def _lose_tails(self, request: Message, response: Message) -> None:
        """Disconnect where the client is not told."""
        ends = self._ends.get(id(request), {})
        for topic in response.responses:
            for answer in topic.partition_responses:
                where = TopicPartition(topic.name, answer.index)
                tail = next((each for each in self._tails if each.topic == topic.name), None)
                if tail is None or answer.error_code or not self._is_tail(request, where, answer.base_offset, ends):
                    continue
                tail.skip -= 1
                if tail.skip >= 0:
                    continue
                self._tails.remove(tail)
                self._elect(where, answer.base_offset)
                self.world.fired["unacknowledged tail lost"] += 1
                self.world.note("tail lost", str(where), answer.base_offset)
                if not tail.told:
                    raise Disconnect("the leader is replaced")
                answer.error_code, answer.base_offset = int(Code.NOT_LEADER_OR_FOLLOWER), -1

    def _is_tail(self, request: Message, where: TopicPartition, base: int, ends: dict[TopicPartition, int]) -> bool:
        """Whether the batch was appended by this request, and nothing stands behind it."""
        log = self._log_of(where)
        if log is None or where not in ends or base < ends[where]:
            return False
        header = claimed_header(only_batch(memoryview(_written(request)[where])))
        return header is not None and log.end_offset == base + header.last_offset_delta + 1

    def take(
        self, api_key: int, client_id: str, request: Message | None = None, broker: int | None = None
    ) -> Fault | None:
        """The first fault that fires for this request."""
        self.seen[api_name(api_key)] += 1
        fault = super().take(api_key, client_id, request, broker)
        if fault is not None:
            self._count(fault, api_name(api_key))
            if fault.fired >= fault.times:
                # A storm of hundreds would have every request compared with all that is over.
                self._set[WireFault].remove(fault)
        return fault

    async def alter(self, request: Message, response: Message, client_id: str, broker: int | None = None) -> None:
        """Alter the answer by every fault that fires for it."""
        before, began = [(fault, fault.fired) for fault in self._set[AnswerFault]], self.world.now
        await super().alter(request, response, client_id, broker)
        if self._tails and request.API_KEY == ProduceRequest.API_KEY:
            self._lose_tails(request, response)
        counted = [fault for fault, fired in before if fault.fired > fired]
        for fault in counted:
            self._count(fault, fault.api or "")
        self._set[AnswerFault][:] = [fault for fault in self._set[AnswerFault] if fault.fired < fault.times]
        if not counted and self.world.now > began:
            # A slow store that gave all of it in the end has altered nothing, but it took its time.
            self.world.fired["slow store"] += 1

    def marking(
        self, transactional_id: str, where: TopicPartition, commit: bool
    ) -> Callable[[], Awaitable[bool]] | None:
        """Whether a marker is forgotten or late."""
        before = [(fault, fault.fired) for fault in self._set[MarkerFault]]
        held = super().marking(transactional_id, where, commit)
        for fault, fired in before:
            if fault.fired > fired:
                self._count(fault, where.topic)
        return held

    def _count(self, fault: Fault, target: str) -> None:
        if fault.number not in self.names:
            # Set by another hand, which counts it.
            return
        name = f"{self.names[fault.number]} {target}"
        self.world.note("fault", name)
        self.world.fired[name] += 1


def _written(request: Message) -> dict[TopicPartition, bytes]:
    return {
        TopicPartition(topic.name, data.index): data.records
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records
    }


class Rights(Authorizer):
    """Access rights that are taken away and given back. Counted once, where a request is refused."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self._untold = False

    def allows(self, operation: str, resource: str, name: str) -> bool:
        """Whether a request may do this."""
        allowed = super().allows(operation, resource, name)
        if not allowed:
            self.world.goes_on("right denied", first=self._untold)
            self._untold = False
        return allowed

    def deny(self, operation: str, resource: str, name: str) -> None:
        """Take a right away, until `grant`."""
        super().deny(operation, resource, name)
        self._untold = True

    def grant(self, operation: str, resource: str, name: str) -> None:
        """Take back one denial."""
        self._denied.discard((operation, resource, name))


class Disk:
    """The disk of one machine. It may be full, and a process may be killed in the middle of a write.

    `full_until`: seconds of the world. `torn_after`: the write after so many others is torn; None: no write is.
    `after_tear` starts the process again.
    """

    def __init__(self, world: World, after_tear: Callable[[], None]) -> None:
        self.world = world
        self.after_tear = after_tear
        self.full_until = 0.0
        self._untold = False
        self._full_after, self._full_s = 0, 0.0
        self.torn_after: int | None = None
        self.writes = 0

    def fill(self, seconds: float, after: int = 0) -> None:
        """No write finds room for so long, after so many more writes."""
        if after:
            self._full_after, self._full_s = after, seconds
            return
        self.full_until = max(self.full_until, self.world.now + seconds)
        self._untold = True

    def empty(self) -> None:
        """There is room again."""
        self.full_until, self._full_after = 0.0, 0

    def writer(self, process: Process) -> Callable[[int, Sequence[Any], int], int]:
        """`os.pwritev` of a process on this disk."""

        def write_at(descriptor: int, buffers: Sequence[Any], at: int) -> int:
            if not process.alive:
                # asyncio runs the callbacks that are due even after one of them has ended the process.
                raise Ended
            self.writes += 1
            if self.torn_after is not None:
                self.torn_after -= 1
                if self.torn_after < 0:
                    self._tear(process, descriptor, buffers, at)
            if self._full_after > 0:
                self._full_after -= 1
                if self._full_after == 0:
                    self.fill(self._full_s)
            if self.world.now < self.full_until:
                return self._part(descriptor, buffers, at)
            return os.pwritev(descriptor, buffers, at)

        return write_at

    def _tear(self, process: Process, descriptor: int, buffers: Sequence[Any], at: int) -> None:
        """A first part is written, then the process is killed."""
        self.torn_after = None
        data = b"".join(bytes(each) for each in buffers)
        os.pwrite(descriptor, data[: self.world.random.randrange(1, len(data))], at)
        self.world.fired["torn write"] += 1
        self.world.kill(process, struck=False)
        self.world.schedule(1.0, self.after_tear)
        raise Ended

    def _part(self, descriptor: int, buffers: Sequence[Any], at: int) -> int:
        """What the disk still has room for: none of it, or a part; never all. OSError."""
        data = b"".join(bytes(each) for each in buffers)
        self.world.goes_on("disk full", first=self._untold)
        self._untold = False
        if len(data) < 2 or self.world.random.random() < 0.5:
            raise OSError(errno.ENOSPC, "no space is left on the simulated disk")
        return os.pwrite(descriptor, data[: self.world.random.randrange(1, len(data))], at)


@dataclass
class Meeting:
    """What happens to the `nth` request of an API from now on. `does` gives the seconds by which it arrives later."""

    api_key: int
    nth: int
    does: Callable[[SimSocket, bytes], float]


class Wiretap:
    """Recognizes requests in the bytes that processes send to the brokers. `sending`: the API of the newest one;
    `receiver`: the name of the link's end that gets it.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.meetings: list[Meeting] = []
        self.sending = self.receiver = ""
        self._each: list[Callable[[], None]] = []
        self._begun: dict[int, bytearray] = {}

    def add(self, meeting: Meeting) -> None:
        """Wait for a request. From the first time on, all bytes to the broker are read."""
        self.meetings.append(meeting)
        self.net.tap = self._sent

    def at_each(self, action: Callable[[], None]) -> None:
        """Have it happen at every request, before its meetings. A request that a `Box` repeats is none."""
        self._each.append(action)
        self.net.tap = self._sent

    def _sent(self, end: SimSocket, data: bytes) -> float:
        """Seconds by which these bytes are later."""
        peer = end.peer
        if end.process.name == BROKER or peer is None or peer.process.name != BROKER:
            return 0.0
        begun = self._begun.setdefault(end.number, bytearray())
        begun += data
        later = 0.0
        while len(begun) >= _HEADER_BYTES:
            size = 4 + int.from_bytes(begun[:4], "big")
            if len(begun) < size:
                break
            frame = bytes(begun[:size])
            del begun[:size]
            if self._each and end.process.name != BOX:
                self.sending, self.receiver = api_name(int.from_bytes(frame[4:6], "big")), peer.names[0]
                for action in self._each:
                    action()
            later = max(later, self._met(end, frame))
        return later

    def _met(self, end: SimSocket, frame: bytes) -> float:
        api_key, later = int.from_bytes(frame[4:6], "big"), 0.0
        for meeting in [each for each in self.meetings if each.api_key == api_key]:
            meeting.nth -= 1
            if meeting.nth == 0:
                self.meetings.remove(meeting)
                later = max(later, meeting.does(end, frame))
        return later


class Box(SimSocket):
    """A box between client and broker: it sends a request once more, over a connection of its own."""

    TRIES, EVERY_S = 20, 0.05

    def __init__(self, net: Net, frame: bytes, label: str) -> None:
        super().__init__(net, net.world.process(BOX))
        self._frame, self._label, self._left = frame, label, self.TRIES

    def deliver(self, address: tuple[str, int]) -> None:
        """Connect and send. Nothing happens where no broker listens within a second."""
        self.connect_ex(address)
        self._try()

    def _try(self) -> None:
        world = self.net.world
        if self.state == "connected":
            # Reset where the broker was killed since it accepted the connection.
            with contextlib.suppress(ConnectionError):
                self.send(self._frame)
                world.fired[self._label] += 1
            # Closed only after the answer had its time: a broker drops the request of a closed connection.
            world.schedule(60.0, self.close)
        elif self.state == "connecting" and self._left > 0:
            self._left -= 1
            world.schedule(self.EVERY_S, self._try)
        else:
            self.close()
