"""Compiles every kernel before the first record needs one: 3 s of CPU on each machine with an empty cache.

    kafka-eos warm      fills the cache where an image is built, and prints its directory

Owns: rows that pass through every kernel.
Does not know: Spark, where the cache is (`jit`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_core.errors import InternalError
from pyspark_kafka_eos.records import jit
from pyspark_kafka_eos.records.batch import decode
from pyspark_kafka_eos.records.columns import HEADERS_TYPE, RecordColumns
from pyspark_kafka_eos.records.partitioner import Partitioner, murmur2_of
from pyspark_kafka_eos.records.sections import SectionWriter, frame

_ALL_LIST, _ALL_READ = 0o755, 0o644

NO_CACHE = (
    "no directory for the compiled kernels is both writable and safe from other users, so every process compiles them anew "
    "(3 s of CPU): set NUMBA_CACHE_DIR to a directory of the process's user, below directories that nobody else may change"
)


def warm() -> Path | None:
    """Compile every kernel in this process, or load it from the cache. Returns the directory of the cache; None where
    no directory is writable and safe, so that every process compiles anew."""
    jit.load()
    keys = pa.array([b"key", None], pa.binary())
    headers = pa.array([[{"key": "name", "value": b"value"}], None], HEADERS_TYPE)
    columns = RecordColumns(keys, keys, headers, np.array([1, 2], dtype=np.int64), len(keys))
    murmur2_of(keys)
    partitions = Partitioner([1], sticky_start=0, sticky_bytes=1).assign(columns, 0, None)
    writer = SectionWriter(1, 1_000, explicit_timestamps=True, digest_seeds=np.array([1], dtype=np.uint64))
    sections = [*writer.append(columns, partitions, 0), *writer.flush()]
    batches = [frame(each, producer_id=0, producer_epoch=0, base_sequence=0, transactional=False) for each in sections]
    rows = sum(len(decode(batch)) for batch in batches)
    if rows != len(keys):
        raise InternalError("the kernels do not give back the rows that they were given", {"rows": rows})
    return jit.cache_directory()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the cache. Exit code 1 where there is no directory for it, or where it cannot be filled."""
    parser = argparse.ArgumentParser(
        prog="kafka-eos warm",
        description="Compile the kernels into the cache (NUMBA_CACHE_DIR, else the user's cache directory) and print its directory.",
    )
    parser.add_argument(
        "--shared", action="store_true", help="let every user of this machine read the cache, as in an image"
    )
    given = parser.parse_args(arguments)
    directory = warm()
    if directory is None:
        sys.stderr.write(f"{NO_CACHE}\n")
        return 1
    if given.shared:
        try:
            _share(directory)
        except OSError as error:
            sys.stderr.write(f"the compiled kernels in {directory} cannot be shared: {error}\n")
            return 1
    sys.stdout.write(f"{directory}\n")
    return 0


def _share(directory: Path) -> None:
    """Let every user read it, and the directory above it. Nobody else may write to either."""
    for path in (directory.parent, directory, *directory.rglob("*")):
        path.chmod(_ALL_LIST if path.is_dir() else _ALL_READ)


if __name__ == "__main__":
    sys.exit(main())
