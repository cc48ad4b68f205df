"""The control socket: a test controls a broker in another thread or process through it.

Each line is a JSON object, answered by one: {"do": "advance", "by_ms": 60000} -> {"ok":
null} or {"error": "..."}.

Owns: the commands and their names, and the restriction of the socket to the broker's own user.
Does not know: its clients.
Invariants: only its owner may enter the socket's directory, whatever the umask and the data directory's mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedded_kafka.faults import last_counts
from embedded_kafka.faults.fault import Fault, LeaderFault, asked_for
from embedded_kafka.leader_views import take_stand
from embedded_kafka.parts import Parts
from embedded_kafka.private import PRIVATE_DIRECTORY, make_private
from embedded_kafka.refusals import Refused
from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

_LINE_AT_MOST = 64 * 1024
_PRIVATE_SOCKET = 0o600


class Control:
    """Serves commands for one broker. `advance`: moves its clock by so many ms, and handles what falls due."""

    def __init__(self, parts: Parts, advance: Callable[[int], None], path: Path) -> None:
        self._parts = parts
        self._path = path
        self._server: asyncio.AbstractServer | None = None
        self._commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "inject": self._inject,
            "fault": lambda asked: _shown(parts.faults.get(asked["number"])),
            "release": lambda asked: parts.faults.release(parts.faults.get(asked["number"])),
            "faults": lambda _: parts.faults.counts(),
            "clear-faults": lambda _: parts.faults.clear(),
            "elect": self._elect,
            # Sweeps at once, so a test sees the effects with the answer and need not wait for the next sweep.
            "advance": lambda asked: advance(asked["by_ms"]),
            "now": lambda _: parts.clock.now_ms(),
            "deny": lambda asked: parts.authorizer.deny(asked["operation"], asked["resource"], asked["name"]),
            "allow-all": lambda _: parts.authorizer.allow_all(),
        }

    async def start(self) -> None:
        """Listen. OptionsError where the directory of the socket cannot be made private."""
        _make_private(self._path.parent)
        self._path.unlink(missing_ok=True)
        last_counts.forget(self._path)
        faults = self._parts.faults
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
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            return {"ok": self._commands[asked["do"]](asked)}
        except (ValueError, Refused) as error:
            return {"error": str(error)}
        except (KeyError, TypeError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _inject(self, asked: dict[str, Any]) -> dict[str, Any]:
        fault = asked_for(**asked["fault"])
        if isinstance(fault.action, LeaderFault):
            take_stand(self._parts, fault)
        return _shown(self._parts.faults.inject(fault))

    def _elect(self, asked: dict[str, Any]) -> int:
        where = TopicPartition(asked["topic"], asked["partition"])
        epoch = self._parts.leaders.elect(where, asked["lost_from"])
        # Wakes waiting readers: the records that come next are another leader's.
        self._parts.readers.wake(where)
        return epoch


def _make_private(directory: Path) -> None:
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
