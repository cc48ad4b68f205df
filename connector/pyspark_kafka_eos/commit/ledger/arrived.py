"""Whether what was just written to the ledger is there, and stays: an acknowledgement alone does not say so.

Owns: these looks, at the leader's state, and at its log where that does not tell.
Does not know: what was written; what follows.

A broker takes a batch without a transaction from anybody who may write to the topic, under whatever producer id and
epoch it has. A batch of this pipeline with that epoch and the same sequence is a duplicate to it then: it is
acknowledged, and not appended.

An end that the coordinator has answered may lack its marker in the partition. The next marker of that producer ends
what was written, too, and where it aborts, compaction removes the record.
"""

from __future__ import annotations

from kafka_core import runtime
from kafka_core.errors import AbortableError
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.requests.producer_states import ProducerState, describe_producers
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import SealedPartition
from pyspark_kafka_eos.records import scan

_MARKED_WITHIN_S = 5.0
"""A marker follows its answer within milliseconds, within seconds where its coordinator moves. Half would write notes
again beside such a move; double keeps a start waiting that could have written its note again.
"""


def require_arrived(producer: Producer, topic: str) -> None:
    """AbortableError where the leaders of the topic do not have what the producer's open transaction wrote. Returns at
    once where the right to look (READ) is missing.
    """
    written = [part for part in producer.written_partitions() if part.topic == topic]
    states = describe_producers(producer.cluster, [TopicPartition(part.topic, part.partition) for part in written])
    if states is None:
        return
    for part in written:
        where = TopicPartition(part.topic, part.partition)
        if not _is_there(producer, part, states.get(where, {}).get(producer.identity.producer_id)):
            raise AbortableError(
                f"{where} has acknowledged what {producer.transactional_id!r} wrote at offset {part.first_offset}, and does not have it: "
                f"somebody else has written there under {producer.identity}. No record of this try is visible, and the batch is retried; "
                f"if it repeats, find out who has the right to write to topic {topic!r}",
                {"partition": str(where), "producer": str(producer.identity), "offset": part.first_offset},
            )


def has_marker(producer: Producer, part: SealedPartition) -> bool:
    """Whether the committed transaction that wrote this has its marker in that partition; waits for it, 5 s. True where
    the right to look (READ) is missing.
    """
    where = TopicPartition(part.topic, part.partition)
    deadline = runtime.monotonic() + _MARKED_WITHIN_S
    while True:
        states = describe_producers(producer.cluster, [where])
        state = states.get(where, {}).get(producer.identity.producer_id) if states is not None else None
        if state is None or not _is_open(state, part):
            return True
        if runtime.monotonic() > deadline:
            return False
        producer.cluster.pause()


def _is_open(state: ProducerState, part: SealedPartition) -> bool:
    # Another process of the pipeline may have begun the next transaction of the id, behind this one.
    return 0 <= state.open_from <= part.first_offset


def _is_there(producer: Producer, part: SealedPartition, state: ProducerState | None) -> bool:
    if state is None or (state.epoch, state.last_sequence) != (producer.identity.epoch, part.last_sequence):
        return False
    # Some duplicates are acknowledged without an offset.
    if part.first_offset < 0 or state.open_from in (-1, part.first_offset):
        return state.open_from >= 0
    # An earlier transaction of the producer has no marker there yet.
    where = TopicPartition(part.topic, part.partition)
    # It is acknowledged, so the log ends behind it.
    read = read_raw(producer.cluster, where, part.first_offset, until=part.first_offset + 1)
    first = next((info for info, _ in scan(bytes(read.records)) if info.last_offset >= part.first_offset), None)
    if first is None or not first.transactional:
        return False
    return ProducerIdentity(first.producer_id, first.producer_epoch) == producer.identity


__all__ = ["has_marker", "require_arrived"]
