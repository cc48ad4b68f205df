"""Words at plain addresses, and the product that digests are made of: for Python, and for numba.

Owns: the operations that the loops of this package are written in, each twice: a function that Python can call, and the
machine code that numba puts in its place.
Does not know: Kafka, Arrow, which loops there are.

An operation checks nothing. Every address that reaches one has been checked by the loop that calls it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

_ALL_64_BITS = 2**64 - 1
_SIGN_BIT = 2**63


# Little-endian words at any address, zero-extended into int64 (8 bytes: reinterpreted as signed).


def load8(address: int) -> int:
    """Eight bytes."""
    return ctypes.c_int64.from_address(int(address)).value


def load4(address: int) -> int:
    """Four bytes."""
    return ctypes.c_uint32.from_address(int(address)).value


def load1(address: int) -> int:
    """One byte."""
    return ctypes.c_uint8.from_address(int(address)).value


def store8(address: int, value: int) -> None:
    """The lowest eight bytes of the value."""
    ctypes.c_uint64.from_address(int(address)).value = int(value) & _ALL_64_BITS


def store4(address: int, value: int) -> None:
    """The lowest four."""
    ctypes.c_uint32.from_address(int(address)).value = int(value) & 0xFFFFFFFF


def store1(address: int, value: int) -> None:
    """The lowest one."""
    ctypes.c_uint8.from_address(int(address)).value = int(value) & 0xFF


def copy(target: int, source: int, size: int) -> None:
    """Bytes from one place to another; the two must not overlap."""
    ctypes.memmove(int(target), int(source), int(size))


def fold(left: int, right: int) -> int:
    """The 128-bit product of two words as unsigned numbers, its upper half XORed onto its lower half."""
    product = (int(left) & _ALL_64_BITS) * (int(right) & _ALL_64_BITS)
    return ((product ^ product >> 64) & _ALL_64_BITS ^ _SIGN_BIT) - _SIGN_BIT


def intrinsics() -> Mapping[Callable[..., Any], Any]:
    """What numba uses in place of each of these functions. Imports numba."""
    from llvmlite import ir
    from numba.core import cgutils as untyped_cgutils
    from numba.core import types
    from numba.extending import intrinsic

    cgutils: Any = untyped_cgutils

    def pointer(builder: Any, address: Any, bits: int) -> Any:
        return builder.inttoptr(address, ir.IntType(bits).as_pointer())

    def load(bits: int) -> Any:
        def load(typing_context: Any, address: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                value = builder.load(pointer(builder, arguments[0], bits))
                value.align = 1
                return value if bits == 64 else builder.zext(value, ir.IntType(64))

            return types.int64(types.int64), generate

        return intrinsic(load)

    def store(bits: int) -> Any:
        def store(typing_context: Any, address: Any, value: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                word = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
                builder.store(word, pointer(builder, arguments[0], bits)).align = 1
                return context.get_dummy_value()

            return types.void(types.int64, types.int64), generate

        return intrinsic(store)

    def copied(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source, size = arguments
            cgutils.raw_memcpy(builder, pointer(builder, target, 8), pointer(builder, source, 8), size, 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    def folded(typing_context: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            wide = ir.IntType(128)
            product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
            low = builder.trunc(product, ir.IntType(64))
            high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
            return builder.xor(low, high)

        return types.int64(types.int64, types.int64), generate

    return {
        load8: load(64), load4: load(32), load1: load(8), store8: store(64), store4: store(32), store1: store(8),
        copy: intrinsic(copied), fold: intrinsic(folded),
    }  # fmt: skip
