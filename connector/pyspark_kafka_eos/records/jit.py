"""When and how the kernels are compiled, and where their machine code is kept.

Owns: the `kernel` decorator (numba, GIL released, cached on disk).
Does not know: Kafka, Arrow.
Invariants:
- Importing never fails for lack of a writable directory: without one, every process compiles anew. Nor does a call.
- Machine code is loaded only from a directory that nobody can fill or replace but those who could replace this program:
  every directory above it is judged too.
- A process that has only a few records at a time, or once some thousands, never imports numba: Python runs the same
  functions, with the same results.

Spark keeps two Python processes for each query by format, which plan and commit and write and read a few records of the
ledger a batch. Numba with the kernels would be 33 to 70 MB and 0.5 s of CPU in each.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import pkgutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from kafka_core.own_directories import changeable_by_others

P = ParamSpec("P")
R = TypeVar("R")

_SOURCES = ("jit.py", "memory.py", "hashing.py", "kernels.py", "decoding.py")
"""Every module whose text ends up in machine code: a change to any of them must miss the cache. Numba itself
checks only the file of the outermost function, so a changed helper in another file would go undetected."""


def _sources_digest() -> str:
    import numba

    digest = hashlib.sha256(numba.__version__.encode())
    for name in _SOURCES:
        digest.update(pkgutil.get_data(__package__, name) or b"")
    return digest.hexdigest()[:16]


def _roots() -> Iterator[Path]:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "pyspark-kafka-eos"
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    yield Path(tempfile.gettempdir()) / f"pyspark-kafka-eos-{user}"


def _trusted() -> frozenset[int]:
    """The users who can make this process run what they like in any case: its own, root, and the owners of the
    directories that this program's text comes from (on YARN the node manager's user).
    """
    if not hasattr(os, "getuid"):
        return frozenset()
    owners = {os.getuid(), 0}
    for each in Path(os.path.realpath(__file__)).parents:
        # The path goes on inside of an archive.
        with suppress(OSError):
            owners.add(each.lstat().st_uid)
    return frozenset(owners)


def _theirs(found: os.stat_result, owners: frozenset[int]) -> bool:
    return found.st_uid in owners and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _made_safe(directory: Path) -> bool:
    """Make the directory where it is missing. Whether nobody but trusted users can put anything at its path or in it.
    The path is without links.
    """
    owners = _trusted()
    if changeable_by_others(directory, owners, by_groups=True) is not None:
        return False
    # Without users there is nobody to tell apart.
    others_may_enter = bool(owners) and directory.lstat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    return not others_may_enter or all(_theirs(each.lstat(), owners) for each in directory.rglob("*"))


def _is_filled(directory: Path) -> bool:
    """Whether an image brought machine code, which is of use also where nothing can be added to it."""
    return next(directory.glob("*/*.nbi"), None) is not None


def is_writable(directory: Path) -> bool:
    """Whether a kernel that is not in this cache can be added to it."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def cache_directory() -> Path | None:
    """The directory for machine code, created if needed; None where no place is safe and either writable or filled.

    In order: NUMBA_CACHE_DIR, the user's cache directory, the temporary directory (Spark's workers often run without a
    home). Named after the sources and numba's version, so that an upgrade never runs the machine code of the old one.
    """
    name = f"kernels-{_sources_digest()}"
    for root in _roots():
        directory = Path(os.path.realpath(root)) / name
        with suppress(OSError):
            if _made_safe(directory) and (is_writable(directory) or _is_filled(directory)):
                return directory
    return None


