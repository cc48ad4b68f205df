"""A Python worker runs one task after the other; one of the driver's plans or commits one micro-batch after the other.
This module avoids work that Spark repeats each time needlessly.

Owns: what a worker keeps from task to task beside its imports; where Spark puts the files of `--files`.
Does not know: what the task does.
Invariants:
- Never caches anything that can change during a worker's lifetime.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path, PurePath

from pyspark_kafka_eos.client.net.credentials.files import look_also_in

SWITCH = "KAFKA_EOS_TUNE_WORKERS"
"""`false` in a worker's environment turns all of this off, which the data never depend on: only time does."""

_WORTH_FREEZING = 10_000
"""Objects that outlived a task. A tenth costs the collector less than a millisecond; ten times as many would
be all imports."""

_MOST_FREEZES = 8
"""Each freeze may keep the garbage of one task permanently. Reading and writing need two each: one for
modules, one for objects created at first use."""

_OLDEST = 2
"""The generation that `gc.collect` collects."""

_freezes = 0

_to_spark: list[socket.socket] | None = None
"""Spark's end of each is in its Java; None before the first task."""


def sparks_files() -> str | None:
    """The folder of the files that came with `--files` (`spark.files`); None in a process that has no such folder."""
    from pyspark import SparkFiles

    try:
        return str(SparkFiles.getRootDirectory())
    except Exception:  # noqa: BLE001 -- without a context (Spark Connect's client) PySpark fails in several ways
        return None


# Everything of Spark's side imports this module, on the driver too.
look_also_in(sparks_files)


def make_ready() -> None:
    """Call in every task before its work, and in the driver's workers for each micro-batch: makes the next task of this
    worker cheap; costs microseconds itself. Nothing where the process has `KAFKA_EOS_TUNE_WORKERS=false`.
    """
    if os.environ.get(SWITCH, "true").strip().lower() == "false":
        return
    _freeze_what_stays()
    _forget_archives()
    _acknowledge_at_once()


def _has_a_next_task() -> bool:
    """Whether this is a worker that Spark uses again. A process that is no worker, such as a test that reads by itself,
    has no next task; what is frozen there is never collected, and clients in it keep their connections.
    """
    return "SPARK_REUSE_WORKER" in os.environ


def _acknowledge_at_once() -> None:
    """Keep the connection to Spark from waiting for delayed acknowledgements, 40 ms for each task that reads or writes.

    Spark sends a task's command, and then its rows as soon as the command is acknowledged (Nagle's algorithm). Linux
    delays the acknowledgement of a connection that it takes for an interactive one, which every connection becomes
    whose process answers. So it is told otherwise between two tasks, where PySpark collects garbage: nothing else of
    Spark's calls us there. A worker on a Unix socket (the default of 4.3) has no such connection, and one that is not
    used again no next task.
    """
    global _to_spark
    if _to_spark is not None or not hasattr(socket, "TCP_QUICKACK") or not _has_a_next_task():
        return
    _to_spark = list(_connections_of_this_machine())
    for each in _to_spark:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gc.callbacks.append(_after_a_collection)


def _connections_of_this_machine() -> Iterator[socket.socket]:
    """The TCP connections that this process has on loopback, each once. Before its first task a worker has the one to
    Spark only.
    """
    seen = set()
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        try:
            copy = os.dup(int(name))
        except OSError:
            # The listing's own, which is closed.
            continue
        try:
            each = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            continue
        try:
            ends = each.getsockname(), each.getpeername()
        except OSError:
            ends = ("",), ("",)
        # A worker has several descriptors of one connection. The address of a Unix socket is no tuple.
        if each.type == socket.SOCK_STREAM and ends[1][:1] in (("127.0.0.1",), ("::1",)) and ends not in seen:
            seen.add(ends)
            yield each
        else:
            each.close()


def _after_a_collection(phase: str, about: dict[str, int]) -> None:
    if phase == "stop" and about["generation"] == _OLDEST:
        for each in _to_spark or ():
            # Spark may have gone; the worker finds that out when it reads.
            with contextlib.suppress(OSError):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _freeze_what_stays() -> None:
    """Exclude objects that live from task to task from garbage collection.

    PySpark collects garbage after every task. Walking the 180,000 objects of the imports costs 100 ms of CPU
    each time, more than a small task. Half of them are created when the first task's work begins, so a second
    task freezes them.
    """
    global _freezes
    if not _has_a_next_task() or _freezes == _MOST_FREEZES:
        return
    if len(gc.get_objects(generation=2)) > _WORTH_FREEZING:
        _freezes += 1
        gc.freeze()


def _forget_archives() -> None:
    """Drop the finders of archives that hold Spark itself. Python recreates one from memory when it needs it.

    PySpark 4.0 and 4.1 make Python rescan its import paths in every task (`importlib.invalidate_caches`; 4.3
    only where a path was added). A finder of an archive then reads the archive's whole directory, in Python,
    once for each package that was imported from it: 0.2 s of CPU per task for pyspark.zip. Users' own
    archives are left alone: they may be replaced.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and _is_sparks(PurePath(finder.archive)):
            del sys.path_importer_cache[path]


def _is_sparks(archive: PurePath) -> bool:
    """pyspark.zip and py4j-...-src.zip below SPARK_HOME; a package's jar, which Spark adds to Python's path
    too."""
    name = archive.name
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip")) or archive.suffix == ".jar"
