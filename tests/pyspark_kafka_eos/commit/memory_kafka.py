"""A Kafka cluster of one broker in memory: answers the client's real requests with real answers, from one model.

Owns: topics, groups' offsets, what is answered to which request, and faults at requests.
Does not know: sockets. That it answers as the embedded broker does is proved by `test_memory_kafka`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.wire.server import (
    REQUESTS,
    Message,
    api_name,
    parse_header,
    parse_request,
    response_class,
)
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition, by_topic
from tests.pyspark_kafka_eos.commit.memory_log import MemoryLog
from tests.pyspark_kafka_eos.commit.memory_logs import CUT_OFF, NODE, MemoryLogs
from tests.pyspark_kafka_eos.commit.memory_transactions import MarkerFault, MemoryTransactions

OFFSETS = TopicPartition("__consumer_offsets", 0)

_CAPITAL = re.compile(r"(?<!^)([A-Z])")

Matches = Callable[[Message], bool]


@dataclass
class Fault:
    """What happens to requests of an API. `fired` counts how often it did."""

    api: str
    action: str | Code | Callable[[], None]
    times: int
    skip: int
    matches: Matches
    fired: int = 0


class MemoryKafka(MemoryLogs):
    """The cluster. `transaction_version`: as the feature of that name, 1 or 2."""

    def __init__(self, transaction_version: int = 2) -> None:
        super().__init__(MemoryTransactions(transaction_version, self._write_marker))
        self.settings: dict[str, str] = {}
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.asked: Counter[str] = Counter()
        self._pending: dict[int, list[tuple[str, TopicPartition, int]]] = {}
        self._faults: list[Fault] = []
        self._on_pause: list[Callable[[], None]] = []
        self._made = 0
        self.brokers = [NODE]
        """Those that clients know; the first one is asked what any can answer."""
        self.fresh: set[object] = set()
        """Those of them that have just started and have no topics yet."""
        self._asked_fresh = False

    # ---- for tests

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = [MemoryLog() for _ in range(partitions)]
        self._made += 1
        self.ids[topic] = UUID(int=self._made)

    def delete(self, topic: str) -> None:
        del self.topics[topic], self.ids[topic]

    def fault(
        self,
        api: str,
        action: str | Code | Callable[[], None],
        *,
        times: int = 1,
        skip: int = 0,
        matches: Matches = lambda _: True,
    ) -> Fault:
        """`action`: "drop-request" (not done, no answer), "drop-answer" (done, no answer), a code (not done), or something to
        happen before the request is done."""
        assert api in {api_name(key) for key in REQUESTS}
        fault = Fault(api, action, times, skip, matches)
        self._faults.append(fault)
        return fault

    def forget_marker(
        self, where: TopicPartition, name: str | None = None, *, late: bool = False
    ) -> MarkerFault:
        """The next marker (of this id) for this partition is never written, or `late`: with `transactions.release_markers`."""
        fault = MarkerFault(where, name, late)
        self.transactions.faults.append(fault)
        return fault

    def abort_hanging(self, where: TopicPartition, identity: ProducerIdentity) -> None:
        """What `kafka-transactions.sh abort` does: WriteTxnMarkers, without the coordinator."""
        self._write_marker(where, identity, False)

    def clear_faults(self) -> None:
        self._faults.clear()
        self.transactions.faults.clear()

    def at_pause(self, action: Callable[[], None]) -> None:
        """Have something happen the next time that a client waits before it asks again."""
        self._on_pause.append(action)

    def paused(self) -> None:
        for action in self._on_pause[:1]:
            self._on_pause.remove(action)
            action()

    # ---- requests

    def answer(self, request: Message, node: object = NODE) -> Message | ExactlyOnceError:
        """What a client gets: an answer, or an error where the connection is lost."""
        request.with_header(correlation_id=1, client_id="test")
        frame = memoryview(request.encode(header=True, framed=True))[4:]
        asked = parse_request(parse_header(frame), frame)
        name = api_name(asked.API_KEY)
        self.asked[name] += 1
        self.asked_of = CUT_OFF if node == CUT_OFF else NODE
        self._asked_fresh = node in self.fresh
        fault = self._fault_for(name, asked)
        action = None if fault is None else fault.action
        if action == "drop-request":
            return BrokerUnavailable(f"the request {name} was dropped by a test")
        if isinstance(action, Code):
            return refusal(asked, action)
        if callable(action):
            action()
        fields = getattr(self, "_" + _CAPITAL.sub(r"_\1", name).lower())(asked)
        if action == "drop-answer":
            return BrokerUnavailable(f"the answer to {name} was dropped by a test")
        return response_class(asked.API_KEY)(version=asked.API_VERSION, **fields)

    def _fault_for(self, name: str, asked: Message) -> Fault | None:
        for fault in self._faults:
            if fault.api != name or fault.fired >= fault.times or not fault.matches(asked):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.fired += 1
            return fault
        return None

    # ---- metadata

    def _metadata(self, asked: Message) -> dict[str, Any]:
        response = response_class(asked.API_KEY)
        names = list(self.topics) if asked.topics is None else [topic.name for topic in asked.topics]
        topics = []
        for name in names:
            lacks = self._asked_fresh or (self.asked_of == CUT_OFF and name in self.lacking)
            logs = None if lacks else self.topics.get(name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if logs is None else Code.NONE
            part = response.MetadataResponseTopic.MetadataResponsePartition
            parts = [
                part(
                    error_code=0,
                    partition_index=number,
                    leader_id=self._leader(name, number),
                    leader_epoch=self._epoch(name, number),
                )
                for number in range(len(logs or ()))
            ]
            topics.append(
                response.MetadataResponseTopic(
                    error_code=int(code), name=name, topic_id=self.ids.get(name), partitions=parts
                )
            )
        brokers = [
            response.MetadataResponseBroker(node_id=node, host="memory", port=1, rack=None)
            for node in self.brokers
        ]
        return {"brokers": brokers, "cluster_id": "memory", "controller_id": NODE, "topics": topics}

    def _leader(self, topic: str, number: int) -> int:
        return self.asked_of if TopicPartition(topic, number) in self.stale else NODE

    def _epoch(self, topic: str, number: int) -> int:
        log = self._leading(topic, number)
        return -1 if log is None else log.epoch

    def _find_coordinator(self, asked: Message) -> dict[str, Any]:
        found = response_class(asked.API_KEY).Coordinator
        return {
            "coordinators": [
                found(key=key, node_id=NODE, host="memory", port=1, error_code=0)
                for key in asked.coordinator_keys
            ]
        }

    def _describe_configs(self, asked: Message) -> dict[str, Any]:
        result = response_class(asked.API_KEY).DescribeConfigsResult
        results = []
        for resource in asked.resources:
            configs = [
                result.DescribeConfigsResourceResult(name=name, value=self.settings[name])
                for name in resource.configuration_keys
                if name in self.settings
            ]
            kind, name = resource.resource_type, resource.resource_name
            results.append(result(error_code=0, resource_type=kind, resource_name=name, configs=configs))
        return {"results": results}

    def _create_topics(self, asked: Message) -> dict[str, Any]:
        for topic in asked.topics:
            self.create(topic.name, topic.num_partitions)
        result = response_class(asked.API_KEY).CreatableTopicResult
        return {"topics": [result(name=topic.name, error_code=0) for topic in asked.topics]}

    # ---- transactions

    def _init_producer_id(self, asked: Message) -> dict[str, Any]:
        expected = (
            None if asked.producer_id < 0 else ProducerIdentity(asked.producer_id, asked.producer_epoch)
        )
        return _identity(
            self.transactions.init(asked.transactional_id, asked.transaction_timeout_ms, expected)
        )

    def _add_partitions_to_txn(self, asked: Message) -> dict[str, Any]:
        where = [
            TopicPartition(topic.name, number)
            for topic in asked.v3_and_below_topics
            for number in topic.partitions
        ]
        identity = ProducerIdentity(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
        code = self.transactions.add(asked.v3_and_below_transactional_id, identity, where, 0)
        topic_class = response_class(asked.API_KEY).AddPartitionsToTxnTopicResult
        part = topic_class.AddPartitionsToTxnPartitionResult
        return {
            "results_by_topic_v3_and_below": [
                topic_class(
                    name=name,
                    results_by_partition=[
                        part(partition_index=number, partition_error_code=int(code)) for number in numbers
                    ],
                )
                for name, numbers in by_topic(where)
            ]
        }

    def _add_offsets_to_txn(self, asked: Message) -> dict[str, Any]:
        identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
        return {"error_code": int(self.transactions.add(asked.transactional_id, identity, [OFFSETS], 0))}

    def _txn_offset_commit(self, asked: Message) -> dict[str, Any]:
        identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
        name, adds = asked.transactional_id, asked.API_VERSION >= 5
        code = self.transactions.ensure(name, identity, OFFSETS, add=adds)
        offsets = [
            (asked.group_id, TopicPartition(topic.name, part.partition_index), part.committed_offset)
            for topic in asked.topics
            for part in topic.partitions
        ]
        if code is Code.NONE:
            self._pending.setdefault(identity.producer_id, []).extend(offsets)
        topic_class = response_class(asked.API_KEY).TxnOffsetCommitResponseTopic
        part_class = topic_class.TxnOffsetCommitResponsePartition
        return {
            "topics": [
                topic_class(
                    name=name,
                    partitions=[part_class(partition_index=each, error_code=int(code)) for each in numbers],
                )
                for name, numbers in by_topic(where for _, where, _ in offsets)
            ]
        }

    def _offset_fetch(self, asked: Message) -> dict[str, Any]:
        group_class = response_class(asked.API_KEY).OffsetFetchResponseGroup
        topic_class = group_class.OffsetFetchResponseTopics
        groups = []
        for group in asked.groups:
            known = self.committed.get(group.group_id, {})
            pending = {
                where
                for offsets in self._pending.values()
                for name, where, _ in offsets
                if name == group.group_id and asked.require_stable
            }
            # Without topics Kafka lists what is committed, not what is only pending.
            wanted = by_topic(known)
            if group.topics is not None:
                wanted = [(topic.name, topic.partition_indexes) for topic in group.topics]
            topics = [
                topic_class(
                    name=name,
                    partitions=[
                        topic_class.OffsetFetchResponsePartitions(
                            partition_index=number,
                            committed_offset=known.get(TopicPartition(name, number), -1),
                            error_code=int(Code.UNSTABLE_OFFSET_COMMIT)
                            if TopicPartition(name, number) in pending
                            else 0,
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in wanted
            ]
            groups.append(group_class(group_id=group.group_id, topics=topics, error_code=0))
        return {"groups": groups}

    def _end_txn(self, asked: Message) -> dict[str, Any]:
        identity = ProducerIdentity(asked.producer_id, asked.producer_epoch)
        bumps = asked.API_VERSION >= 5
        answer = self.transactions.end(
            asked.transactional_id, identity, commit=asked.committed, version=2 if bumps else 0
        )
        fields = _identity(answer)
        return fields if bumps else {"error_code": fields["error_code"]}

    def _describe_transactions(self, asked: Message) -> dict[str, Any]:
        state = response_class(asked.API_KEY).TransactionState
        states = []
        for name in asked.transactional_ids:
            entry = self.transactions.entry(name)
            if entry is None:
                code = int(Code.TRANSACTIONAL_ID_NOT_FOUND)
                states.append(state(error_code=code, transactional_id=name, transaction_state="", topics=[]))
                continue
            states.append(
                state(
                    error_code=0,
                    transactional_id=name,
                    transaction_state=entry.state.kafka_name,
                    transaction_timeout_ms=entry.timeout_ms,
                    transaction_start_time_ms=entry.start_ms,
                    producer_id=entry.producer_id,
                    producer_epoch=entry.epoch,
                    topics=[
                        state.TopicData(topic=topic, partitions=numbers)
                        for topic, numbers in by_topic(entry.partitions)
                    ],
                )
            )
        return {"transaction_states": states}

    def _list_transactions(self, asked: Message) -> dict[str, Any]:
        state = response_class(asked.API_KEY).TransactionState
        return {
            "error_code": 0,
            "transaction_states": [
                state(transactional_id=name, producer_id=entry.producer_id, transaction_state=kafka_name)
                for name, entry in self.transactions.listing().items()
                for kafka_name in (entry.state.kafka_name,)
                if not asked.state_filters or kafka_name in asked.state_filters
            ],
        }

    def _write_marker(self, where: TopicPartition, identity: ProducerIdentity, commit: bool) -> None:
        if where == OFFSETS:
            for group, partition, offset in self._pending.pop(identity.producer_id, []):
                if commit:
                    self.committed.setdefault(group, {})[partition] = offset
        elif where.topic in self.topics:
            now_ms = self.transactions.now_ms
            self.log(where).mark(identity.producer_id, identity.epoch, commit=commit, now_ms=now_ms)


def _identity(answer: ProducerIdentity | Code) -> dict[str, Any]:
    if isinstance(answer, Code):
        return {"error_code": int(answer), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": answer.producer_id, "producer_epoch": answer.epoch}
