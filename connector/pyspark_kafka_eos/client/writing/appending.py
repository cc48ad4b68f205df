"""One record batch produced to a partition with acks=all, without a transaction.

Owns: sending to the leader until it acknowledges, and to the new leader where leadership moves.
Does not know: the content of the records.
Invariants:
- `append` returns only when the batch is acknowledged.
- After an error the batch may or may not be in the log. After a lost answer it may be there twice. Readers
  must tolerate both.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError, ProtocolViolation
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, name_of
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from pyspark_kafka_eos.client.asking import ask_leader
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Again, again_or_refuse
from pyspark_kafka_eos.client.wire.produce import produce_request
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.client.writing.produce_refusals import wrong_clock
from pyspark_kafka_eos.records import BATCH_OVERHEAD_BYTES, RecordColumns, Section, SectionWriter, frame


def append(
    cluster: Cluster,
    where: TopicPartition,
    batch: memoryview,
    *,
    what: str,
    grant: str,
    deadline_ms: float | None = None,
) -> None:
    """Append a finished batch. Raises BrokerUnavailable where no acknowledgement arrives; the batch may then
    be in the log or not.

    `what` names the record, `grant` the right that is missing where the topic refuses; both go into messages.
    """
    cluster.topic(where.topic)
    budget = cluster.budget(deadline_ms)

    def build(versions: Versions) -> m.Message:
        sent: list[tuple[str, int, bytes | bytearray | memoryview]] = [(where.topic, where.partition, batch)]
        version = versions.of(m.ProduceRequest, NO_TRANSACTION)
        return produce_request(version, None, cluster.settings.request_timeout_ms, sent)

    def judge(answer: m.Message) -> Again | None:
        code = answer.responses[0].partition_responses[0].error_code
        return again_or_refuse(m.ProduceRequest.API_KEY, code, refused)

    def refused(action: Action, code: int) -> ExactlyOnceError:
        if action is Action.AUTHORIZE:
            return AuthorizationFailed(
                f"{where} answered {name_of(code)}; {grant}", {"partition": str(where), "code": name_of(code)}
            )
        remedy = ""
        if code == Code.MESSAGE_TOO_LARGE:
            remedy = f": it is larger than the topic's max.message.bytes; raise that setting of {where.topic!r}"
        if code == Code.INVALID_TIMESTAMP:
            return wrong_clock(where, what, None, "")
        return ProtocolViolation(
            f"{where} answered {name_of(code)} to {what}{remedy}",
            {"partition": str(where), "size_bytes": len(batch)},
        )

    def late(last: Again) -> None:
        raise BrokerUnavailable(
            f"{what} was not acknowledged by {where} within the time allowed (last: {last})",
            {"partition": str(where), "timeout_ms": budget.total_ms},
        )

    ask_leader(cluster, where, lambda: build, judge, deadline_ms=budget.left_ms, late=late)


def append_record(
    cluster: Cluster, where: TopicPartition, key: bytes, value: bytes | None, *, what: str, grant: str
) -> None:
    """Append one record without a transaction; see `append` for what an error leaves behind."""
    batch = lone_batch(key, value)
    append(cluster, where, batch, what=what, grant=grant)


def lone_batch(key: bytes, value: bytes | None) -> memoryview:
    """A batch of one record, compressed, of no producer."""
    return frame(
        one_record(key, value),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        transactional=False,
        compression="gzip",
    )


def one_record(key: bytes, value: bytes | None) -> Section:
    """A section of one record, stamped now; without value it is a tombstone."""
    columns = RecordColumns(one_value(key), one_value(value), None, None, num_rows=1)
    limit = len(key) + len(value or b"") + 64
    writer = SectionWriter(1, limit + BATCH_OVERHEAD_BYTES, explicit_timestamps=False, digest_seeds=None)
    sections = list(writer.append(columns, np.zeros(1, dtype=np.int32), int(runtime.time() * 1000)))
    sections.extend(writer.flush())
    (section,) = sections
    return section


def one_value(value: bytes | None) -> pa.Array:
    """A binary column of one row.

    `pa.array` imports pandas for any list, where it is installed: 20 MB and 0.2 s of CPU in each process that plans or
    commits.
    """
    if value is None:
        return pa.nulls(1, pa.binary())
    ends = np.array([0, len(value)], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])
