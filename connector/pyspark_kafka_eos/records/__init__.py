"""Arrow columns to Kafka record batches v2 and back, without any Python code per record.

`partitioner` gives each row its partition, `sections` packs rows and frames batches, `batch` reads them,
`visibility` decides which of them a reader may see.
"""

from pyspark_kafka_eos.records.batch import (
    MAX_OWN_BYTES,
    Batch,
    BatchInfo,
    ControlMarker,
    DecodedBatch,
    MarkerKind,
    control_marker,
    decode,
    decode_chunks,
    decode_many,
    decode_own,
    digest_of,
    scan,
)
from pyspark_kafka_eos.records.columns import HEADERS_TYPE, RecordColumns
from pyspark_kafka_eos.records.local_times import instants, zone_of
from pyspark_kafka_eos.records.partitioner import Partitioner, encode_topics, murmur2_of
from pyspark_kafka_eos.records.sections import (
    BATCH_OVERHEAD_BYTES,
    Packed,
    Section,
    SectionWriter,
    frame,
    pack,
    stamp,
    topic_seed,
)
from pyspark_kafka_eos.records.times import microseconds
from pyspark_kafka_eos.records.visibility import Seen, see

__all__ = [
    "BATCH_OVERHEAD_BYTES",
    "HEADERS_TYPE",
    "MAX_OWN_BYTES",
    "Batch",
    "BatchInfo",
    "ControlMarker",
    "DecodedBatch",
    "MarkerKind",
    "Packed",
    "Partitioner",
    "RecordColumns",
    "Section",
    "SectionWriter",
    "Seen",
    "control_marker",
    "decode",
    "decode_chunks",
    "decode_many",
    "decode_own",
    "digest_of",
    "encode_topics",
    "frame",
    "instants",
    "microseconds",
    "murmur2_of",
    "pack",
    "scan",
    "see",
    "stamp",
    "topic_seed",
    "zone_of",
]
