"""Directories that only their own user may enter.

A module of its own, because a program that starts a broker in a child process needs this and nothing of the broker.
"""

from __future__ import annotations

from pathlib import Path

PRIVATE_DIRECTORY = 0o700


def make_private(path: Path) -> None:
    """Create a directory that only its owner may enter, whatever the umask. An existing one stays as it is."""
    try:
        path.mkdir(mode=PRIVATE_DIRECTORY, parents=True)
    except FileExistsError:
        if path.is_dir():
            return
        raise
    path.chmod(PRIVATE_DIRECTORY)
