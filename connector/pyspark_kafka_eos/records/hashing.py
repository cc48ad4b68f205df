"""Hashes over plain addresses: digest format 1, Java's murmur2, and the CRC-32C of two runs of bytes from those of
each.

Owns: digest format 1, which is part of the ledger's format.
Does not know: records, batches.
Invariants:
- A hash reads only the bytes that its arguments describe, and checks nothing.
- Everything is int64, even values that are unsigned by nature: numba turns mixtures of signed and unsigned into
  floating point.
"""

from __future__ import annotations

from pyspark_kafka_eos.records.jit import helper, kernel
from pyspark_kafka_eos.records.memory import fold, load1, load4, load8, store8

# Digest format 1. Constants: the first 320 bits of pi's fraction, as signed words. They are part of the ledger's
# format.
C0 = 0x243F6A8885A308D3
C1 = 0x13198A2E03707344
C2 = 0xA4093822299F31D0 - (1 << 64)
C3 = 0x082EFA98EC4E6C89
C4 = 0x452821E638D01377

_M = 0x5BD1E995
_SEED = 0x9747B28C
_LOW = 0xFFFFFFFF

_CASTAGNOLI = 0x82F63B78
_ONE = 1 << 31
"""The polynomials of CRC-32C and of 1. Bit 31 is the coefficient of x^0 (RFC 3720, appendix B.4, reflected)."""
_BYTE = _ONE >> 8
"""x^8: one byte further."""


@helper
def hash_bytes(address: int, size: int, seed: int) -> int:
    """Digest format 1 of a run of bytes: two lanes of multiply-and-fold over 8-byte words, then both folded together.

    32 bytes a step; then 16 if there are as many; then the last 0 to 15 bytes as two words that may overlap.
    """
    end = address + size
    address, left, right = hash_steps(address, end, seed ^ C0, seed ^ C1)
    return hash_rest(address, end, size, left, right)


@helper
def hash_steps(address: int, end: int, left: int, right: int) -> tuple[int, int, int]:
    """The whole steps of the digest before `end`; returns the address behind them and both lanes."""
    while address + 32 <= end:
        left = fold(load8(address) ^ C2, load8(address + 8) ^ left)
        right = fold(load8(address + 16) ^ C3, load8(address + 24) ^ right)
        address += 32
    return address, left, right


@helper
def copy_and_hash(target: int, source: int, steps: int, left: int, right: int) -> tuple[int, int]:
    """Copy that many steps of 32 bytes and put them into both lanes. The copy waits for memory and the digest for
    multiplications, so together they take little more time than one of them."""
    for at in range(0, 32 * steps, 32):
        first = load8(source + at)
        second = load8(source + at + 8)
        third = load8(source + at + 16)
        fourth = load8(source + at + 24)
        store8(target + at, first)
        store8(target + at + 8, second)
        store8(target + at + 16, third)
        store8(target + at + 24, fourth)
        left = fold(first ^ C2, second ^ left)
        right = fold(third ^ C3, fourth ^ right)
    return left, right


@helper
def hash_rest(address: int, end: int, size: int, left: int, right: int) -> int:
    """The digest of `size` bytes whose whole steps are in the lanes and whose last 0 to 31 bytes begin here."""
    if address + 16 <= end:
        left = fold(load8(address) ^ C2, load8(address + 8) ^ left)
        address += 16
    rest = end - address
    first = 0
    last = 0
    if rest >= 8:
        first = load8(address)
        last = load8(end - 8)
    elif rest >= 4:
        first = load4(address)
        last = load4(end - 4)
    elif rest > 0:
        first = load1(address) | load1(address + (rest >> 1)) << 8 | load1(end - 1) << 16
    right = fold(first ^ C3, last ^ right)
    return fold(left ^ size, right ^ C4)


@helper
def seed_at(seed: int, timestamp: int) -> int:
    """The seed for a record whose timestamp is part of its digest."""
    return fold(seed ^ C4, timestamp ^ C2)


@helper
def murmur2(address: int, size: int) -> int:
    """Java's `Utils.murmur2` of a run of bytes, as an unsigned 32-bit number."""
    state = _SEED ^ size
    for at in range(address, address + (size & ~3), 4):
        word = (load4(at) * _M) & _LOW
        word ^= word >> 24
        state = ((state * _M) & _LOW) ^ ((word * _M) & _LOW)
    rest = size & 3
    tail = address + (size & ~3)
    if rest == 3:
        state ^= load1(tail + 2) << 16
    if rest >= 2:
        state ^= load1(tail + 1) << 8
    if rest >= 1:
        state = ((state ^ load1(tail)) * _M) & _LOW
    state ^= state >> 13
    state = (state * _M) & _LOW
    return state ^ (state >> 15)


@helper
def times(left: int, right: int) -> int:
    """The product of two polynomials modulo that of CRC-32C."""
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = (right >> 1) ^ _CASTAGNOLI if right & 1 else right >> 1
    return product


@kernel
def joined_crc(first: int, second: int, size: int) -> int:
    """CRC-32C of two runs of bytes, one behind the other, from the CRC-32C of each and the bytes of the second.

    A CRC is a remainder: the first one is multiplied by x^(8 * size), because so many bytes follow.
    """
    power = _BYTE
    while size:
        if size & 1:
            first = times(power, first)
        power = times(power, power)
        size >>= 1
    return first ^ second
