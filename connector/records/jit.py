"""How the kernels are compiled, where their machine code is kept, and the raw memory operations they use.

Owns: the `kernel` decorator (numba, GIL released, cached on disk) and the intrinsics over plain addresses.
Does not know: Kafka, Arrow.
Invariants:
- Importing never fails for lack of a writable directory: without one, every process compiles anew. Nor does a call.
- Machine code is loaded only from a directory that belongs to this user or to root and that no other user may write to.

An intrinsic checks nothing. Every address that reaches one has been checked by the kernel that calls it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import pkgutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType
from typing import Any, ParamSpec, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import caching as untyped_caching
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.extending import intrinsic

caching: Any = untyped_caching
cgutils: Any = untyped_cgutils

P = ParamSpec("P")
R = TypeVar("R")

_SOURCES = ("jit.py", "hashing.py", "kernels.py", "decoding.py")
"""Every module whose text ends up in machine code: a change to any of them must miss the cache. Numba itself
checks only the file of the outermost function, so a changed helper in another file would go undetected."""

_PRIVATE_DIRECTORY = 0o700


def _sources_digest() -> str:
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


def _is_safe(directory: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    found = directory.lstat()
    others_may_write = stat.S_IWGRP | stat.S_IWOTH
    # Root could replace this program too.
    owners = (os.getuid(), 0)
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners and not found.st_mode & others_may_write


def _is_filled(directory: Path) -> bool:
    """Whether an image brought machine code, which is of use also where nothing can be added to it."""
    try:
        return _is_safe(directory) and next(directory.glob("*/*.nbi"), None) is not None
    except OSError:
        return False


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
    for root in _roots():
        directory = root / f"kernels-{_sources_digest()}"
        try:
            root.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            directory.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
            if _is_safe(directory) and is_writable(directory):
                return directory
        except OSError:
            pass
        if _is_filled(directory):
            return directory
    return None


_CACHE = cache_directory()


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


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, without the GIL, and keep the machine code for the user's next process.

    The function must take nothing but int and contiguous int64 arrays, so that there is one specialisation of it.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if _CACHE is not None and not getattr(sys, "frozen", False):
        try:
            function.__code__ = _on_disk(function.__code__, _CACHE)
            with _numba_cache_at(_CACHE):
                return cast("Callable[P, R]", _forgiving(numba.njit(cache=True, **options)(function)))
        except (OSError, RuntimeError):
            pass  # numba found no place after all: compile in this process
    return cast("Callable[P, R]", numba.njit(**options)(function))


def helper(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as a part of the kernels that call it; not to be called from Python."""
    return cast("Callable[P, R]", numba.njit(nogil=True, error_model="numpy")(function))


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _load(bits: int) -> Any:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], bits))
            value.align = 1
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return intrinsic(load)


def _store(bits: int) -> Any:
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            builder.store(word, _pointer(builder, arguments[0], bits)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(store)


# Little-endian words at any address, zero-extended into int64 (8 bytes: reinterpreted as signed).
load8 = cast("Callable[[int], int]", _load(64))
load4 = cast("Callable[[int], int]", _load(32))
load1 = cast("Callable[[int], int]", _load(8))
store8 = cast("Callable[[int, int], None]", _store(64))
store4 = cast("Callable[[int, int], None]", _store(32))
store1 = cast("Callable[[int, int], None]", _store(8))


def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, size = arguments
        cgutils.raw_memcpy(builder, _pointer(builder, target, 8), _pointer(builder, source, 8), size, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _fold(typing_context: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        low = builder.trunc(product, ir.IntType(64))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(low, high)

    return types.int64(types.int64, types.int64), generate


copy = cast("Callable[[int, int, int], None]", intrinsic(_copy))
"""copy(target, source, size): the two must not overlap."""

fold = cast("Callable[[int, int], int]", intrinsic(_fold))
"""The 128-bit product of two words as unsigned numbers, its upper half XORed onto its lower half."""
