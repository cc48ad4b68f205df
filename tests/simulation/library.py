"""kafka-python and asyncio inside a world: their own code, over the world's sockets, clock and threads.

Pinned to the versions of the lock: what is replaced in the library is looked for, and a missing name fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import socket
import sys
import threading
import time
from asyncio import base_events, selector_events
from collections.abc import Callable, Iterator
from typing import Any

from kafka.net import selector as kafka_selector

import pyspark_kafka_eos.client.net.network
from kafka_core import runtime
from pyspark_kafka_eos.client.net.loop import Loop
from tests.simulation.network import Net, Pipe, SimSocket
from tests.simulation.selecting import SimSelector
from tests.simulation.system import START_S, Simulated, Threading, Time, in_place_of
from tests.simulation.world import Ended, World


class SocketModule:
    """The module `socket` for kafka-python."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def getaddrinfo(self, host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        """One address: the name itself."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def socket(self, *_: object) -> SimSocket:
        """A socket of the process that asks."""
        return SimSocket(self._net)

    def socketpair(self) -> tuple[Pipe, Pipe]:
        """What wakes a selector."""
        return Pipe.pair(self._net)


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
    libraries = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "kafka"]
    numbers = itertools.count()
    first = kafka_selector.Task.__init__

    def numbered(task: Any, coro: Any) -> None:
        first(task, coro)
        task.number = next(numbers)

    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.replaced(simulated))
        stack.enter_context(
            in_place_of(
                libraries,
                {
                    "time": (time, Time(simulated)),
                    "threading": (threading, Threading(world)),
                    "random": (random, random.Random(world.seed ^ 0x5EED)),
                    "socket": (socket, SocketModule(net)),
                },
            )
        )
        selectors: list[Loop] = []

        def open_loop(client_id: str) -> Loop:
            made = Loop(client_id=client_id, slow_task_threshold_secs=0, selector=lambda: SimSelector(net))
            selectors.append(made)
            return made

        # Two timers of one moment run in the order in which they were made, and not by their addresses.
        _set(stack, kafka_selector.Task, "__init__", numbered)
        _set(stack, kafka_selector.Task, "__lt__", lambda one, other: one.number < other.number)
        _set(stack, pyspark_kafka_eos.client.net.network, "open_loop", open_loop)
        try:
            yield
        finally:
            # A thread that is unwound reports it as a crash.
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            world.close()
            _drop_tasks(net, selectors)


def _drop_tasks(net: Net, selectors: list[Loop]) -> None:
    """End what no loop will go on with, before it is collected in any order."""
    for loop in net.loops:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
    for selector in selectors:
        for pending in list(selector._pending_tasks):
            with contextlib.suppress(BaseException):
                pending.close()


def _set(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)
