"""Requests to the embedded broker, through everything but the socket; and bytes on a connection before its login."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import struct
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from embedded_kafka.connections.connection import Connection
from embedded_kafka.context import Context
from embedded_kafka.node import Node
from embedded_kafka.producer_ids import FileBlocks, ProducerIds
from embedded_kafka.refusals import Disconnect
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import STANDARD_AUTHORIZER, BrokerConfig, SecurityConfig
from embedded_kafka.wire import server
from embedded_kafka.wire.server import REQUESTS, MalformedRequest, response_class
from tests.embedded_kafka.connections.test_hostile import originals
from tests.fuzz.changes import changed_bytes, other_text
from tests.fuzz.target import Stateless
from tests.pyspark_kafka_eos.client.hostile.mutations import leaves, other_field

_TOPICS = ("alive", "other")
_TURNS = 5
"""Of the event loop, until a request counts as one that waits, and its client leaves."""
_TURNS_OF_A_LOGIN = 40
"""The same, until a few messages are answered."""
_NO_ERROR = b"\0\0"
_API_VERSIONS = 18


class _AtOnce(ThreadPoolExecutor):
    """Does in the loop what would be done beside it, so that a case is over when its turns are."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Done when it returns."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 -- whoever waits gets it
            done.set_exception(error)
        return done


class _Broker:
    """A broker in a loop of its own, which runs only while a case is played."""

    def __init__(self, config: BrokerConfig) -> None:
        self.loop = asyncio.new_event_loop()
        self._directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._cluster = self.does(self._started(config))

    async def _started(self, config: BrokerConfig) -> KafkaCluster:
        ids = ProducerIds(FileBlocks(self._directory))
        cluster = KafkaCluster(self._directory / "data", ids, config)
        await cluster.start()
        await asyncio.to_thread(ids.wait_until_ready, 10_000)
        self.loop.set_default_executor(_AtOnce())
        for topic in _TOPICS:
            cluster.nodes[0].parts.topics.create(topic, 2)
        return cluster

    def does(self, work: Awaitable[Any]) -> Any:
        """Run it to its end."""
        return self.loop.run_until_complete(work)

    @property
    def node(self) -> Node:
        """Its only node."""
        return self._cluster.nodes[0]

    def close(self) -> None:
        """Stop, and leave nothing."""
        self.does(self._cluster.stop())
        self.does(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self._directory)


