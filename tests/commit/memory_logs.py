"""The requests about logs, answered from memory: Produce, Fetch, ListOffsets, DescribeProducers.

Owns: the topics of `memory_kafka`.
Does not know: metadata, coordinators but for whether a producer may write.
"""

from __future__ import annotations

from typing import Any

from connector.model import ProducerIdentity, TopicPartition
from connector.protocol.error_codes import Code
from connector.protocol.server import Message, response_class
from connector.records import scan
from tests.commit.memory_log import MemoryLog
from tests.commit.memory_transactions import MemoryTransactions


class MemoryLogs:
    """Topics and their partitions."""

    def __init__(self, transactions: MemoryTransactions) -> None:
        self.transactions = transactions
        self.topics: dict[str, list[MemoryLog]] = {}

    def log(self, where: TopicPartition) -> MemoryLog:
        return self.topics[where.topic][where.partition]

    def _find(self, topic: str, number: int) -> MemoryLog | None:
        logs = self.topics.get(topic, [])
        return logs[number] if number < len(logs) else None

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
        responses = [
            topic_class(
                topic=topic.topic,
                partitions=[
                    topic_class.PartitionData(
                        partition_index=part.partition,
                        **self._fetched(topic.topic, part, committed=asked.isolation_level == 1),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return {"error_code": 0, "responses": responses}

    def _fetched(self, topic: str, part: Message, *, committed: bool) -> dict[str, Any]:
        log = self._find(topic, part.partition)
        if log is None:
            return {"error_code": int(Code.UNKNOWN_TOPIC_OR_PARTITION), "records": b""}
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
            "high_watermark": log.end,
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
                log = self._find(topic.name, part.partition_index)
                assert part.timestamp in (-1, -2), "times are not kept here"
                code, offset = Code.UNKNOWN_TOPIC_OR_PARTITION, -1
                if log is not None:
                    last = log.last_stable_offset if asked.isolation_level == 1 else log.end
                    code, offset = Code.NONE, last if part.timestamp == -1 else log.start
                parts.append(
                    part_class(
                        partition_index=part.partition_index,
                        error_code=int(code),
                        offset=offset,
                        timestamp=-1,
                        leader_epoch=0,
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
        log = self._find(topic, number)
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
