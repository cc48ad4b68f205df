"""The driver's process answers Spark's workers beside it how often a stage was attempted.

Owns: the place where they meet, the question and its answer.
Does not know: what follows from an answer (`stage_attempts`).
Invariants:
- Only processes of the same user on the same machine ask and answer.
- Where nobody answers within a second, the answer is unknown, never a number.

By format and with df.write the commit runs in a Python worker that Spark's JVM starts, which has no way into that JVM.
The process that called `register(spark)` has. Both find each other by the JVM's process id: the worker descends from
it. The name is in Linux's abstract namespace, so no file stays behind; on other systems nobody answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark_kafka_eos.spark.sink.stage_attempts import Ask, ask_spark

log = logging.getLogger(__name__)

_WITHIN_S = 1.0
"""How long a worker waits for an answer, which takes a millisecond. Half could miss a busy driver's; double only delays
a commit whose driver hangs.
"""

_MOST_ANCESTORS = 10
"""Between a worker and the JVM stands PySpark's daemon. Half is enough too; double would look at foreign processes."""

_UNKNOWN = -1


class _Answering:
    """The socket of this process, once it answers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listening: socket.socket | None = None
        self.thread: threading.Thread | None = None


_answering = _Answering()


def answer(context: Any) -> None:
    """Answer the workers of this context's JVM from now on. Never fails a query: where it cannot, nobody answers."""
    if not sys.platform.startswith("linux"):
        return
    with _answering.lock, contextlib.suppress(Exception):
        if _answering.listening is not None:
            return
        pid = int(context._jvm.java.lang.ProcessHandle.current().pid())
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(_name(pid))
            listening.listen(8)
        except OSError:
            listening.close()
            raise
        _answering.listening = listening
        _answering.thread = threading.Thread(target=_serve, args=(listening,), name="kafka-eos-attempts", daemon=True)
        _answering.thread.start()


def close() -> None:
    """Answer nobody any more."""
    with _answering.lock:
        if _answering.listening is not None:
            # Wakes the thread, which a close alone does not.
            with contextlib.suppress(OSError):
                _answering.listening.shutdown(socket.SHUT_RDWR)
            _answering.listening.close()
        if _answering.thread is not None:
            _answering.thread.join(_WITHIN_S)
        _answering.listening = _answering.thread = None


def ask_driver() -> Ask:
    """Asks the process that called `register(spark)` for the JVM that this worker descends from."""

    def ask(stage: int) -> int | None:
        if not sys.platform.startswith("linux"):
            return None
        for pid in _ancestors():
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(_WITHIN_S)
                asking.connect(_name(pid))
                if not _is_mine(asking):
                    continue
                asking.sendall(struct.pack("!q", stage))
                attempt = _number(asking)
                return None if attempt == _UNKNOWN else attempt
        return None

    return ask


def _serve(listening: socket.socket) -> None:
    from pyspark import SparkContext

    while True:
        try:
            asking, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), asking:
            asking.settimeout(_WITHIN_S)
            if not _is_mine(asking):
                continue
            stage = _number(asking)
            found = ask_spark(SparkContext._active_spark_context)(stage)
            asking.sendall(struct.pack("!q", _UNKNOWN if found is None else found))


def _number(asking: socket.socket) -> int:
    """The eight bytes that either side sends; ConnectionError where the other end is gone before."""
    with asking.makefile("rb") as incoming:
        data = incoming.read(8)
    if len(data) < 8:
        raise ConnectionError("closed before the number was complete")
    return int.from_bytes(data, "big", signed=True)


def _name(pid: int) -> str:
    return f"\0kafka-eos-attempts-{os.getuid()}-{pid}"


def _is_mine(peer: socket.socket) -> bool:
    """Whether the other end is a process of this user: any user may take a name of the abstract namespace."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.getuid())


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        try:
            # The name of a process may have spaces and parentheses, so what follows is read from its end.
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])


__all__ = ["answer", "ask_driver", "close"]
