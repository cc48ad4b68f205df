"""Files of a log: atomic appends, and a limit on the number of open files.

Owns: file descriptors, the handling of a full disk.
Does not know: what the bytes mean.
Invariants:
- After a failed append the file has its previous length, or the next append restores that length before it writes.
- A descriptor is closed when nobody uses it any more: brokers in several threads of one process share the limit, and
  one of them may need room while another writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from embedded_kafka.log.records import Buffer
from embedded_kafka.refusals import Refused
from kafka_core import runtime
from kafka_core.protocol.error_codes import Code


def _affordable() -> int:
    """A quarter of the process's open-file limit (connections need descriptors as well), and at most 256.
    In a thread of a user's tests the broker shares the process with code that waits by select(), which
    breaks above 1023 (Spark's py4j does). With fewer, a broker with many busy partitions re-opens files,
    some 10 microseconds each."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 256 if soft == resource.RLIM_INFINITY else max(16, min(256, soft // 4))


class _Descriptor:
    """A file's descriptor, open for as long as this object is."""

    __slots__ = ("number",)

    def __init__(self, path: Path) -> None:
        self.number = -1
        self.number = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        # Not at the moment when the pool gives it up: another thread may be in the middle of a write.
        if self.number >= 0:
            os.close(self.number)


class OpenFiles:
    """Keeps the files that were used last open. Any thread may use it, each with files of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[LogFile, _Descriptor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, file: LogFile) -> _Descriptor:
        """The file's descriptor, good for as long as the caller keeps it. The file must exist."""
        found = self._open.get(file)
        if found is not None:
            # Another thread may have given it up in between; it is open all the same.
            with contextlib.suppress(KeyError):
                self._open.move_to_end(file)
            return found
        # Closing loses nothing: written bytes are in the page cache, and fsync acts on the file,
        # not on the descriptor.
        while len(self._open) >= self._limit:
            self._open.popitem(last=False)
        opened = self._open[file] = _Descriptor(file.path)
        return opened

    def close(self, file: LogFile) -> None:
        """Close the file if it is open."""
        self._open.pop(file, None)


_FILES: Final = OpenFiles(_affordable())
"""One pool per process, because the limit is per process."""


class LogFile:
    """A file that grows at its end. `size` covers complete appends only; bytes behind it do not count."""

    def __init__(self, path: Path, *, create: bool = False, pool: OpenFiles = _FILES) -> None:
        self.path = path
        self._pool = pool
        self._ragged = False
        if create:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644))
        self.size = path.stat().st_size

    def append(self, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        """Write the buffers one after another; with `sync`, flush them to disk.
        OSError: nothing was written."""
        opened = self._pool.descriptor(self)
        descriptor = opened.number
        if self._ragged:
            os.ftruncate(descriptor, self.size)
            self._ragged = False
        total = sum(len(buffer) for buffer in buffers)
        try:
            written = runtime.write_at(descriptor, buffers, self.size)
            while written < total:
                # A nearly full disk accepts a part; the next write reports the reason.
                more = runtime.write_at(descriptor, _behind(buffers, written), self.size + written)
                if not more:
                    raise OSError(errno.ENOSPC, "the write made no progress", str(self.path))
                written += more
            if sync:
                os.fsync(descriptor)
        except OSError:
            try:
                os.ftruncate(descriptor, self.size)
            except OSError:
                self._ragged = True
            raise
        self.size += total

    def read(self, count: int, at: int) -> bytes:
        """Up to `count` bytes from `at` on."""
        opened = self._pool.descriptor(self)
        return os.pread(opened.number, min(count, max(0, self.size - at)), at)

    def truncate(self, size: int) -> None:
        """Cut the file; the cut is on disk before this returns."""
        opened = self._pool.descriptor(self)
        os.ftruncate(opened.number, size)
        os.fsync(opened.number)
        self.size = size

    def sync(self) -> None:
        """When this returns, written bytes survive a power loss."""
        opened = self._pool.descriptor(self)
        os.fsync(opened.number)

    def close(self) -> None:
        """Release the descriptor; the file can still be used again."""
        self._pool.close(self)


def _behind(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for buffer in buffers:
        if written < len(buffer):
            rest.append(memoryview(buffer)[written:] if written else buffer)
        written = max(0, written - len(buffer))
    return rest


def write_whole(path: Path, content: Buffer) -> None:
    """Replace a small file. After a crash it is the old or the new one; the new one is on disk before this returns."""
    beside = path.with_name(path.name + ".new")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sync_file(path: Path) -> None:
    """When this returns, a file's written bytes survive a power loss. Does not use the pool of open files."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """When this returns, the directory's file names survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storage_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError into Refused(KAFKA_STORAGE_ERROR): the client retries, and succeeds once there is room."""
    try:
        yield
    except OSError as error:
        raise Refused(Code.KAFKA_STORAGE_ERROR, f"the log in {directory} cannot be used now: {error}") from error
