"""The broker's data directory: its lock, and small files that are either complete or absent.

Owns: the lock, the format version, the cluster id, how far tests have moved the clock.
Does not know: logs and topics.
Invariants:
- Two brokers never write to one directory.
- A small file is replaced, never changed in place.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from embedded_kafka.log.segments.files import sync_directory, write_whole
from embedded_kafka.private import make_private
from kafka_core import runtime
from kafka_core.errors import LogDamaged, StorageInUse, UnsupportedVersion

FORMAT_VERSION = 1
"""The version of the directory as a whole; raised when an older broker would misread a newer one's files."""

_META = "meta.json"
_LOCK = ".lock"
_CLOCK = "clock.json"


class DataDirectory:
    """A directory that this process holds until `release`.

    StorageInUse where another broker holds it, UnsupportedVersion where a newer broker wrote it, LogDamaged
    where its version is unreadable. After each of these errors the directory is unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        make_private(path)
        self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._claim()
            self.cluster_id = self._known_cluster()
        except BaseException:
            os.close(self._lock)
            raise

    def release(self) -> None:
        """Release the directory for another broker. (The operating system releases a killed broker's lock.)"""
        os.close(self._lock)

    @property
    def clock_added_ms(self) -> int:
        """How far the clock of the brokers that used the directory was ahead of the machine's."""
        return int((read_json(self.path / _CLOCK) or {}).get("added_ms", 0))

    @clock_added_ms.setter
    def clock_added_ms(self, added_ms: int) -> None:
        write_json(self.path / _CLOCK, {"added_ms": added_ms})

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            raise StorageInUse(
                "another broker uses this data directory; nothing was changed; stop that broker or choose "
                "another directory",
                {"directory": str(self.path), "process_id": holder},
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{runtime.process_id()}\n".encode(), 0)

    def _known_cluster(self) -> str:
        try:
            meta = read_json(self.path / _META)
            if meta is None and not (self.path / _META).exists():
                cluster_id = base64.urlsafe_b64encode(runtime.uuid4().bytes).decode().rstrip("=")
                write_json(self.path / _META, {"version": FORMAT_VERSION, "cluster_id": cluster_id})
                return cluster_id
            version, cluster_id = meta["version"], str(meta["cluster_id"])
            if type(version) is not int or version < 1:
                raise ValueError(f"{version!r} is no version")
        except (ValueError, KeyError, TypeError) as error:
            raise LogDamaged(
                "meta.json of the data directory is incomplete, so the version that wrote the directory is unknown; nothing was "
                "changed; restore the file or choose another directory",
                {"directory": str(self.path), "cause": repr(error)},
            ) from error
        if version > FORMAT_VERSION:
            raise UnsupportedVersion(
                "the data directory was written by a newer version of this broker; nothing was changed; run at least that "
                "version or choose another directory",
                {
                    "directory": str(self.path),
                    "found_version": version,
                    "known_version": FORMAT_VERSION,
                },
            )
        return cluster_id


def read_json(path: Path) -> Any:
    """The content that `write_json` wrote; None where the file does not exist, LogDamaged
    where it is unreadable."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LogDamaged(
            "a small file of the data directory cannot be read; no record was changed; restore the file or "
            "choose another directory",
            {"file": str(path), "cause": repr(error)},
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Replace the file. After a crash it is the old or the new one; the new one is on disk before this returns."""
    write_whole(path, json.dumps(content, separators=(",", ":")).encode())
    sync_directory(path.parent)