class _OnABroker(Stateless):
    """What is played on a broker, which is started with the first case."""

    def __init__(self) -> None:
        self._broker: _Broker | None = None

    def _config(self) -> BrokerConfig:
        return BrokerConfig()

    @property
    def _running(self) -> _Broker:
        if self._broker is None:
            self._broker = _Broker(self._config())
        return self._broker

    @cached_property
    def _originals(self) -> list[bytes]:
        return originals()

    def closed(self) -> None:
        """Stop the broker."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None


class Frames(_OnABroker):
    """As a client who may do everything."""

    name = "requests"
    reads = "the embedded broker, requests of a client who may do everything"
    most_mb = 128
    """A request may have 100,000 elements: one with 90,000 has 10 MB itself, and 70 MB with the answer."""
    _who = Context(1, "me", "127.0.0.1")

    def made(self, chance: random.Random) -> bytes:
        """A frame without its length."""
        frame = chance.choice(self._originals)[4:]
        return other_request(chance, frame) if chance.random() < 0.5 else changed_bytes(chance, frame)

    def played(self, case: bytes) -> str:
        """Answered in a form that the API has, or refused."""
        return str(self._running.does(self._answered(self._running.node, case)))

    async def _answered(self, node: Node, case: bytes) -> str:
        work = asyncio.ensure_future(node.answer(memoryview(case), lambda _client_id: self._who))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if not work.done():
            work.cancel()
            await asyncio.wait([work])
            return "waiting"
        try:
            answer = work.result()
        except (Disconnect, MalformedRequest):
            return "refused"
        return "not answered" if answer is None else _judged(case, answer)

    def renewed(self) -> None:
        """A new broker: this one has what earlier cases made."""
        self.closed()


class StrangersFrames(Frames):
    """As a client without a single right."""

    name = "requests of a stranger"
    reads = "the embedded broker with ACLs, requests of a client without a right"

    def _config(self) -> BrokerConfig:
        return BrokerConfig(security=SecurityConfig(authorizer=STANDARD_AUTHORIZER, super_users="User:root"))


def other_request(chance: random.Random, frame: bytes) -> bytes:
    """One or two fields of the request with other values, everything else as it was."""
    header = server.parse_header(memoryview(frame))
    try:
        request = REQUESTS[header.api_key].decode(frame, version=header.api_version, header=True)
        for _ in range(chance.choice((1, 1, 2))):
            found: list[tuple[Any, str, Any]] = []
            leaves(request, type(request)._struct, header.api_version, found)
            owner, name, described = chance.choice(found)
            setattr(owner, name, other_field(chance, getattr(owner, name), described))
        request.with_header(correlation_id=7, client_id="me")
        return bytes(request.encode(header=True, framed=True))[4:]
    except (struct.error, ValueError, TypeError, AttributeError, IndexError, OverflowError):
        return changed_bytes(chance, frame)


def _judged(case: bytes, answer: bytes) -> str:
    """The answer as the library reads it: whole, with nothing behind it."""
    header = server.parse_header(memoryview(case))
    (length,) = struct.unpack_from(">i", answer)
    assert length == len(answer) - 4, "an answer of another length than it says"
    if header.api_key == _API_VERSIONS and answer[8:10] != _NO_ERROR:
        # The library reads every refusal of this API as version 0, which only that of an unknown version is.
        return "answered"
    read = response_class(header.api_key).decode(bytes(answer[4:]), version=header.api_version, header=True)
    assert read is not None
    return "answered"


# ---- a connection before its login


class _Transport(asyncio.Transport):
    """A socket that takes everything and counts it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.closed, self.paused, self.sent = False, False, 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Never full."""

    def get_write_buffer_size(self) -> int:
        """Never full."""
        return 0

    def write(self, data: Any) -> None:
        """Taken."""
        self.sent += len(data)

    def pause_reading(self) -> None:
        """The broker has enough for now."""
        self.paused = True

    def resume_reading(self) -> None:
        """It wants more."""
        self.paused = False

    def close(self) -> None:
        """By the broker."""
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        """Whether it did."""
        return self.closed


_USERS = {"alice": "wonderland"}
_TOKEN = b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6OTk5OTk5OTk5OX0.\x01\x01"
_LOGINS = (
    ("PLAIN", (b"\0alice\0wonderland",)), ("PLAIN", (b"\0alice\0wrong", b"\0alice\0wonderland")), ("PLAIN", (b"bob\0alice\0wonderland",)),
    ("SCRAM-SHA-256", (b"n,,n=alice,r=abcdef", b"c=biws,r=abcdef,p=AAAA")), ("SCRAM-SHA-512", (b"n,a=alice,n=alice,r=x",)),
    ("OAUTHBEARER", (_TOKEN,)), ("OAUTHBEARER", (_TOKEN[:40], b"\x01")),
)  # fmt: skip
_MECHANISMS = sorted({name for name, _ in _LOGINS})
_MESSAGES = tuple(each for _, messages in _LOGINS for each in messages)


def _handshake(mechanism: str) -> bytes:
    return _framed(server.SaslHandshakeRequest(version=1, mechanism=mechanism))


def _message(chance: random.Random, message: bytes) -> bytes:
    if chance.random() < 0.4:
        message = changed_bytes(chance, message)
    return _framed(server.SaslAuthenticateRequest(version=chance.choice((0, 1, 2)), auth_bytes=message))


class Connections(_OnABroker):
    """Requests of a client who has not logged in, in pieces as a network makes them."""

    name = "connections"
    reads = "the embedded broker's connections before and in a login"

    def __init__(self) -> None:
        super().__init__()
        self._users: IO[str] | None = None

    def _config(self) -> BrokerConfig:
        self._users = tempfile.NamedTemporaryFile("w", prefix="fuzz-users-")  # noqa: SIM115  until `closed`
        json.dump(_USERS, self._users)
        self._users.flush()
        # No user of the loop's listener: the sessions are made here.
        return BrokerConfig(security=SecurityConfig(
            protocol="SASL_PLAINTEXT", mechanisms=",".join(_MECHANISMS), users_file=self._users.name,
        ))  # fmt: skip

    def made(self, chance: random.Random) -> list[bytes]:
        """What arrives, piece by piece."""
        stream = bytearray()
        for _ in range(chance.choice((1, 2, 3, 5))):
            stream += self._frame(chance)
        if chance.random() < 0.3:
            stream = bytearray(changed_bytes(chance, bytes(stream)))
        pieces, at = [], 0
        while at < len(stream):
            size = chance.choice((1, 3, 17, 200, len(stream)))
            pieces.append(bytes(stream[at : at + size]))
            at += size
        return pieces[:400]

    def _frame(self, chance: random.Random) -> bytes:
        kind = chance.random()
        if kind < 0.2:
            return chance.choice(self._originals)
        if kind < 0.4:
            return _handshake(other_text(chance))
        if kind < 0.6:
            return _message(chance, chance.choice(_MESSAGES))
        # In order, as a client does: the mechanism, and a message of it.
        name, messages = chance.choice(_LOGINS)
        return _handshake(name) + b"".join(_message(chance, each) for each in messages)

    def played(self, case: list[bytes]) -> str:
        """The connection takes all of it, or closes; it never fails by an error of the broker."""
        return str(self._running.does(self._fed(self._running.node, case)))

    async def _fed(self, node: Node, case: list[bytes]) -> str:
        failed: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, facts: failed.append(str(facts)))
        parts = node.parts
        connection = Connection(
            _Watched(node, failed), 1, parts.listener_security.session(), parts.config, node.receive_buffers, parts.unread
        )  # fmt: skip
        transport = _Transport()
        connection.connection_made(transport)
        for piece in case:
            at = 0
            while at < len(piece) and not transport.closed:
                for _ in range(_TURNS_OF_A_LOGIN if transport.paused else 0):
                    await asyncio.sleep(0)
                room = connection.get_buffer(-1)
                count = min(len(room), len(piece) - at)
                room[:count] = piece[at : at + count]
                connection.buffer_updated(count)
                at += count
        for _ in range(_TURNS_OF_A_LOGIN):
            await asyncio.sleep(0)
        known = not connection.unknown
        await connection.close()
        connection.connection_lost(None)
        assert not failed, failed[0]
        return "logged in" if known else "closed" if transport.closed else "open"

    def closed(self) -> None:
        """Stop the broker."""
        super().closed()
        if self._users is not None:
            self._users.close()


class _Watched:
    """The node, whose errors a connection would log and go on."""

    def __init__(self, node: Node, failed: list[str]) -> None:
        self._node, self._failed = node, failed

    def admit(self, connection: Connection) -> bool:
        """As the node does."""
        return self._node.admit(connection)

    def disconnected(self, connection: Connection) -> None:
        """As the node does."""
        self._node.disconnected(connection)

    async def answer(self, frame: memoryview, context_of: Callable[[str | None], Context]) -> bytes | None:
        """As the node does; what is none of its refusals is kept."""
        try:
            return await self._node.answer(frame, context_of)
        except (Disconnect, MalformedRequest):
            raise
        except Exception as error:
            self._failed.append(f"{type(error).__name__}: {error}; frame {bytes(frame).hex()}")
            raise


def _framed(request: Any) -> bytes:
    request.with_header(correlation_id=7, client_id="me")
    return bytes(request.encode(header=True, framed=True))
