"""Directories that nobody else can fill or replace.

Owns: making one, and the judgement of a path, from the root down.
Does not know: what is kept there.
Invariants:
- What is judged is what is used: below a directory that others cannot change, a name stays what it was judged as, so
  there is no moment in between.
- A directory that is made here is its owner's alone, whatever the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

PRIVATE_DIRECTORY = 0o700


def changeable_by_others(directory: Path, owners: Collection[int] = (), *, by_groups: bool) -> Path | None:
    """Make the directory where it is missing. The first part of its path that somebody else may fill or replace; None
    where nobody can. OSError where it cannot be made.

    `owners`: the users, beside this process's and root, who may: they can make the process run what they like in any
    case. `by_groups`: whether the members of a group are somebody else. Others may write to a directory above with the
    sticky bit (/tmp): they cannot rename in it what is not theirs.
    """
    if not hasattr(os, "getuid"):
        directory.mkdir(parents=True, exist_ok=True)
        return None
    trusted = {os.getuid(), os.geteuid(), 0, *owners}
    mask = stat.S_IWOTH | (stat.S_IWGRP if by_groups else 0)
    given = Path(os.path.abspath(directory))
    for each in (*reversed(given.parents), given):
        # A link of somebody else leads where he likes, by tomorrow elsewhere.
        if each.is_symlink() and each.lstat().st_uid not in trusted:
            return each
    path = Path(os.path.realpath(given))
    for each in (*reversed(path.parents), path):
        try:
            found = each.lstat()
        except FileNotFoundError:
            # Another process may make it in this moment, which is judged like any.
            with suppress(FileExistsError):
                each.mkdir(mode=PRIVATE_DIRECTORY)
                each.chmod(PRIVATE_DIRECTORY)
            found = each.lstat()
        is_shared = each != path and bool(found.st_mode & stat.S_ISVTX)
        is_theirs = found.st_uid in trusted and (is_shared or not found.st_mode & mask)
        if not stat.S_ISDIR(found.st_mode) or not is_theirs:
            return each
    return None
