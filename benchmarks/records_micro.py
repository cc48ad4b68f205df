"""How fast records are encoded, decoded and partitioned on one core, and the cost of loading the kernels.

Run: python -m benchmarks.records_micro
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

start = time.perf_counter()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from pyspark_kafka_eos.records import (  # noqa: E402
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
    """Million rows per second of CPU time (one core, also on a busy machine) in the best of several runs."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        act()
        times.append(time.process_time() - began)
    return rows / min(times) / 1e6


def encode(columns: RecordColumns, compression: str, digest: bool) -> Iterator[memoryview]:
    """Partition, pack and frame one Arrow batch's rows."""
    partitioner = Partitioner([PARTITIONS], 0, SECTION_BYTES)
    seeds = np.arange(PARTITIONS, dtype=np.uint64) if digest else None
    writer = SectionWriter(PARTITIONS, SECTION_BYTES, explicit_timestamps=False, digest_seeds=seeds)
    sections = writer.append(columns, partitioner.assign(columns, 0, None), 1_700_000_000_000)
    for section in itertools.chain(sections, writer.flush()):
        yield frame(
            section,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            compression=compression,
        )


def encode_and_drop(columns: RecordColumns, compression: str, digest: bool) -> None:
    """Encode as a task does: a batch's memory is free again once it is acknowledged."""
    for _ in encode(columns, compression, digest):
        pass


def main() -> None:
    """Print a table of rates in million records per second."""
    generator = np.random.default_rng(1)
    print(f"import (numpy, pyarrow, pyspark_kafka_eos.records): {imported - start:.2f} s")
    began = time.perf_counter()
    tiny = RecordColumns(None, pa.array([b"x"]), None, None, 1)
    decode_many(scan(next(encode(tiny, "none", True))))
    print(
        f"first encode and decode (numba imported; compiled, or loaded from the cache): {time.perf_counter() - began:.2f} s"
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
                rate = best_rate(lambda c=columns, d=digest: encode_and_drop(c, "none", d), ROWS)  # type: ignore[misc]
                print(f"encode {size:5} B {name:7} digest={digest!s:5} {rate:8.1f}")
        for compression in ("none", "lz4", "zstd", "snappy", "gzip"):
            write = best_rate(lambda c=columns, z=compression: encode_and_drop(c, z, False), ROWS)  # type: ignore[misc]
            batches = [batch for view in encode(columns, compression, False) for batch in scan(view)]
            read = best_rate(lambda b=batches: decode_many(b), ROWS)  # type: ignore[misc]
            check = best_rate(lambda b=batches: [list(scan(view)) for _, view in b], ROWS)  # type: ignore[misc]
            digest = best_rate(lambda b=batches: digest_of(b, 1, False), ROWS)  # type: ignore[misc]
            print(
                f"{compression:7} {size:5} B key: encode {write:6.1f} decode {read:6.1f} "
                f"scan with CRC {check:6.1f} digest_of {digest:6.1f}"
            )
        print(f"murmur2 of 12-byte keys {best_rate(lambda k=keys: murmur2_of(k), ROWS):8.1f}")  # type: ignore[misc]
        partitioner = Partitioner([PARTITIONS], 0, SECTION_BYTES)
        print(f"assign by key {best_rate(lambda c=columns, p=partitioner: p.assign(c, 0, None), ROWS):8.1f}")  # type: ignore[misc]


if __name__ == "__main__":
    main()
