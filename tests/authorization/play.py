"""The clients of `grants` ask what is in `questions`, of the embedded broker and of Apache Kafka.

Owns: the brokers' settings, what the clients find there, and what of an answer is compared: its codes, its names and
ids, the bits of authorized operations, and names that an error's text gives away.
Does not know: which answers are right.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from embedded_kafka import EmbeddedKafka, Security
from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from tests.authorization.grants import Grant, Names, grants
from tests.authorization.questions import THERE_FOR, Question, Things, questions
from tests.differential.records import Identity
from tests.differential.wire import Answer, Connection, HungUp, codes
from tests.pyspark_kafka_eos.client.test_login_real import MODULES

_WITHIN_S = 60
_ACLS_AT_ONCE = 200
_TRIES, _TRY_AGAIN_AFTER_S = 600, 0.1
_ROOT = "root"
_PAUSE = threading.Event()
_SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_CONCURRENT_TRANSACTIONS = 51
_NOT_YET = {3, 5, 14, 15, 16, _CONCURRENT_TRANSACTIONS}
"""Codes of a broker that is not ready: leaders, coordinators, transactions that end."""
_OF_THE_BROKER = {"_schema", "throttle_time_ms", "brokers", "cluster_id", "controller_id", "host", "port"}
_NAMES = {"name", "topic", "key", "group_id", "transactional_id", "resource_name"}

Cell = tuple[str, str]
"""(grant, question)."""


class LoggedIn(Connection):
    """A connection of a user whose password is his name."""

    def __init__(self, bootstrap_servers: str, user: str) -> None:
        super().__init__(bootstrap_servers)
        self._user = user

    def send(self, api: str, version: int, **fields: Any) -> None:
        """As in Connection; a new connection logs in first."""
        if self._socket is None:
            host, port = self._address
            self._socket = socket.create_connection((host, port), timeout=_WITHIN_S)
            self._say(_SASL_HANDSHAKE, 1, struct.pack(">h5s", 5, b"PLAIN"))
            proof = f"\0{self._user}\0{self._user}".encode()
            answer = self._say(_SASL_AUTHENTICATE, 0, struct.pack(f">i{len(proof)}s", len(proof), proof))
            assert answer[4:6] == b"\0\0", answer
        super().send(api, version, **fields)

    def _say(self, api_key: int, version: int, body: bytes) -> bytes:
        assert self._socket is not None
        head = struct.pack(">hhih", api_key, version, 1, -1)
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)


def clients() -> dict[str, Grant]:
    """User -> what he may do."""
    return {f"u{number:03}": grant for number, grant in enumerate(grants())}


@contextmanager
def embedded() -> Iterator[str]:
    """The address of an embedded broker that allows nobody but root anything."""
    users = {user: user for user in (_ROOT, *clients())}
    security = Security("SASL_PLAINTEXT", ("PLAIN",), users, acls=True, super_users=(_ROOT,))
    with EmbeddedKafka(in_process=True, security=security, config=_SETTINGS) as kafka:
        yield kafka.bootstrap_servers


@contextmanager
def real(version: str = NEWEST_KAFKA) -> Iterator[str]:
    """The same of Apache Kafka, with KRaft's authorizer."""
    (port,) = free_ports(1)
    users = " ".join(f'user_{user}="{user}"' for user in (_ROOT, *clients()))
    more = _SETTINGS | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:ANONYMOUS;User:{_ROOT}",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
    }
    listeners = {"SASL": ("SASL_PLAINTEXT", "127.0.0.1", port)}
    with LocalKafka(version, config=more, listeners=listeners, fast_start=True):
        yield f"127.0.0.1:{port}"


def tables() -> tuple[dict[Cell, Any], dict[Cell, Any]]:
    """What each client is told by the embedded broker, and by Apache Kafka."""
    with embedded() as ours, real() as theirs, ThreadPoolExecutor(2) as both:
        here, there = both.map(_table, (ours, theirs))
    return here, there


def _table(address: str) -> dict[Cell, Any]:
    things = _prepared(address)
    return {
        (grant.name, question.label): answer
        for user, grant in clients().items()
        for question, answer in _asked(address, user, things[user])
    }


def things_of(user: str) -> Things:
    """Of a client whom no broker knows."""
    return Things(Names(user), uuid.uuid4(), uuid.uuid4(), Identity(1, 0), Identity(2, 0))


def _asked(address: str, user: str, things: Things) -> Iterator[tuple[Question, Any]]:
    with closing(LoggedIn(address, user)) as connection:
        for question in questions():
            fields = question.fields(things)
            try:
                answer = _settled(connection, question, fields)
            except HungUp:
                yield question, "the connection ends"
            else:
                yield question, told(answer, things, fields)


