"""Directories that only their own user may enter.

A module of its own, because a program that starts a broker in a child process needs this and nothing of the broker.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafka_core.errors import OptionsError
from kafka_core.own_directories import changeable_by_others


def make_private(path: Path) -> None:
    """Create a directory that only its owner may enter, whatever the umask. An existing one stays as it is.
    OptionsError where another user could fill or replace it: passwords, records and the control socket stand in it.
    """
    if path.exists() and not path.is_dir():
        raise FileExistsError(path)
    place = others_place(path)
    if place is not None:
        raise OptionsError(
            f"{path} cannot be a directory of the broker: {place} belongs to another user, or others may write to it; nothing was "
            "started; choose another directory, or take the right to write from others (chmod o-w)",
            {"directory": str(path), "place": str(place)},
        )


def others_place(path: Path) -> Path | None:
    """The part of a path that another user may change; None where there is none. Makes the directory where it is
    missing. A group's members were chosen by the directory's owner, and whoever owns the working directory can have
    this process run what they like: a container's root works in a folder of the machine's user.
    """
    return changeable_by_others(path, [os.stat(os.getcwd()).st_uid], by_groups=False)
