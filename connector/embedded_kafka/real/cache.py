"""The directory, outside the source tree, where downloads are kept between runs.

Invariant: a directory under its final name is complete.  It is filled under another name and renamed, so a
run that was interrupted or killed leaves nothing that a later run could take for complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.private import others_place


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CACHE_HOME/kafka-eos`, or `~/.cache/kafka-eos`; it exists afterwards. LocalError where another user could
    put jars into it: what is there runs.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    path = root / "kafka-eos"
    place = others_place(path)
    if place is not None:
        raise LocalError(
            f"downloads cannot be kept in {path}: {place} belongs to another user, or others may write to it, and what is kept there "
            "runs; name another directory by XDG_CACHE_HOME, or take the right to write from others (chmod o-w)"
        )
    return path


@contextlib.contextmanager
def making(final: Path) -> Iterator[Path | None]:
    """Yields an empty directory to fill, which becomes `final` at the end; None when `final` already exists.

    Two processes at once: the second waits for the first, then gets None.  When the body raises, `final` does not exist
    and the next caller starts over.
    """
    if final.is_dir():
        yield None
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    with final.with_name(final.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it when the holder dies
        if final.is_dir():
            yield None
            return
        unfinished = final.with_name(final.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        yield unfinished
        unfinished.rename(final)
