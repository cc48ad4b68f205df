"""Importing this loads the compiled kernels: the server of forks does, or each child would spend more time on them than
on its batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafka_eos.records import Partitioner, RecordColumns, SectionWriter


def _load_kernels() -> None:
    columns = RecordColumns(None, pa.array([b"x"], pa.binary()), None, None, 1)
    where = Partitioner([1], sticky_start=0, sticky_bytes=100).assign(columns, 0, None)
    writer = SectionWriter(1, 1000, explicit_timestamps=False, digest_seeds=np.zeros(1, dtype=np.uint64))
    assert not list(writer.append(columns, where, 0))
    assert len(list(writer.flush())) == 1


_load_kernels()
