"""The answer to a request that is refused as a whole, for every API and version."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kafka.apis import HANDLERS
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.wire.server import (
    REQUESTS,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    Message,
    OffsetCommitRequest,
    ProduceRequest,
    frame_of,
    response_class,
)
from kafka_core.protocol.error_codes import Code


def codes_in(answer: Any) -> list[int]:
    found = []
    for name in type(answer)._struct.fields if hasattr(type(answer), "_struct") else []:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        for item in value if isinstance(value, list) else []:
            found += codes_in(item)
    return found


def test_a_refused_produce_names_every_partition_that_was_to_be_written() -> None:
    data = ProduceRequest.TopicProduceData
    topics = [
        data(
            name=name,
            partition_data=[data.PartitionProduceData(index=index, records=b"") for index in (2, 5)],
        )
        for name in ("a", "b")
    ]
    answer = refusal(ProduceRequest(version=9, acks=-1, topic_data=topics), Code.NOT_LEADER_OR_FOLLOWER)

    assert [
        (topic.name, part.index, part.error_code) for topic in answer.responses for part in topic.partition_responses
    ] == [("a", 2, 6), ("a", 5, 6), ("b", 2, 6), ("b", 5, 6)]


def test_a_refused_offset_commit_mirrors_its_partitions() -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition(partition_index=4, committed_offset=1)
    request = OffsetCommitRequest(version=8, group_id="g", topics=[topic(name="t", partitions=[part])])
    answer = refusal(request, Code.NOT_COORDINATOR)

    assert [(t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions] == [("t", 4, 16)]


def test_a_refused_addition_to_a_transaction_mirrors_its_partitions() -> None:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0, 4])
    request = AddPartitionsToTxnRequest(version=3, v3_and_below_topics=[topic])
    answer = refusal(request, Code.TOPIC_AUTHORIZATION_FAILED)

    assert [
        (t.name, p.partition_index, p.partition_error_code)
        for t in answer.results_by_topic_v3_and_below
        for p in t.results_by_partition
    ] == [("t", 0, 29), ("t", 4, 29)]


def test_a_refused_list_of_plain_ids_names_each_of_them() -> None:
    answer = refusal(
        DescribeTransactionsRequest(version=0, transactional_ids=["x", "y"]),
        Code.COORDINATOR_LOAD_IN_PROGRESS,
    )

    assert [(state.transactional_id, state.error_code) for state in answer.transaction_states] == [
        ("x", 14),
        ("y", 14),
    ]


def test_an_answer_with_one_place_for_an_error_has_it_there() -> None:
    assert refusal(FetchRequest(version=12, topics=[]), Code.UNKNOWN_SERVER_ERROR).error_code == -1


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_a_refusal_of_every_api_and_version_can_be_sent(api_key: int) -> None:
    lowest, highest = HANDLERS[api_key].VERSIONS
    for version in range(lowest, highest + 1):
        request: Message = REQUESTS[api_key](version=version)
        answer = refusal(request, Code.UNKNOWN_SERVER_ERROR)
        frame = frame_of(answer, 1)
        read = response_class(api_key).decode(bytes(frame[4:]), version=version, header=True)
        assert read is not None
