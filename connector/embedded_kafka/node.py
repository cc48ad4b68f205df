"""The broker: its parts, and the dispatch of a request to its handler.

Owns: start and stop, the parts and their order, the sweep, the open connections.
Does not know: what any API does (`apis`), how bytes arrive (`connection`).
Invariants:
- The broker answers requests only after it has read back everything that a crash left unfinished.
- Stopping closes the logs last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from embedded_kafka import apis
from embedded_kafka.apis.api_versions import unsupported
from embedded_kafka.clock import Clock
from embedded_kafka.connections.connection import Connection
from embedded_kafka.connections.listener import Listener
from embedded_kafka.connections.receive_buffers import ReceiveBuffers
from embedded_kafka.connections.unread import SMALL_BYTES, Unread
from embedded_kafka.context import Context
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.faults.faults import Faults
from embedded_kafka.groups import GroupCoordinator
from embedded_kafka.parts import Parts
from embedded_kafka.producer_ids import ProducerIds
from embedded_kafka.refusals import Disconnect
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.storage import DataDirectory
from embedded_kafka.topics.cleaner import Cleaner
from embedded_kafka.topics.internal_logs import InternalLogs
from embedded_kafka.topics.leaders import Leaders
from embedded_kafka.topics.readers import Readers
from embedded_kafka.topics.topics import Topics
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.markers import Markers
from embedded_kafka.wire.server import (
    ApiVersionsRequest,
    FetchRequest,
    Message,
    frame_of,
    parse_header,
    parse_request,
)
from kafka_core import runtime
from kafka_core.protocol.messages import FETCH_BY_ID

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

_DUE_AT_MOST = 10
"""Due items of each kind per sweep, ten sweeps a second: expiring 10 ids takes some 2 ms, in
which nothing else is served. With a tenth, 10,000 transactions that time out together would wait
for a quarter of an hour."""

_FIRST_RETENTION_CHECK_MS = 30_000
"""Kafka's InitialTaskDelayMs."""

_LONG_LIST = 1_000
"""Entries of an answer that take some 5 ms to encode. Half would spend a thread's 0.1 ms for little gain; at
ten times as many, other clients would wait for 50 ms."""


