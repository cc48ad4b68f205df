"""TCP proxies that can be cut: what a client sees when the network loses every packet, and nothing is refused.

Owns: one loop in a thread for all proxies, the bytes on their way.
Does not know: Kafka.
Invariants:
- While a proxy is cut no byte passes and no connection is closed. A new connection is taken and leads nowhere yet.
- What was held passes in its order when the proxy is mended, as TCP delivers late what was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

_PIECE = 65_536
_ANSWERS_WITHIN_S = 10.0


class Proxies:
    """A `with` block; all proxies end with it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._all: list[Proxy] = []

    def __enter__(self) -> Proxies:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_ANSWERS_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWERS_WITHIN_S)
        self._loop.close()

    def before(self, port: int, *, host: str = "127.0.0.1", at: int = 0) -> Proxy:
        """A proxy before a port of 127.0.0.1. It listens on `host`, a loopback address, at port `at`; 0: any."""
        proxy = Proxy(self._loop, port)
        proxy.port = asyncio.run_coroutine_threadsafe(proxy.listen(host, at), self._loop).result(_ANSWERS_WITHIN_S)
        self._all.append(proxy)
        return proxy

    async def _end(self) -> None:
        for proxy in self._all:
            proxy.close()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)


class Proxy:
    """One proxy. `taken`: connections that came; `held`: pieces of data that a cut has held back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port = 0
        self.taken = 0
        self.held = 0
        self._loop = loop
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, at: int) -> int:
        """Begin; the port."""
        self._server = await asyncio.start_server(self._take, host, at)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """From now on nothing passes."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def mend(self) -> None:
        """Everything passes again, what was held first."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """Take no more connections; on the loop."""
        if self._server is not None:
            self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        try:
            await self._open.wait()
            # A broker that is not there refuses: that is seen as a connection that ends at once.
            there, to_there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        except asyncio.CancelledError:
            writer.close()
            raise
        ways = [asyncio.create_task(self._carry(*way)) for way in ((reader, to_there), (there, writer))]
        try:
            # One end that closes closes the other: nobody here speaks in one direction only.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (writer, to_there):
                end.close()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_PIECE):
                if not self._open.is_set():
                    self.held += 1
                    await self._open.wait()
                sink.write(piece)
                await sink.drain()
        # The end comes behind what is held.
        await self._open.wait()
