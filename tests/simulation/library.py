"""asyncio inside a world: its own code over the world's sockets, clock and threads, below client and broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from asyncio import base_events, selector_events
from collections.abc import Callable, Iterator
from typing import Any

from kafka_core import runtime
from pyspark_kafka_eos.client.net import addresses, first_contact, known, opening, pool
from pyspark_kafka_eos.client.net import loop as client_loop
from tests.simulation.network import Net, Pipe, SimSocket
from tests.simulation.selecting import SimSelector
from tests.simulation.system import START_S, Simulated, in_place_of
from tests.simulation.world import Ended, World


class SocketModule:
    """The module `socket` for the client."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        """One address: the name itself."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def socket(self, *_: object) -> SimSocket:
        """A socket of the process that asks."""
        return SimSocket(self._net)


class SimLoop(selector_events.BaseSelectorEventLoop):
    """asyncio's own loop and transports."""

    def __init__(self, net: Net) -> None:
        self._net = net
        net.loops.append(self)
        super().__init__(SimSelector(net))

    def time(self) -> float:
        return START_S + self._net.world.now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that ended with its process is no news, whenever it is collected."""
        if not isinstance(context.get("exception"), Ended):
            super().call_exception_handler(context)

    def _make_self_pipe(self) -> None:
        self._ssock, self._csock = Pipe.pair(self._net)
        self._internal_fds: int = getattr(self, "_internal_fds", 0) + 1
        self._add_reader(self._ssock.fileno(), self._read_from_self)  # type: ignore[attr-defined]

    async def sock_connect(self, sock: SimSocket, address: Any) -> None:  # type: ignore[override]
        """To an address of the world, which nobody looks up."""
        if sock.connect_ex(address) == 0:
            return
        future = self.create_future()
        number = sock.fileno()
        self._add_writer(number, _settle, future.set_result, future, None)  # type: ignore[attr-defined]
        try:
            await future
        finally:
            self._remove_writer(number)  # type: ignore[attr-defined]
        if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, "the world's")

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        """A server at an address of the world."""
        listener = SimSocket(self._net)
        listener.listen_at((host, port or self._net.free_port()))
        server = base_events.Server(self, [listener], protocol_factory, None, more.get("backlog", 100), None)  # type: ignore[arg-type, list-item]
        server._start_serving()  # type: ignore[attr-defined]
        return server

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """A thread of the same process."""
        future = self.create_future()

        def work() -> None:
            try:
                value = func(*args)
            except Exception as error:  # noqa: BLE001 -- it is the future's
                self.call_soon_threadsafe(_settle, future.set_exception, future, error)
            else:
                self.call_soon_threadsafe(_settle, future.set_result, future, value)

        world = self._net.world
        world.spawn(world.running().process, work, "executor")
        return future


def _settle(how: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        how(value)


@contextlib.contextmanager
def installed(world: World, net: Net) -> Iterator[None]:
    """Everything of this process that takes part in the world uses its time, threads and sockets."""
    simulated = Simulated(world)
    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.replaced(simulated))
        replaced = {"random": (random, random.Random(world.seed ^ 0x5EED)), "socket": (socket, SocketModule(net))}
        stack.enter_context(in_place_of((addresses, first_contact, known, opening, pool), replaced))
        _set(stack, client_loop, "open_loop", lambda: SimLoop(net))
        try:
            yield
        finally:
            # A thread that is unwound reports it as a crash.
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            world.close()
            _drop_tasks(net)


def _drop_tasks(net: Net) -> None:
    """End what no loop will go on with, before it is collected in any order."""
    for loop in net.loops:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]


def _set(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)
