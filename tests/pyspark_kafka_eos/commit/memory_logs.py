"""The requests about logs, answered from memory: Produce, Fetch, ListOffsets, DescribeProducers.

Owns: the topics of `memory_kafka`.
Does not know: metadata, coordinators but for whether a producer may write.
"""

from __future__ import annotations

import copy
from typing import Any
from uuid import UUID

from embedded_kafka.wire.server import Message, response_class
from kafka_core.protocol.error_codes import Code
from kafka_core.protocol.messages import FETCH_BY_ID
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.records import scan
from tests.pyspark_kafka_eos.commit.memory_log import MemoryLog
from tests.pyspark_kafka_eos.commit.memory_transactions import MemoryTransactions

NODE, CUT_OFF = 1, 2
"""The broker, and one that was cut off from the controller: it answers for what it led, as of then."""


class MemoryLogs:
    """Topics and their partitions."""

    def __init__(self, transactions: MemoryTransactions) -> None:
        self.transactions = transactions
        self.topics: dict[str, list[MemoryLog]] = {}
        self.ids: dict[str, UUID] = {}
        self.stale: dict[TopicPartition, MemoryLog] = {}
        """What the broker CUT_OFF leads, for all that it knows: as those logs were."""
        self.lacking: set[str] = set()
        """Topics that the broker CUT_OFF does not have: it has just started."""
        self.asked_of = NODE

    def log(self, where: TopicPartition) -> MemoryLog:
        return self.topics[where.topic][where.partition]

    def cut_off(self, where: TopicPartition) -> None:
        """A new leader has everything, and the one that it replaces goes on to answer at another broker, as of now."""
        self.stale[where] = copy.deepcopy(self.log(where))
        self.log(where).epoch += 1

    def _find(self, topic: str, number: int) -> MemoryLog | None:
        logs = self.topics.get(topic, [])
        return logs[number] if number < len(logs) else None

    def _leading(self, topic: str, number: int) -> MemoryLog | None:
        """The log as whoever answers as its leader has it."""
        present = self._find(topic, number)
        return self.stale.get(TopicPartition(topic, number), present) if self.asked_of == CUT_OFF else present

    def _produce(self, asked: Message) -> dict[str, Any]:
        topic_class = response_class(asked.API_KEY).TopicProduceResponse
        part_class = topic_class.PartitionProduceResponse
        responses = []
        for topic in asked.topic_data:
            parts = []
            for part in topic.partition_data:
                code, offset = self._append(
                    asked, TopicPartition(topic.name, part.index), bytes(part.records)
                )
                parts.append(part_class(index=part.index, error_code=int(code), base_offset=offset))
            responses.append(topic_class(name=topic.name, partition_responses=parts))
        return {"responses": responses}

    def _append(self, asked: Message, where: TopicPartition, batch: bytes) -> tuple[Code, int]:
        log = self._find(where.topic, where.partition)
        if log is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION, -1
        ((info, _),) = scan(batch)
        adds = asked.API_VERSION >= 12
        if info.transactional and not log.has_open(info):
            identity = ProducerIdentity(info.producer_id, info.producer_epoch)
            code = self.transactions.ensure(asked.transactional_id, identity, where, add=adds)
            if code is not Code.NONE:
                return code, -1
        return log.append(batch, now_ms=self.transactions.now_ms, transaction_version=2 if adds else 0)

    def _fetch(self, asked: Message) -> dict[str, Any]:
        topic_class = response_class(asked.API_KEY).FetchableTopicResponse
        by_id = asked.API_VERSION >= FETCH_BY_ID
        names = {each: name for name, each in self.ids.items()}
        responses = [
            topic_class(
                topic="" if by_id else topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    topic_class.PartitionData(
                        partition_index=part.partition,
                        **self._fetched(
                            names.get(topic.topic_id) if by_id else topic.topic,
                            part,
                            committed=asked.isolation_level == 1,
                        ),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return {"error_code": 0, "responses": responses}

    def _fetched(self, topic: str | None, part: Message, *, committed: bool) -> dict[str, Any]:
        if topic is None:
            return {"error_code": int(Code.UNKNOWN_TOPIC_ID), "records": b""}
        log = self._leading(topic, part.partition)
        if log is None:
            return {"error_code": int(Code.UNKNOWN_TOPIC_OR_PARTITION), "records": b""}
        refused = _refused(log, part.current_leader_epoch)
        if refused:
            return {"error_code": int(refused), "records": b""}
        data = log.read(part.fetch_offset, part.partition_max_bytes, committed=committed)
        if data is None:
            return {
                "error_code": int(Code.OFFSET_OUT_OF_RANGE),
                "high_watermark": -1,
                "last_stable_offset": -1,
                "log_start_offset": -1,
                "records": b"",
            }
        return {
            "error_code": 0,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable_offset,
            "log_start_offset": log.start,
            "records": data,
        }

    def _list_offsets(self, asked: Message) -> dict[str, Any]:
        topic_class = response_class(asked.API_KEY).ListOffsetsTopicResponse
        part_class = topic_class.ListOffsetsPartitionResponse
        topics = []
        for topic in asked.topics:
            parts = []
            for part in topic.partitions:
                log = self._leading(topic.name, part.partition_index)
                code, offset = Code.UNKNOWN_TOPIC_OR_PARTITION, -1
                if log is not None:
                    last = log.last_stable_offset if asked.isolation_level == 1 else log.end
                    code, offset = Code.NONE, last if part.timestamp == -1 else log.start
                    if part.timestamp >= 0:
                        offset = log.since(part.timestamp, last)
                    if part.timestamp == -1 and log.lags is not None:
                        code = Code.OFFSET_NOT_AVAILABLE
                    code = _refused(log, part.current_leader_epoch) or code
                parts.append(
                    part_class(
                        partition_index=part.partition_index,
                        error_code=int(code),
                        offset=offset,
                        timestamp=-1,
                        leader_epoch=-1 if log is None else log.epoch,
                    )
                )
            topics.append(topic_class(name=topic.name, partitions=parts))
        return {"topics": topics}

    def _describe_producers(self, asked: Message) -> dict[str, Any]:
        topic_class = response_class(asked.API_KEY).TopicResponse
        return {
            "topics": [
                topic_class(
                    name=topic.name,
                    partitions=[
                        self._producers(topic_class.PartitionResponse, topic.name, number)
                        for number in topic.partition_indexes
                    ],
                )
                for topic in asked.topics
            ]
        }

    def _producers(self, part_class: Any, topic: str, number: int) -> Message:
        log = self._leading(topic, number)
        if log is None:
            code = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
            return part_class(partition_index=number, error_code=code, active_producers=[])
        states = [
            part_class.ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp_ms,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=-1 if state.open_since is None else state.open_since,
            )
            for state in log.producers.values()
        ]
        return part_class(partition_index=number, error_code=0, active_producers=states)


def _refused(log: MemoryLog, epoch: int) -> Code | None:
    """The code for a client that knows another leader (KIP-320)."""
    if 0 <= epoch < log.epoch:
        return Code.FENCED_LEADER_EPOCH
    return Code.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else None
