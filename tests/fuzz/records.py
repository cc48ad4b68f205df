"""Record batches, read by the compiled kernels at the edge of memory that the process may not touch."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from functools import cached_property

import crc32c

from embedded_kafka.log.records import EndMarker, encode_marker
from kafka_core.compression import CODES
from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.records import BATCH_OVERHEAD_BYTES, control_marker, decode_chunks, digest_of, scan, see
from pyspark_kafka_eos.records.warm import warm
from tests.fuzz.changes import changed_bytes
from tests.fuzz.target import Stateless
from tests.pyspark_kafka_eos.records.record_rows import Row, batch_of

_PAGE = mmap.PAGESIZE
_ROOM = 1 << 20
_MOST_BYTES = 1 << 22
"""Unpacked. The product's own limit, 128 MiB, is what `mutations.records` meets with its bombs."""
_PROT_NONE = 0


class _AtTheEdge:
    """Memory that ends where a page begins that nobody may read: one byte too many ends the process."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ROOM + _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        library = ctypes.CDLL(None, use_errno=True)
        if library.mprotect(ctypes.c_void_p(start + _ROOM), ctypes.c_size_t(_PAGE), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")

    def holds(self, data: bytes) -> memoryview:
        """The bytes, whose last one is the last that may be read."""
        view = memoryview(self._memory)[_ROOM - len(data) : _ROOM]
        view[:] = data
        return view


def _batches() -> list[bytes]:
    """Small and larger ones of every codec, and a marker."""
    chance = random.Random(1)
    found = [bytes(encode_marker(1, 0, EndMarker(commit=False, coordinator_epoch=2), timestamp_ms=3))]
    for codec in CODES:
        for count in (1, 3, 40):
            rows = [
                Row(
                    chance.choice((None, b"", b"key %d" % number)),
                    chance.choice((None, b"v" * chance.randrange(60))),
                    chance.choice(((), (("h", b"x"), ("", None)))),
                    chance.randrange(10**12),
                )
                for number in range(count)
            ]
            found.append(bytes(batch_of(rows, codec)))
    return found


class Records(Stateless):
    """Half of the changed batches have the CRC of what they are."""

    name = "records"
    reads = "record batches, by the compiled kernels, before a page that may not be read"
    most_mb = 64

    @cached_property
    def _batches(self) -> list[bytes]:
        # Compiling takes seconds where nobody has before, and is no case's.
        warm()
        return _batches()

    @cached_property
    def _edge(self) -> _AtTheEdge:
        return _AtTheEdge()

    def made(self, chance: random.Random) -> bytes:
        """One to three batches, one of which is changed."""
        batches = [chance.choice(self._batches) for _ in range(chance.choice((1, 1, 2, 3)))]
        which = chance.randrange(len(batches))
        batch = bytearray(batches[which])
        if chance.random() < 0.3:
            at, letter = chance.choice(((0, ">q"), (21, ">h"), (23, ">i"), (27, ">q"), (43, ">q"), (57, ">i")))
            limit = 1 << (8 * struct.calcsize(letter) - 1)
            struct.pack_into(letter, batch, at, chance.choice((0, -1, 1, limit - 1, -limit, 1 << 14, 3, 0x20, 0x30)))
        else:
            batch[BATCH_OVERHEAD_BYTES:] = changed_bytes(chance, bytes(batch[BATCH_OVERHEAD_BYTES:]))
        if chance.random() < 0.9:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
        if chance.random() < 0.8:
            struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
        batches[which] = bytes(batch)
        joined = b"".join(batches)
        return joined[: chance.randrange(len(joined))] if chance.random() < 0.05 else joined

    def played(self, case: bytes) -> str:
        """Read as a fetched log, as markers, and for the digest."""
        held = self._edge.holds(case[-_ROOM:])
        try:
            seen = see(held, 0, 2**63 - 1, [(0, 1)], committed=True)
            rows = sum(len(each) for each in decode_chunks(seen.batches, max_bytes=_MOST_BYTES))
            assert seen.position >= 0
            for batch in scan(held):
                if batch[0].control:
                    control_marker(batch)
                else:
                    digest_of([batch], 7, True, max_bytes=_MOST_BYTES)
        except ExactlyOnceError as error:
            return type(error).__name__
        return "read" if rows else "nothing in it"
