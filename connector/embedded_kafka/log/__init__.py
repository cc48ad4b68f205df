"""The log of one partition: Kafka's files, appends to them and reads from them.

Owns: segments, indexes, producers' state, recovery.
Does not know: topics, requests, coordinators.
"""

from embedded_kafka.log.partition_log import Fork, PartitionLog
from embedded_kafka.log.records import (
    BatchHeader,
    InternalRecord,
    claimed_header,
    decode_batch,
    encode_batch,
    parse_header,
)
from embedded_kafka.log.validation import only_batch
from embedded_kafka.log.values import ActiveProducer, Appended, ReadResult, ScannedBatch

__all__ = [
    "ActiveProducer",
    "Appended",
    "BatchHeader",
    "Fork",
    "InternalRecord",
    "PartitionLog",
    "ReadResult",
    "ScannedBatch",
    "claimed_header",
    "decode_batch",
    "encode_batch",
    "only_batch",
    "parse_header",
]
