"""How fast records are encoded, decoded and partitioned on one core, and what loading the kernels costs.

Run: python -m benchmarks.records_micro
"""

from __future__ import annotations

import time
from collections.abc import Callable

start = time.perf_counter()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from connector.records import (  # noqa: E402
    Partitioner,
    RecordColumns,
    SectionWriter,
    decode_many,
    digest_of,
    frame,
    murmur2_of,
    scan,
)

imported = time.perf_counter()

ROWS = 65_536
REPEATS = 12
PARTITIONS = 4
SECTION_BYTES = 1_000_000


def best_rate(act: Callable[[], object], rows: int) -> float:
    """Million rows per second in the best of several runs."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return rows / min(times) / 1e6


def encode(columns: RecordColumns, compression: str, digest: bool) -> list[memoryview]:
    """Partition, pack and frame one Arrow batch's rows."""
    partitioner = Partitioner([PARTITIONS], 0, SECTION_BYTES)
    seeds = np.arange(PARTITIONS, dtype=np.uint64) if digest else None
    writer = SectionWriter(PARTITIONS, SECTION_BYTES, explicit_timestamps=False, digest_seeds=seeds)
    sections = list(writer.append(columns, partitioner.assign(columns, 0, None), 1_700_000_000_000))
    return [
        frame(
            section,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            compression=compression,
        )
        for section in sections + list(writer.flush())
    ]


def main() -> None:
    """Print a table of rates in million records per second."""
    generator = np.random.default_rng(1)
    print(f"import (numpy, pyarrow, numba, connector.records): {imported - start:.2f} s")
    began = time.perf_counter()
    tiny = RecordColumns(None, pa.array([b"x"]), None, None, 1)
    decode_many(scan(encode(tiny, "none", True)[0]))
    print(
        f"first encode and decode (compiled, or loaded from the cache): {time.perf_counter() - began:.2f} s"
    )
    for size in (100, 1000):
        noise = generator.integers(0, 64, ROWS * size, dtype=np.uint8)
        ends = np.arange(ROWS + 1, dtype=np.int32) * size
        values = pa.Array.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(ends), pa.py_buffer(noise)])
        keys = pa.array([f"key-{number:08}" for number in range(ROWS)])
        for name, columns in (
            ("no key", RecordColumns(None, values, None, None, ROWS)),
            ("key", RecordColumns(keys, values, None, None, ROWS)),
        ):
            for digest in (False, True):
                rate = best_rate(lambda c=columns, d=digest: encode(c, "none", d), ROWS)  # type: ignore[misc]
                print(f"encode {size:5} B {name:7} digest={digest!s:5} {rate:8.1f}")
        for compression in ("none", "lz4", "zstd", "snappy", "gzip"):
            batches = encode(columns, compression, False)
            rate = (
                best_rate(lambda c=columns, z=compression: encode(c, z, False), ROWS)
                if compression != "none"
                else 0
            )
            scanned = [batch for view in batches for batch in scan(view)]
            read = best_rate(lambda b=scanned: decode_many(b), ROWS)  # type: ignore[misc]
            crc = best_rate(lambda v=batches: [list(scan(view)) for view in v], ROWS)  # type: ignore[misc]
            print(
                f"{compression:7} {size:5} B key: encode {rate:7.1f} decode {read:7.1f} scan with CRC {crc:7.1f}"
            )
        print(f"digest_of {size:5} B {best_rate(lambda b=scanned: digest_of(b, 1, False), ROWS):8.1f}")  # type: ignore[misc]
        print(f"murmur2 of 12-byte keys {best_rate(lambda k=keys: murmur2_of(k), ROWS):8.1f}")  # type: ignore[misc]
        partitioner = Partitioner([PARTITIONS], 0, SECTION_BYTES)
        print(f"assign by key {best_rate(lambda c=columns, p=partitioner: p.assign(c, 0, None), ROWS):8.1f}")  # type: ignore[misc]


if __name__ == "__main__":
    main()
