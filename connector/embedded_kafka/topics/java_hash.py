"""Java's string hash, by which Kafka finds the partition of a group or of a transactional id.

Owns: the hash.
Does not know: what is hashed.
Invariants: the hash equals `String.hashCode`, so that a real broker finds our groups in our files.
"""

from __future__ import annotations


def java_hash(text: str) -> int:
    """`text.hashCode()`: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(text: str, partitions: int) -> int:
    """The partition of a text among `partitions`: absolute value of the hash modulo that number. As in
    Kafka's `Utils.abs`, the absolute value of the lowest integer is 0."""
    number = java_hash(text)
    return (0 if number == -(1 << 31) else abs(number)) % partitions
