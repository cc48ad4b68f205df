"""Simulated TCP below kafka-python's selector and below asyncio: both run as they are, over sockets that are no files.

Owns: addresses, connections, bytes on their way, which link is cut.
Does not know: Kafka.
Invariants:
- Bytes of one direction arrive in order, once, or not at all.
- A cut link delays what is sent until it is whole again, as TCP's retransmission does. Neither side learns of it.
- Where a process dies, the other side gets a reset after the link's latency.
"""

from __future__ import annotations

import bisect
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.selecting import SimSelector

Address = tuple[str, int]

LEAST_LATENCY_S, LATENCY_RANGE_S = 0.000_1, 0.000_9
SLOW_S = (0.02, 0.2, 1.0, 5.0)
"""What a slow message takes, in seconds."""
EVENLY = (0.25, 0.5, 0.75, 1.0)


class Net:
    """The network of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listening: dict[Address, SimSocket] = {}
        self.sockets: dict[int, SimSocket | Pipe] = {}
        self.watching: dict[int, list[SimSelector]] = {}
        self.cut_until: dict[tuple[str, str], float] = {}
        """(name of the sender, of the receiver) -> when the link is whole again; see `SimSocket.names`."""
        self.links: dict[Address, str] = {}
        """Address -> name of who listens there, where a process listens at several."""
        self._untold: set[tuple[str, str]] = set()
        """Cuts that have held no message yet."""
        self.loops: list[Any] = []
        """asyncio's, whose tasks are ended with the world."""
        self.slow = 0.0
        """How likely a message takes up to five seconds."""
        self.slow_shares: Sequence[float] = EVENLY
        """Which part of the slow messages takes each of `SLOW_S` or less; the last is 1."""
        self.tap: Callable[[SimSocket, bytes], float] | None = None
        """Reads what is sent, and gives the seconds by which it arrives later."""
        self.delay = self._drawn_delay
        """Asked for every message with a number in [0, 1): seconds that it takes, 0.0 for a message as usual."""
        self._ports = iter(range(30_000, 60_000))

    def latency(self) -> float:
        """Seconds that the next message takes."""
        drawn = self.world.random.random()
        slow = self.delay(drawn)
        if slow:
            self.world.fired["slow message"] += 1
            return slow
        return LEAST_LATENCY_S + LATENCY_RANGE_S * drawn

    def _drawn_delay(self, drawn: float) -> float:
        if drawn >= self.slow:
            return 0.0
        if self.slow_shares is EVENLY:
            return self.world.random.choice(SLOW_S)
        return SLOW_S[self.how_slow(drawn / self.slow)]

    def how_slow(self, drawn: float) -> int:
        """Which of `SLOW_S` a slow message takes, by a number in [0, 1)."""
        return bisect.bisect_right(self.slow_shares, drawn)

    def cut(self, sender: str, receiver: str, seconds: float) -> None:
        """Nothing gets from one to the other for so long."""
        key = (sender, receiver)
        self._untold.add(key)
        self.cut_until[key] = max(self.cut_until.get(key, 0.0), self.world.now + seconds)
        self.world.note("cut", sender, receiver, seconds)

    def held_until(self, sender: SimSocket, receiver: SimSocket) -> float:
        """When a message that is sent now may arrive at the earliest."""
        if not self.cut_until:
            return 0.0
        ways = [(a, b) for a in sender.names for b in receiver.names]
        held = max((self.cut_until.get(way, 0.0) for way in ways), default=0.0)
        if held > self.world.now:
            for way in ways:
                if self.cut_until.get(way, 0.0) > self.world.now:
                    self.world.goes_on("cut link", first=way in self._untold)
                    self._untold.discard(way)
        return held

    def free_port(self) -> int:
        """One that nobody has."""
        return next(self._ports)

    def changed(self, number: int) -> None:
        """A socket may be ready now."""
        for selector in self.watching.get(number, ()):
            selector.wake()


