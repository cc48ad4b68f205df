"""The log of one partition: Kafka's files, appends to them and reads from them.

Owns: segments, indexes, producers' state, recovery.
Does not know: topics, requests, coordinators.
"""

from connector.broker.log.partition_log import PartitionLog
from connector.broker.log.records import (
    BatchHeader,
    Record,
    claimed_header,
    decode_batch,
    encode_batch,
    parse_header,
)
from connector.broker.log.validation import only_batch
from connector.broker.log.values import ActiveProducer, Appended, ReadResult, ScannedBatch

__all__ = [
    "ActiveProducer",
    "Appended",
    "BatchHeader",
    "PartitionLog",
    "ReadResult",
    "Record",
    "ScannedBatch",
    "claimed_header",
    "decode_batch",
    "encode_batch",
    "only_batch",
    "parse_header",
]
