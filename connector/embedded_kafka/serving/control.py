"""The control socket: a test controls the brokers in another thread or process through it.

Each line is a JSON object, answered by one: {"do": "advance", "by_ms": 60000} -> {"ok":
null} or {"error": "..."}.

Owns: the commands and their names, and the restriction of the socket to the broker's own user.
Does not know: its clients.
Invariants: only its owner may enter the socket's directory, whatever the umask and the data directory's mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedded_kafka.faults import last_counts
from embedded_kafka.faults.fault import Fault, LeaderFault, asked_for
from embedded_kafka.leader_views import take_stand
from embedded_kafka.private import make_private
from embedded_kafka.refusals import Refused
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafka_core.errors import ExactlyOnceError, OptionsError
from kafka_core.own_directories import PRIVATE_DIRECTORY
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

_LINE_AT_MOST = 64 * 1024
_PRIVATE_SOCKET = 0o600


class Control:
    """Serves commands for one cluster."""

    def __init__(self, cluster: KafkaCluster, path: Path) -> None:
        self._cluster = cluster
        shared = self._shared = cluster.shared
        self._path = path
        self._server: asyncio.AbstractServer | None = None
        self._commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "inject": self._inject,
            "fault": lambda asked: _shown(shared.faults.get(asked["number"])),
            "release": lambda asked: shared.faults.release(shared.faults.get(asked["number"])),
            "faults": lambda _: shared.faults.counts(),
            "clear-faults": lambda _: shared.faults.clear(),
            "elect": self._elect,
            "brokers": lambda _: {each.node_id: each.life.state.value for each in shared.brokers},
            "leader": lambda asked: shared.leaders.leader(self._made(_where(asked))),
            "coordinator": lambda asked: shared.leaders.leader(self._coordinated(asked)),
            "move-coordinator": lambda asked: self._moved(self._coordinated(asked)),
            "move-leaders": lambda asked: shared.controller.scatter(asked["topic"], random.Random(asked["seed"])),
            "in-sync": lambda asked: shared.controller.set_in_sync(
                _where(asked), [self._existing(each) for each in asked["brokers"]]
            ),
            "kill-broker": lambda asked: cluster.kill(self._existing(asked["broker"])),
            "start-broker": self._start_broker,
            "freeze-broker": lambda asked: cluster.freeze(self._existing(asked["broker"])),
            "thaw-broker": lambda asked: cluster.thaw(self._existing(asked["broker"])),
            "cut-off-broker": lambda asked: cluster.cut_off(self._existing(asked["broker"])),
            "rejoin-broker": lambda asked: cluster.rejoin(self._existing(asked["broker"])),
            # Sweeps at once, so a test sees the effects with the answer and need not wait for the next sweep.
            "advance": lambda asked: cluster.advance(asked["by_ms"]),
            "now": lambda _: shared.clock.now_ms(),
            "deny": lambda asked: shared.authorizer.deny(asked["operation"], asked["resource"], asked["name"]),
            "allow-all": lambda _: shared.authorizer.allow_all(),
        }

    async def start(self) -> None:
        """Listen. OptionsError where the directory of the socket cannot be made private."""
        _make_private(self._path.parent)
        self._path.unlink(missing_ok=True)
        last_counts.forget(self._path)
        faults = self._shared.faults
        faults.before_kill = lambda: last_counts.write(self._path, faults.counts())
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(self._path))
            # Not by umask: it belongs to the whole process, and in a user's test run the broker must not
            # change it. Until here the directory keeps other users out.
            self._path.chmod(_PRIVATE_SOCKET)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_LINE_AT_MOST)
        except BaseException:
            listening.close()
            raise

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError):
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            done = self._commands[asked["do"]](asked)
            return {"ok": await done if inspect.isawaitable(done) else done}
        except (ValueError, Refused, ExactlyOnceError) as error:
            return {"error": str(error)}
        except (KeyError, TypeError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _inject(self, asked: dict[str, Any]) -> dict[str, Any]:
        fault = asked_for(**asked["fault"])
        if fault.broker is not None:
            self._existing(fault.broker)
        if isinstance(fault.action, LeaderFault):
            take_stand(self._shared, fault)
        return _shown(self._shared.faults.inject(fault))

    def _existing(self, broker: int) -> int:
        ids = self._shared.brokers.ids
        if broker not in ids:
            raise ValueError(f"there is no broker {broker}; there are {', '.join(map(str, ids))}")
        return broker

    def _made(self, where: TopicPartition) -> TopicPartition:
        found = self._shared.topics.get(where.topic)
        if found is None:
            raise ValueError(f"there is no topic {where.topic}")
        if not 0 <= where.partition < found.partitions:
            raise ValueError(f"there is no partition {where}; the topic has {found.partitions}")
        return where

    def _elect(self, asked: dict[str, Any]) -> int:
        return self._shared.controller.elect(_where(asked), asked.get("leader"), asked["lost_from"])

    def _coordinated(self, asked: dict[str, Any]) -> TopicPartition:
        """The partition of an internal topic that stores the transactional id, or the group. The topic is made if
        nobody has used it: a topic that is not there has no leader that could be another one's."""
        first = next(iter(self._shared.coordinators.values()))
        name, group = asked["transactional_id"], asked["group_id"]
        if (name is None) is (group is None):
            raise ValueError("a transactional id or a group has to be named, and not both")
        if name is not None:
            where = TopicPartition(TRANSACTIONS_TOPIC, first.transactions.partition_for(name))
        else:
            where = TopicPartition(OFFSETS_TOPIC, first.groups.partition_for(group))
        self._shared.topics.ensure_internal(where.topic)
        return where

    def _moved(self, where: TopicPartition) -> int:
        self._shared.controller.elect(where)
        return self._shared.leaders.leader(where)

    async def _start_broker(self, asked: dict[str, Any]) -> str:
        host_and_port = asked["advertised"]
        place = await self._cluster.revive(
            self._existing(asked["broker"]),
            asked["port"],
            None if host_and_port is None else tuple(host_and_port),
            asked["api_versions"],
        )
        return f"{place.host}:{place.port}"


def _where(asked: dict[str, Any]) -> TopicPartition:
    return TopicPartition(asked["topic"], asked["partition"])


def _make_private(directory: Path) -> None:
    if not os.path.lexists(directory):
        make_private(directory)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OptionsError(
            "the broker's control socket needs a directory of its own, but this is a link, a file or another "
            "user's; nothing was changed; remove it or choose another data directory",
            {"directory": str(directory)},
        )
    if stat.S_IMODE(found.st_mode) != PRIVATE_DIRECTORY:
        directory.chmod(PRIVATE_DIRECTORY)


def _shown(fault: Fault) -> dict[str, Any]:
    return {"number": fault.number, "fired": fault.fired}
