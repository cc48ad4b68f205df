"""The levels of the codecs (KIP-390): they change the size of a batch, and neither its records nor who can read it."""

from __future__ import annotations

import numpy as np
import pytest

from kafka_core.compression import CODES, compress, decompress

DATA = memoryview(
    b"".join(b"%d: %d of the orders of the day\n" % (number, number * 7919 % 1009) for number in range(4_000))
)


def size(codec: str, level: int | None = None) -> int:
    """The packed size; the packed bytes must unpack to what was packed."""
    packed = compress(codec, DATA, level)
    assert decompress(CODES[codec], memoryview(packed)) == DATA
    return len(packed)


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "levels"), [("gzip", (1, 9)), ("lz4", (9, 2, 12)), ("zstd", (-100, 1, 22))])
def test_a_higher_level_packs_better(codec: str, levels: tuple[int, ...]) -> None:
    sizes = [size(codec, level) for level in levels]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


@pytest.mark.parametrize(("codec", "default"), [("gzip", 6), ("lz4", 9), ("zstd", 3)])
def test_without_a_level_it_is_kafkas_default(codec: str, default: int) -> None:
    assert compress(codec, DATA) == compress(codec, DATA, default)


@pytest.mark.parametrize("level", [1, 13, 17])
def test_every_level_that_java_has_for_lz4_is_taken(level: int) -> None:
    assert size("lz4", level) <= size("lz4")
    if level > 12:
        assert size("lz4", level) == size("lz4", 12)


def test_data_that_cannot_be_packed_is_stored_at_a_high_level_too() -> None:
    noise = np.random.default_rng(5).integers(0, 256, 200_000, dtype=np.uint8)

    packed = compress("lz4", memoryview(noise), 12)

    assert bytes(decompress(CODES["lz4"], memoryview(packed))) == noise.tobytes()