def _on_disk(code: CodeType, directory: Path) -> CodeType:
    """The same code under the name of an existing file: numba caches nothing for modules in a zip archive."""
    if os.path.exists(code.co_filename):
        return code
    name = os.path.basename(code.co_filename)
    source = pkgutil.get_data(__package__, name)
    if source is None:
        raise OSError(f"the source of {name} cannot be read from its archive")
    copy = directory / name
    if not copy.exists():
        handle, draft = tempfile.mkstemp(dir=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(source)
        os.replace(draft, copy)
    return code.replace(co_filename=str(copy))


@contextmanager
def _numba_cache_at(directory: Path) -> Iterator[None]:
    import numba
    from numba.core import caching

    config: Any = numba.config
    locator: Any = caching._CacheLocator
    before, ensure = config.CACHE_DIR, locator.ensure_cache_path
    config.CACHE_DIR = str(directory)
    if not is_writable(directory):
        # Numba refuses a directory that it cannot write to, also for reading.
        locator.ensure_cache_path = lambda _: None
    try:
        yield
    finally:
        config.CACHE_DIR, locator.ensure_cache_path = before, ensure


def _forgiving(compiled: Any) -> Any:
    """A kernel whose call never fails because of its cache: a disk may be full, a directory may be gone by now."""
    cache = compiled._cache

    def attempt(action: Callable[..., Any]) -> Callable[..., Any]:
        def attempted(*arguments: Any) -> Any:
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                return action(*arguments)

        return attempted

    # Numba calls both with positions only, and compiles where nothing was loaded.
    cache.load_overload = attempt(cache.load_overload)
    cache.save_overload = attempt(cache.save_overload)
    return compiled


FEW = 128
"""Records that Python takes at a time where nothing is compiled yet: 20 us each to read, so 2.5 ms. A query that
commits reads one to ten a batch. A quarter would load numba in each process that shares its ledger with some others,
four times would take 10 ms a batch.
"""

ONCE = 10_000
"""Records in larger portions that a process leaves to Python before it compiles: 0.15 s of CPU in all. A run that
begins reads the ledger since its last compaction, once: some thousands. A quarter would load numba for nearly every run
that goes on; four times would take as long as loading it.
"""

_portions = 0
"""Of `ONCE`, so far."""

_helpers: list[Callable[..., Any]] = []
_kernels: list[Kernel[..., Any]] = []
_compiling = threading.Lock()


class Kernel(Generic[P, R]):
    """A loop over records: machine code once `load` was called, the function in Python before."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._compiled: Any = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._compiled is not None:
            return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]
        with np.errstate(over="ignore"):  # as in machine code
            return self.function(*args, **kwargs)

    @property
    def compiled(self) -> Any:
        """Numba's dispatcher of it. Imports numba."""
        load()
        return self._compiled


def expect(records: int, *, plain: bool = True) -> None:
    """Load where Python would take too long for what comes, in however many calls: more than a few records time and
    again, or records that are not `plain`. One header takes as long as one record; digests are for machine code only.
    """
    global _portions
    if records > FEW:
        _portions += records
    if not plain or (records > FEW and _portions > ONCE):
        load()


def load() -> None:
    """Import numba and hand it every loop. From here on this process calls machine code only; each loop is compiled, or
    found in the cache, when it is called first.
    """
    with _compiling:
        if all(each._compiled is not None for each in _kernels):
            return
        import numba

        from pyspark_kafka_eos.records.memory import intrinsics

        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        places: dict[str, dict[str, Any]] = {}
        known: dict[Callable[..., Any], Any] = dict(intrinsics())
        known |= {each: numba.njit(**options)(_twin(each, places)) for each in _helpers}
        directory = None if getattr(sys, "frozen", False) else cache_directory()
        compiled = {each: _cached(_twin(each.function, places), directory, options) for each in _kernels}
        # Numba looks a name up when it compiles, which is later.
        for place in places.values():
            place |= {
                name: known[value]
                for name, value in place.items()
                if isinstance(value, FunctionType) and value in known
            }
        # Last, because another thread may call one at once.
        for each, dispatcher in compiled.items():
            each._compiled = dispatcher


def _cached(function: FunctionType, directory: Path | None, options: dict[str, Any]) -> Any:
    import numba

    if directory is not None:
        try:
            function.__code__ = _on_disk(function.__code__, directory)
            with _numba_cache_at(directory):
                return _forgiving(numba.njit(cache=True, **options)(function))
        except (OSError, RuntimeError):
            pass  # numba found no place after all: compile in this process
    return numba.njit(**options)(function)


def _twin(function: Callable[..., Any], places: dict[str, dict[str, Any]]) -> FunctionType:
    """The same function with a copy of its module's names, in which others may stand for the functions that it
    calls.
    """
    assert isinstance(function, FunctionType)
    names = places.setdefault(function.__module__, dict(function.__globals__))
    twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    twin.__module__, twin.__qualname__ = function.__module__, function.__qualname__
    return twin


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Have `load` compile the function, without the GIL, and keep the machine code for the user's next process. Who
    calls it says first what comes (`expect`).

    The function must take nothing but int and contiguous int64 arrays, so that there is one specialisation of it.
    """
    made = Kernel(function)
    _kernels.append(made)
    return made


def helper(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as a part of the kernels that call it."""
    _helpers.append(function)
    return function
