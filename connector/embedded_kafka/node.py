"""One broker: its listener and connections, its coordinators, and the dispatch of a request to its handler.

Owns: the connections, the versions that are offered, what is done while the broker is frozen.
Does not know: what any API does (`apis`), how bytes arrive (`connection`), what the brokers of a cluster share and when
it starts and stops (`serving.cluster`).
Invariants:
- The broker answers requests only after it has read back everything that a crash left unfinished.
- A frozen broker answers nothing; what has arrived is processed when it goes on, as the cluster is by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from embedded_kafka import apis
from embedded_kafka.apis.api_versions import unsupported
from embedded_kafka.cluster.brokers import Broker
from embedded_kafka.cluster.life import Killed, Started
from embedded_kafka.cluster.outlook import Outlook
from embedded_kafka.connections.connection import Connection
from embedded_kafka.connections.listener import Listener
from embedded_kafka.connections.lobby import Lobby
from embedded_kafka.connections.receive_buffers import ReceiveBuffers
from embedded_kafka.connections.unread import SMALL_BYTES
from embedded_kafka.context import Context
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.groups import GroupCoordinator
from embedded_kafka.parts import Coordinators, Parts, Shared
from embedded_kafka.producer_ids import ProducerIds
from embedded_kafka.refusals import Disconnect
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_logs import InternalLogs
from embedded_kafka.transactions import TransactionCoordinator
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

_LONG_LIST = 1_000
"""Entries of an answer that take some 5 ms to encode. Half would spend a thread's 0.1 ms for little gain; at
ten times as many, other clients would wait for 50 ms."""


class Node:
    """One broker. `me`: where to listen, port 0 picks a free one. `numbers`: of the cluster's connections.
    `older`: API key -> the highest version, where the broker is of a release with fewer.
    """

    def __init__(
        self, shared: Shared, me: Broker, outlook: Outlook, config: BrokerConfig, ids: ProducerIds, *,
        numbers: Iterator[int], older: Mapping[int, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        logs = InternalLogs(shared.topics, outlook)
        self.parts = Parts(
            **{field.name: getattr(shared, field.name) for field in fields(shared)},
            config=replace(config, node_id=me.node_id),
            offered=apis.offered(config, older),
            me=me,
            outlook=outlook,
            groups=GroupCoordinator(
                config=config,
                configs=shared.group_configs,
                clock=shared.clock,
                logs=logs,
                new_member_id=lambda client_id: f"{client_id}-{runtime.uuid4()}",
            ),
            transactions=TransactionCoordinator(
                config=config,
                clock=shared.clock,
                ids=ids,
                logs=logs,
                markers=shared.markers,
                reached=shared.faults.reached,
                marking=shared.faults.marking,
            ),
        )
        self.receive_buffers = ReceiveBuffers()
        self._numbers = numbers
        self._older = older
        self._listener: Listener | None = None
        self._connections: dict[Connection, None] = {}
        self._lobby = Lobby(config.max_connections)

    @property
    def coordinators(self) -> Coordinators:
        """Its own."""
        return Coordinators(self.parts.transactions, self.parts.groups)

    async def listen(self) -> None:
        """Answer from here on. StorageInUse where another process has the port."""

        def connection() -> Connection:
            parts = self.parts
            session = parts.listener_security.session()
            return Connection(self, next(self._numbers), session, parts.config, self.receive_buffers, parts.unread)

        listener, me = Listener(connection, self.parts.listener_security.tls), self.parts.me
        me.port = await listener.start(me.host, me.port)
        self._listener = listener
        me.happens(Started())

    async def stop(self) -> None:
        """Refuse connections, end those that are there, and the coordinators' work. The logs stay open."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
            self.parts.me.happens(Killed())
        # Before the logs: a request in progress must not find them closed.
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        await self.parts.transactions.close()
        await self.parts.groups.close()

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`."""
        return f"{self.parts.me.host}:{self.parts.me.port}"

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""
        if len(self._connections) >= self.parts.config.max_connections:
            return False
        self._connections[connection] = None
        if connection.unknown:
            self._lobby.enter(connection)
        return True

    def disconnected(self, connection: Connection) -> None:
        """The connection is closed."""
        self._connections.pop(connection, None)
        self._lobby.leave(connection)

    async def answer(self, frame: memoryview, context_of: Callable[[str | None], Context]) -> bytes | None:
        """Process one frame; its answer, or None where the client wants none.
        Disconnect, MalformedRequest."""
        me = self.parts.me
        if me.frozen:
            await me.goes_on.wait()
        answer = await self._answer(frame, context_of)
        if me.frozen:
            await me.goes_on.wait()
        return answer

    async def _answer(self, frame: memoryview, context_of: Callable[[str | None], Context]) -> bytes | None:
        header = parse_header(frame)
        handler = apis.HANDLERS.get(header.api_key)
        if handler is None or header.api_key not in self.parts.offered:
            raise Disconnect(f"a request for an API that this broker does not have, {header.api_key}")
        lowest, highest = apis.versions(handler, self.parts.config)
        if self._older:
            highest = min(highest, self._older.get(header.api_key, highest))
        if not lowest <= header.api_version <= highest:
            if header.api_key == ApiVersionsRequest.API_KEY:
                return frame_of(unsupported(self.parts), header.correlation_id)
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
            self.parts.node_id,
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
                await self.parts.faults.alter(request, response, context.client_id, self.parts.node_id)
            answer = await framed(response, correlation_id)
            if self.parts.unread.left > 0 or len(answer) <= SMALL_BYTES or handler.API_KEY not in apis.REPEATABLE:
                return answer
            del response, answer
            await self.parts.unread.room()


async def framed(response: Message, correlation_id: int) -> bytes:
    """The answer's bytes. A long list is encoded in another thread, because 200,000 entries would block
    the loop for a second."""
    if len(getattr(response, apis.GROWS.get(response.API_KEY, ""), ())) > _LONG_LIST:
        return await asyncio.to_thread(frame_of, response, correlation_id)
    return frame_of(response, correlation_id)