class Node:
    """A single-node Kafka cluster on the loopback interface.

    `directory`: its data, kept after `stop`. `ids`: the source of producer ids, closed by `stop`.
    `port`: 0 picks a free one.
    """

    def __init__(
        self,
        directory: Path,
        ids: ProducerIds,
        config: BrokerConfig | None = None,
        *,
        port: int = 0,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        config, clock, faults = config or BrokerConfig(), clock or Clock(), faults or Faults()
        topics, readers = Topics(directory, config, clock), Readers()
        logs = InternalLogs(topics)
        groups = GroupCoordinator(
            config=config,
            clock=clock,
            logs=logs,
            new_member_id=lambda client_id: f"{client_id}-{runtime.uuid4()}",
        )
        markers = Markers(topics, clock, on_offsets=groups.on_marker, on_written=readers.wake)
        self.parts = Parts(
            config=config,
            offered=apis.offered(config),
            clock=clock,
            faults=faults,
            directory=directory,
            authorizer=Authorizer(config.security, directory),
            listener_security=ListenerSecurity(config.security, clock),
            unread=Unread(config.unread_answers_max_bytes),
            topics=topics,
            leaders=Leaders(directory, topics),
            readers=readers,
            groups=groups,
            markers=markers,
            transactions=TransactionCoordinator(
                config=config,
                clock=clock,
                ids=ids,
                logs=logs,
                markers=markers,
                reached=faults.reached,
                marking=faults.marking,
            ),
            host=LOOPBACK,
            port=port,
        )
        self.ids = ids
        self.cleaner = Cleaner(topics, clock, config.cleaner_backoff_ms)
        self.receive_buffers = ReceiveBuffers()
        self._data: DataDirectory | None = None
        self._listener: Listener | None = None
        self._connections: dict[Connection, None] = {}
        self._numbers = 0
        self._logs_due_ms = clock.now_ms() + min(_FIRST_RETENTION_CHECK_MS, config.log_retention_check_interval_ms)
        self._sweeper: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the directory and listen. StorageInUse where the directory or the port is taken; then
        nothing keeps running."""
        self._data = DataDirectory(self.parts.directory)
        try:
            parts = self.parts = replace(self.parts, cluster_id=self._data.cluster_id)
            parts.clock.advance(max(0, self._data.clock_added_ms - parts.clock.added_ms))
            parts.authorizer.load()
            parts.topics.load()
            parts.leaders.load()
            parts.groups.load()
            self.ids.start()
            parts.transactions.load()
            self._listener = await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._sweeper = asyncio.ensure_future(self._sweep_forever())
        self._cleaning = asyncio.ensure_future(self.cleaner.run())

    async def stop(self) -> None:
        """Close everything; a next start finds the logs cleanly closed."""
        for task in (self._sweeper, self._cleaning):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._sweeper = self._cleaning = None
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        self.parts.faults.clear()
        # Before the logs: a request in progress must not find them closed.
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        self.parts.unread.close()
        await self.parts.transactions.close()
        await self.parts.groups.close()
        # In a thread, because a ZooKeeper that does not answer can block the close for seconds.
        await asyncio.to_thread(self.ids.close)
        self.parts.topics.close()
        if self._data is not None:
            self._data.release()
            self._data = None

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`."""
        return f"{self.parts.host}:{self.parts.port}"

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""
        if len(self._connections) >= self.parts.config.max_connections:
            return False
        self._connections[connection] = None
        return True

    def disconnected(self, connection: Connection) -> None:
        """The connection is closed."""
        self._connections.pop(connection, None)

    async def answer(self, frame: memoryview, context_of: Callable[[str | None], Context]) -> bytes | None:
        """Process one frame; its answer, or None where the client wants none.
        Disconnect, MalformedRequest."""
        header = parse_header(frame)
        handler = apis.HANDLERS.get(header.api_key)
        if handler is None or header.api_key not in self.parts.offered:
            raise Disconnect(f"a request for an API that this broker does not have, {header.api_key}")
        lowest, highest = apis.versions(handler, self.parts.config)
        if not lowest <= header.api_version <= highest:
            if header.api_key == ApiVersionsRequest.API_KEY:
                return frame_of(unsupported(), header.correlation_id)
            raise Disconnect(f"version {header.api_version} of API {header.api_key}")
        context = context_of(header.client_id)
        session = context.session
        refused = None if session is None else session.admit(header.api_key)
        request = parse_request(header, frame)
        self._name_topics(request)
        if session is not None and refused is not None:
            raise Disconnect(session.closing, frame_of(refusal(request, refused), header.correlation_id))
        answer = await self.parts.faults.around(
            request,
            context.client_id,
            header.correlation_id,
            lambda: self._done(handler, request, context, header.correlation_id),
        )
        if answer is None:
            return None
        if session is not None and session.closing:
            raise Disconnect(session.closing, answer)
        return answer

    def _name_topics(self, request: Message) -> None:
        """Fill in the names where a Fetch names topics by id: faults are set by name."""
        if request.API_KEY == FetchRequest.API_KEY and request.API_VERSION >= FETCH_BY_ID:
            for each in request.topics:
                topic = self.parts.topics.by_id(each.topic_id)
                each.topic = "" if topic is None else topic.name

    async def _done(
        self, handler: apis.Handler, request: Message, context: Context, correlation_id: int
    ) -> bytes | None:
        """The answer once it may be written. While clients leave answers unread, a large answer waits
        and is then built again."""
        while True:
            with self.parts.authorizer.asked_by(context.principal, context.client_host):
                response = await handler.handle(self.parts, request, context)
            if response is None:
                return None
            if self.parts.faults.any_in_answers:
                await self.parts.faults.alter(request, response, context.client_id)
            answer = await framed(response, correlation_id)
            if self.parts.unread.left > 0 or len(answer) <= SMALL_BYTES or handler.API_KEY not in apis.REPEATABLE:
                return answer
            del response, answer
            await self.parts.unread.room()

    async def _listen(self) -> Listener:
        def connection() -> Connection:
            self._numbers += 1
            parts = self.parts
            return Connection(
                self, self._numbers, parts.listener_security.session(), parts.config, self.receive_buffers, parts.unread
            )

        listener = Listener(connection, self.parts.listener_security.tls)
        port = await listener.start(self.parts.host, self.parts.port)
        self.parts = replace(self.parts, port=port)
        return listener

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.parts.config.sweep_interval_ms / 1000)
            try:
                self.sweep(_DUE_AT_MOST)
            except Exception:
                # A failure in one sweep must not stop the following sweeps.
                log.exception("the broker's sweep failed")

    def advance(self, by_ms: int) -> None:
        """Move the clock, and handle what falls due. Later brokers on the directory start at the moved time."""
        self.parts.clock.advance(by_ms)
        if self._data is not None:
            self._data.clock_added_ms = self.parts.clock.added_ms
        self.sweep()
        self.cleaner.wake()

    def sweep(self, at_most: int | None = None) -> None:
        """Handle what falls due with time: transactions, ids, members, offsets, records, idle producers.

        Handles `at_most` transactions, ids and groups (None: all that are due). Its cost follows the number
        of due items, not of all items.
        """
        self.parts.transactions.tick(at_most)
        self.parts.groups.tick(at_most)
        now_ms = self.parts.clock.now_ms()
        if now_ms >= self._logs_due_ms:
            self._logs_due_ms = now_ms + self.parts.config.log_retention_check_interval_ms
            for _, partition_log in self.parts.topics.opened():
                partition_log.expire_producers(now_ms)
                partition_log.retention(now_ms)


async def framed(response: Message, correlation_id: int) -> bytes:
    """The answer's bytes. A long list is encoded in another thread, because 200,000 entries would block
    the loop for a second."""
    if len(getattr(response, apis.GROWS.get(response.API_KEY, ""), ())) > _LONG_LIST:
        return await asyncio.to_thread(frame_of, response, correlation_id)
    return frame_of(response, correlation_id)