def _settled(connection: Connection, question: Question, fields: dict[str, Any]) -> Answer:
    """The answer; of an id whose transaction is ending, when it has ended."""
    for _ in range(_TRIES):
        answer = connection.call(question.api, question.version, **fields)
        if _CONCURRENT_TRANSACTIONS not in codes(answer):
            return answer
        _PAUSE.wait(_TRY_AGAIN_AFTER_S)
    raise AssertionError((question, answer))


def told(answer: Any, things: Things, fields: dict[str, Any]) -> Any:
    """What of an answer is compared."""
    return _Teller(things, repr(fields)).part(answer)


class _Teller:
    def __init__(self, things: Things, asked: str) -> None:
        self._names = things.names
        self._prefix = things.names.prefix
        self._ids = {things.topic_id: "topic's id", things.doomed_id: "doomed's id", uuid.UUID(int=0): "no id"}
        self._asked = asked

    def part(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            mine = [each for key, each in value.items() if key in _NAMES and isinstance(each, str)]
            if mine and not any(each.startswith(self._prefix) or not each for each in mine):
                return "another's"
            kept = {key: self.part(each, key) for key, each in value.items() if key not in _OF_THE_BROKER}
            return {key: each for key, each in kept.items() if each not in (None, {}, [])}
        if isinstance(value, list | tuple) and not name.endswith("authorized_operations"):
            if name == "configs":
                return "shown" if value else None
            # The order is nobody's: Kafka shuffles some. Of what belongs to others counts whether it is shown.
            return sorted({repr(part): part for part in (self.part(each, name) for each in value)}.values(), key=repr)
        return self._leaf(value, name)

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, uuid.UUID):
            return self._ids.get(value, "some id")
        if name == "error_message":
            gives_away = isinstance(value, str) and self._prefix in value and not self._names_asked(value)
            return "gives away a name" if gives_away else None
        if name.endswith("authorized_operations"):
            return sorted(value) if isinstance(value, set | frozenset | list | tuple) else value
        if isinstance(value, str) and name in _NAMES:
            return value.replace(self._prefix, "my-") if not value or value.startswith(self._prefix) else "another's"
        return value if name.endswith("error_code") else None

    def _names_asked(self, text: str) -> bool:
        return all(name in self._asked for name in (self._names.topic, self._names.doomed) if name in text)


def _prepared(address: str) -> dict[str, Things]:
    admin = AdminClient(
        {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
         "sasl.username": _ROOT, "sasl.password": _ROOT, "log_level": 0}
    )  # fmt: skip
    all_acls: list[AclBinding] = [
        acl
        for user, grant in clients().items()
        for right in grant.rights
        for acl in right.bindings(Names(user), f"User:{user}")
    ] + [
        AclBinding(
            ResourceType.TOPIC, Names(user).topic, ResourcePatternType.LITERAL, THERE_FOR, "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for user in clients()
    ]  # fmt: skip
    for some in _pieces(sorted(set(all_acls)), _ACLS_AT_ONCE):
        for made in admin.create_acls(list(some)).values():
            made.result(_WITHIN_S)
    with closing(LoggedIn(address, _ROOT)) as root:
        return {user: _things(root, Names(user)) for user in clients()}


def _things(root: Connection, names: Names) -> Things:
    topics = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        for name in (names.topic, names.doomed)
    ]
    _ready(root, "CreateTopics", 7, topics=topics, timeout_ms=20_000, validate_only=False)
    asked = {"topics": [{"name": names.topic}, {"name": names.doomed}], "allow_auto_topic_creation": False}
    shown = {topic["name"]: topic["topic_id"] for topic in _ready(root, "Metadata", 12, **asked)["topics"]}
    for kind, key in ((0, names.group), (1, names.transactional_id)):
        _ready(root, "FindCoordinator", 4, key_type=kind, coordinator_keys=[key])
    committed = [
        {
            "name": names.topic,
            "partitions": [
                {
                    "partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            ],
        }
    ]  # fmt: skip
    _ready(
        root, "OffsetCommit", 8, group_id=names.group, generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=committed,
    )  # fmt: skip
    return Things(
        names, shown[names.topic], shown[names.doomed], _identity(root, names.transactional_id), _identity(root, None)
    )


def _identity(root: Connection, transactional_id: str | None) -> Identity:
    answer = _ready(
        root, "InitProducerId", 4, transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1,
        producer_epoch=-1,
    )  # fmt: skip
    return Identity(answer["producer_id"], answer["producer_epoch"])


def _ready(root: Connection, api: str, version: int, **fields: Any) -> Answer:
    """The answer when it has no code that says "not yet"; AssertionError for any other code."""
    for _ in range(_TRIES):
        answer = root.call(api, version, **fields)
        found = set(codes(answer)) - {0}
        if not found:
            return answer
        assert found <= _NOT_YET, (api, fields, answer)
        # A real broker makes its coordinators' topics now.
        _PAUSE.wait(_TRY_AGAIN_AFTER_S)
    raise AssertionError((api, fields, answer))


def _pieces(values: Sequence[AclBinding], size: int) -> Iterator[Sequence[AclBinding]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
