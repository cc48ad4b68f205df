"""Which partition a row goes to: its own partition column, else Java's default partitioning, so keys keep
their partitions when a job migrates to this connector.

Owns: murmur2 over key columns, the sticky partition of rows without a key, the flat index of (topic, partition).
Does not know: names of topics, brokers, the record format.
Invariants:
- Topics and partitions are only added.
- A flat index, once assigned, always means the same partition.
- The same rows in the same order from the same start go to the same partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_core.errors import InternalError, InvalidRow
from pyspark_kafka_eos.records import jit, kernels
from pyspark_kafka_eos.records.columns import RecordColumns, RowsInMemory, address

Int32s = npt.NDArray[np.int32]


class Partitioner:
    """Gives every row of a batch its flat partition index: the topic's first index plus the partition.

    `sticky_start`: the first partition of rows without a key (modulo each topic's partitions);
    `sticky_bytes`: how many bytes of them go to one partition before the next has its turn, ideally the size
    of a batch.
    """

    def __init__(self, partitions_per_topic: Sequence[int], sticky_start: int, sticky_bytes: int) -> None:
        if sticky_start < 0 or sticky_bytes < 1:
            raise ValueError("sticky_start must not be negative and sticky_bytes must be positive")
        self._sticky_start = sticky_start
        self._sticky_bytes = sticky_bytes
        self._topics = np.zeros((0, kernels.TOPIC_FIELDS), dtype=np.int64)
        for count in partitions_per_topic:
            self.add_topic(count)

    @property
    def num_partitions(self) -> int:
        """Flat indexes assigned so far: partitions of all topics."""
        return int(self._topics[:, kernels.PARTITIONS].sum())

    def add_topic(self, num_partitions: int) -> int:
        """Add a topic after the others; returns its index."""
        if not 0 < num_partitions <= 2**31 - 1 - self.num_partitions:
            raise ValueError(f"a topic cannot have {num_partitions} partitions")
        topic = np.zeros((1, kernels.TOPIC_FIELDS), dtype=np.int64)
        topic[0, kernels.FIRST_INDEX] = self.num_partitions
        topic[0, kernels.PARTITIONS] = num_partitions
        topic[0, kernels.STICKY] = self._sticky_start % num_partitions
        self._topics = np.concatenate([self._topics, topic])
        return len(self._topics) - 1

    def assign(self, columns: RecordColumns, topic_index: Int32s | int, explicit: pa.Array | None) -> Int32s:
        """Flat partition index of every row.

        `topic_index`: one for all rows, or one per row. `explicit`: the rows' own partitions (integers, null
        where the row has none), which take precedence. Raises InvalidRow (facts row, partition, partitions,
        topic_index) for one that the topic does not have; the sticky partitions are then unchanged.
        """
        jit.load()
        rows = columns.in_memory
        topic, of_row = 0, 0
        if isinstance(topic_index, int):
            topic = topic_index
        elif len(topic_index) != columns.num_rows:
            raise ValueError(f"{len(topic_index)} topic indexes for {columns.num_rows} rows")
        else:
            of_row = rows.address_of(topic_index, np.int32)
        own, validity, first_bit = self._explicit(rows, columns, explicit)
        target = np.empty(columns.num_rows, dtype=np.int32)
        topics = self._topics.copy()
        row, why = kernels.assign(
            rows.at, columns.num_rows, topic, of_row, own, validity, first_bit,
            topics, self._sticky_bytes, address(target),
        )  # fmt: skip
        if why != kernels.DONE:
            raise self._refusal(row, why, topic_index, explicit)
        self._topics = topics
        return target

    def _explicit(
        self, rows: RowsInMemory, columns: RecordColumns, explicit: pa.Array | None
    ) -> tuple[int, int, int]:  # fmt: skip
        if explicit is None or explicit.null_count == len(explicit):
            return 0, kernels.NO_NULLS, 0
        if len(explicit) != columns.num_rows:
            raise ValueError(f"{len(explicit)} partitions for {columns.num_rows} rows")
        if explicit.type != pa.int32():
            explicit = explicit.cast(pa.int32())
        validity, data = explicit.buffers()
        rows.alive.append(explicit)
        nullable = validity is not None and explicit.null_count > 0
        return (
            data.address + 4 * explicit.offset,
            validity.address if nullable else kernels.NO_NULLS,
            explicit.offset,
        )

    def _refusal(self, row: int, why: int, topic_index: Int32s | int, explicit: pa.Array | None) -> Exception:
        topic = topic_index if isinstance(topic_index, int) else int(topic_index[row])
        if why == kernels.BAD_TOPIC:
            return InternalError(
                "a row was given a topic that the partitioner does not have",
                {"row": row, "topic_index": topic},
            )
        if why == kernels.BAD_PARTITION and explicit is not None:
            return InvalidRow(
                "a row names a partition that its topic does not have; none of these rows was written. Give an existing one in the "
                "column partition, or leave the column out: the key decides then",
                {
                    "row": row,
                    "partition": explicit[row].as_py(),
                    "partitions": int(self._topics[topic, kernels.PARTITIONS]),
                    "topic_index": topic,
                },
            )
        return InvalidRow("an Arrow column's offsets point outside its data", {"row": row})


def encode_topics(topics: pa.Array) -> tuple[Int32s, list[str]]:
    """Names of topics per row (string or dictionary of strings) as (index into the names per row, names).

    A null name has index -1. The names are few: the caller looks each up once and maps the indexes with `numpy.take`.
    """
    encoded = topics if pa.types.is_dictionary(topics.type) else pc.dictionary_encode(topics)
    codes = pc.fill_null(encoded.indices.cast(pa.int32()), -1).to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.cast(pa.string()).to_pylist()


def murmur2_of(keys: pa.Array) -> Int32s:
    """Java's `Utils.murmur2` of every key, signed as in Java; 0 for a null key."""
    rows = RecordColumns(keys, None, None, None, len(keys)).in_memory
    target = np.empty(len(keys), dtype=np.int32)
    jit.expect(len(keys))
    row, why = kernels.hash_keys(rows.at, len(keys), address(target))
    if why != kernels.DONE:
        raise InvalidRow("an Arrow column's offsets point outside its data", {"row": row})
    return target
