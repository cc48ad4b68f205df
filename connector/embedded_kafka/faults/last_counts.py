"""How often each fault has fired, left beside the control socket by a broker that one of its faults kills.

Owns: the file, for the broker that writes it and the program that reads it.
Does not know: faults, the control socket's protocol.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path


def _path(socket_path: Path) -> Path:
    return socket_path.with_name("last-fault-counts.json")


def forget(socket_path: Path) -> None:
    """Remove those of an earlier broker."""
    _path(socket_path).unlink(missing_ok=True)


def write(socket_path: Path, counts: Mapping[int, int]) -> None:
    """Leave the counts: a fault's number -> how often it has fired."""
    # Nobody can be told of a failure any more, and the kill must come.
    with contextlib.suppress(OSError):
        _path(socket_path).write_text(json.dumps(dict(counts)))


def read(socket_path: Path) -> dict[int, int]:
    """The counts that were left; empty where none were."""
    try:
        return {int(number): fired for number, fired in json.loads(_path(socket_path).read_bytes()).items()}
    except (OSError, ValueError):
        return {}