class SimSocket:
    """A stream socket that never blocks; the part of `socket.socket` that kafka-python and asyncio use."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, net: Net, process: Process | None = None) -> None:
        """`process`: whose it is, the acting one's where none is named."""
        process = process or net.world.current
        if process is None:
            raise RuntimeError("a socket outside of a simulated process")
        self.net, self.process = net, process
        self.number = next(net.world.numbers)
        self.name: Address = ("", 0)
        self.names: tuple[str, ...] = (process.name, "*")
        """By which a cut of its link may name it: its own, its process's, any."""
        self.peer: SimSocket | None = None
        self.state = "new"
        self.closed = False
        self._incoming = bytearray()
        self._eof = self._reset = False
        self._arrival = 0.0
        self._accepted: deque[SimSocket] = deque()
        net.sockets[self.number] = self
        process.at_death.append(self._die)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    # ---- what is only asked

    def fileno(self) -> int:
        return -1 if self.closed else self.number

    def setblocking(self, flag: bool) -> None:
        if flag:
            raise ValueError("simulated sockets do not block")

    def gettimeout(self) -> float:
        return 0.0

    def setsockopt(self, *_: object) -> None:
        """All options are the same to it."""

    def getsockopt(self, level: int, option: int) -> int:
        return errno.ECONNREFUSED if option == socket.SO_ERROR and self.state == "refused" else 0

    def getsockname(self) -> Address:
        return self.name

    def getpeername(self) -> Address:
        if self.peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self.peer.name

    @property
    def readable(self) -> bool:
        return bool(self._incoming or self._eof or self._reset or self._accepted)

    @property
    def writable(self) -> bool:
        return self.state in ("connected", "refused") or self._reset

    # ---- connecting

    def listen_at(self, address: Address) -> None:
        """Take connections there. OSError where somebody does already."""
        if address in self.net.listening:
            raise OSError(errno.EADDRINUSE, "somebody listens there")
        self.name, self.state = address, "listening"
        if address in self.net.links:
            self.names = (self.net.links[address], *self.names)
        self.net.listening[address] = self

    def listen(self, _backlog: int = 0) -> None:
        """It listens since `listen_at`."""

    def accept(self) -> tuple[SimSocket, Address]:
        if not self._accepted:
            raise BlockingIOError(errno.EAGAIN, "nobody")
        made = self._accepted.popleft()
        return made, made.getpeername() if made.peer else ("", 0)

    def connect_ex(self, address: Address) -> int:
        if self.state == "connected":
            return errno.EISCONN
        if self.state == "refused":
            return errno.ECONNREFUSED
        if self._reset:
            return errno.ECONNRESET
        if self.state == "new":
            self.state = "connecting"
            self.name = ("10.0.1.1", self.net.free_port())
            self.net.world.schedule(self.net.latency(), lambda: self._arrive(address[:2]))
            return errno.EINPROGRESS
        return errno.EALREADY

    def _arrive(self, address: Address) -> None:
        world, listener = self.net.world, self.net.listening.get(address)
        if self.closed or not self.process.alive:
            return
        if listener is not None:
            held = max(
                self.net.held_until(self, listener),
                self.net.held_until(listener, self),
            )
            if held > world.now:
                # The first packet is sent again and again.
                world.schedule(held - world.now + self.net.latency(), lambda: self._arrive(address))
                return
        if listener is None:
            self.state = "refused"
        else:
            self.peer = listener._take(self)
            self.state = "connected"
        self.net.changed(self.number)

    def _take(self, client: SimSocket) -> SimSocket:
        made = SimSocket(self.net, self.process)
        made.name, made.names, made.peer, made.state = self.name, self.names, client, "connected"
        self._accepted.append(made)
        self.net.changed(self.number)
        return made

    # ---- bytes

    def send(self, data: Any) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: Any) -> int:
        data = b"".join(bytes(each) for each in buffers)
        if self._reset or self.closed:
            raise ConnectionResetError(errno.ECONNRESET, "the other side is gone")
        if self.state != "connected" or self.peer is None:
            raise BrokenPipeError(errno.EPIPE, "not connected")
        self.net.world.note("send", self.process.name, len(data))
        later = 0.0 if self.net.tap is None else self.net.tap(self, data)
        self._at_peer(lambda peer: peer._receive(data), later)
        return len(data)

    def hold(self, seconds: float) -> None:
        """What is sent from now on arrives in so many seconds at the earliest."""
        self._arrival = max(self._arrival, self.net.world.now + seconds)

    def _at_peer(self, action: Any, later: float = 0.0) -> None:
        """Have it happen at the other side, `later` seconds later than usual and behind everything that was sent
        before.
        """
        world, peer = self.net.world, self.peer
        if peer is None:
            return
        held = self.net.held_until(self, peer)
        self._arrival = max(self._arrival, world.now + self.net.latency() + later, held)
        world.schedule(self._arrival - world.now, lambda: action(peer))

    def _receive(self, data: bytes) -> None:
        if not self.closed and self.process.alive:
            self._incoming += data
            self.net.changed(self.number)

    def recv(self, size: int) -> bytes:
        if self._incoming:
            data = bytes(self._incoming[:size])
            del self._incoming[:size]
            return data
        if self._reset:
            raise ConnectionResetError(errno.ECONNRESET, "the other side is gone")
        if self._eof:
            return b""
        raise BlockingIOError(errno.EAGAIN, "nothing yet")

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        data = self.recv(size or len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    # ---- ends

    def shutdown(self, _how: int) -> None:
        self._at_peer(lambda peer: peer._ended())

    def close(self) -> None:
        if self.closed:
            return
        self._leave()
        self._at_peer(lambda peer: peer._ended())

    def detach(self) -> int:
        number = self.fileno()
        self._leave()
        return number

    def reset(self) -> None:
        """As if a box in between dropped the connection: both sides get a reset."""
        self._lost()
        self._at_peer(lambda peer: peer._lost())

    def _die(self) -> None:
        if not self.closed:
            self._leave()
            self._at_peer(lambda peer: peer._lost())

    def _leave(self) -> None:
        self.closed = True
        self.net.sockets.pop(self.number, None)
        if self.net.listening.get(self.name) is self:
            del self.net.listening[self.name]

    def _ended(self) -> None:
        self._eof = True
        self.net.changed(self.number)

    def _lost(self) -> None:
        self._reset = True
        self.net.changed(self.number)


class Pipe:
    """One end of the pair by which another thread wakes a selector."""

    family, type = socket.AF_UNIX, socket.SOCK_STREAM

    def __init__(self, net: Net) -> None:
        self.net = net
        self.number = next(net.world.numbers)
        self.other: Pipe | None = None
        self.readable = False
        self.writable = True
        net.sockets[self.number] = self

    @staticmethod
    def pair(net: Net) -> tuple[Pipe, Pipe]:
        """Reader and writer."""
        reader, writer = Pipe(net), Pipe(net)
        reader.other, writer.other = writer, reader
        return reader, writer

    def fileno(self) -> int:
        return self.number

    def setblocking(self, _flag: bool) -> None:
        """It never blocks."""

    def send(self, data: bytes) -> int:
        if self.other is not None and not self.other.readable:
            self.other.readable = True
            self.net.changed(self.other.number)
        return len(data)

    def recv(self, _size: int) -> bytes:
        if not self.readable:
            raise BlockingIOError(errno.EAGAIN, "nothing")
        self.readable = False
        return b"\0"

    def close(self) -> None:
        self.net.sockets.pop(self.number, None)
