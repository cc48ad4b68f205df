"""Several brokers over one set of logs: who answers for a partition, an id or a group, and who refuses it how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.apis.api_versions import unsupported
from embedded_kafka.node import Node
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    Message,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    WriteTxnMarkersRequest,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.node_tools import ask, fetch, fetched, init, produce, produced, records, with_cluster

T = TopicPartition("t", 0)
ME = "me"


def leader(cluster: KafkaCluster, where: TopicPartition = T) -> Node:
    return cluster[cluster.shared.leaders.leader(where)]


def others(cluster: KafkaCluster, where: TopicPartition = T) -> list[Node]:
    return [node for node in cluster.nodes if node is not leader(cluster, where)]


def made(cluster: KafkaCluster, replicas: int = 3, configs: dict[str, str | None] | None = None) -> None:
    cluster.shared.topics.create("t", 1, configs, replication_factor=replicas)


def listed(offset: int = -1, *, replica_id: int = -1) -> Message:
    topic = ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=offset)
    topics = [topic(name="t", partitions=[part])]
    return ListOffsetsRequest(version=7, replica_id=replica_id, isolation_level=0, topics=topics)


def epochs() -> Message:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(version=4, topics=[topic(topic="t", partitions=[part])])


def producers() -> Message:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    return DescribeProducersRequest(version=0, topics=[topic])


def deleting() -> Message:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(version=2, topics=[topic(name="t", partitions=[part])], timeout_ms=1_000)


def marker() -> Message:
    each = WriteTxnMarkersRequest.WritableTxnMarker
    topic = each.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    one = each(producer_id=7, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0)
    return WriteTxnMarkersRequest(version=1, markers=[one])


def metadata(*topics: str, create: bool = False) -> Message:
    named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(version=8, topics=named, allow_auto_topic_creation=create)


def find(key: str, key_type: int) -> Message:
    return FindCoordinatorRequest(version=4, key_type=key_type, coordinator_keys=[key])


def partition(answer: Any) -> Any:
    (topic,) = answer.topics
    (part,) = topic.partitions
    return part


CODES: dict[str, tuple[Message | Callable[[], Message], Callable[[Any], int], Code, Code]] = {
    # name: request, code of its answer, what a follower answers, what a broker without the partition answers
    "Produce": (lambda: produce("t", records()), lambda answer: produced(answer)[0], Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER),
    "Fetch 10": (lambda: fetch("t", {0: 0}, version=10), lambda answer: fetched(answer)[0].error_code, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER),
    "Fetch 11": (lambda: fetch("t", {0: 0}), lambda answer: fetched(answer)[0].error_code, Code.NONE, Code.NOT_LEADER_OR_FOLLOWER),
    "ListOffsets": (listed, lambda answer: partition(answer).error_code, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER),
    "ListOffsets to debug": (lambda: listed(replica_id=-2), lambda answer: partition(answer).error_code, Code.NONE, Code.NOT_LEADER_OR_FOLLOWER),
    "OffsetForLeaderEpoch": (epochs, lambda answer: partition(answer).error_code, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER),
    "DescribeProducers": (producers, lambda answer: partition(answer).error_code, Code.NONE, Code.NOT_LEADER_OR_FOLLOWER),
    "DeleteRecords": (deleting, lambda answer: partition(answer).error_code, Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_LEADER_OR_FOLLOWER),
    "WriteTxnMarkers": (marker, lambda answer: answer.markers[0].topics[0].partitions[0].error_code, Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION),
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_a_broker_that_does_not_lead_a_partition_answers_as_kafkas(tmp_path: Path, name: str) -> None:
    made_request, code_of, following, without = CODES[name]
    assert callable(made_request)

    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster, replicas=2)
        replicas = cluster.shared.leaders.replicas(T)
        (outside,) = [node for node in cluster.nodes if node.parts.node_id not in replicas]
        assert code_of(await ask(cluster[replicas[0]], made_request())) == Code.NONE
        end = cluster.shared.topics.log(T).end_offset
        assert code_of(await ask(cluster[replicas[1]], made_request())) == following
        assert code_of(await ask(outside, made_request())) == without
        assert cluster.shared.topics.log(T).end_offset == end

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_refused_produce_names_the_leader(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        right = leader(cluster).parts
        answer = await ask(others(cluster)[0], produce("t", records(), version=10))
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (right.node_id, 0)
        assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(right.node_id, right.me.port)]

    with_cluster(tmp_path, scenario, brokers=3)


def test_every_broker_names_all_brokers_and_each_partitions_leader(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        cluster.shared.topics.create("wide", 6, replication_factor=2)
        seen = []
        for node in cluster.nodes:
            answer = await ask(node, metadata("wide"))
            assert [each.node_id for each in answer.brokers] == [0, 1, 2]
            assert len({each.port for each in answer.brokers}) == 3
            (topic,) = answer.topics
            seen.append([(part.leader_id, part.replica_nodes, part.isr_nodes) for part in topic.partitions])
            described = await ask(node, DescribeClusterRequest(version=1, endpoint_type=1))
            assert [each.broker_id for each in described.brokers] == [0, 1, 2]
            assert described.controller_id == answer.controller_id
        assert seen[0] == seen[1] == seen[2]
        assert sorted(led for led, _, _ in seen[0]) == [0, 0, 1, 1, 2, 2]
        assert all(replicas == isr and replicas[0] == led and len(replicas) == 2 for led, replicas, isr in seen[0])

    with_cluster(tmp_path, scenario, brokers=3)


def coordinating(cluster: KafkaCluster, topic: str, number: int) -> TopicPartition:
    cluster.shared.topics.ensure_internal(topic)
    return TopicPartition(topic, number)


def test_one_broker_coordinates_an_id_and_the_others_refuse_it(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        at = coordinating(cluster, TRANSACTIONS_TOPIC, cluster.nodes[0].parts.transactions.partition_for(ME))
        right = leader(cluster, at)
        for node in cluster.nodes:
            (found,) = (await ask(node, find(ME, 1))).coordinators
            assert (found.error_code, found.node_id) == (Code.NONE, right.parts.node_id)
        made_id = await ask(right, init(ME))
        assert made_id.error_code == Code.NONE
        for node in others(cluster, at):
            assert (await ask(node, init(ME))).error_code == Code.NOT_COORDINATOR
            described = await ask(node, DescribeTransactionsRequest(version=0, transactional_ids=[ME]))
            assert described.transaction_states[0].error_code == Code.NOT_COORDINATOR
            ending = EndTxnRequest(version=3, transactional_id=ME, producer_id=1, producer_epoch=0, committed=True)
            assert (await ask(node, ending)).error_code == Code.NOT_COORDINATOR
            everything = await ask(node, ListTransactionsRequest(version=0, state_filters=[], producer_id_filters=[]))
            assert everything.transaction_states == []
            # An id without a name needs no coordinator.
            nameless = init(ME)
            nameless.transactional_id = None
            assert (await ask(node, nameless)).error_code == Code.NONE

    with_cluster(tmp_path, scenario, brokers=3)


def test_one_broker_has_a_group_and_the_others_refuse_it(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        at = coordinating(cluster, OFFSETS_TOPIC, cluster.nodes[0].parts.groups.partition_for("g"))
        (found,) = (await ask(cluster.nodes[0], find("g", 0))).coordinators
        assert found.node_id == leader(cluster, at).parts.node_id
        for node in cluster.nodes:
            (group,) = (await ask(node, DescribeGroupsRequest(version=5, groups=["g"]))).groups
            assert group.error_code == (Code.NONE if node is leader(cluster, at) else Code.NOT_COORDINATOR)

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_coordinator_that_moves_takes_the_ids_state_along_from_the_log(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        at = coordinating(cluster, TRANSACTIONS_TOPIC, cluster.nodes[0].parts.transactions.partition_for(ME))
        before = leader(cluster, at)
        first = await ask(before, init(ME))
        cluster.shared.controller.elect(at)
        after = leader(cluster, at)
        assert after is not before
        assert (await ask(before, init(ME))).error_code == Code.NOT_COORDINATOR
        second = await ask(after, init(ME))
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_coordinator_whose_log_loses_its_end_goes_back_to_what_is_left(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        at = coordinating(cluster, TRANSACTIONS_TOPIC, cluster.nodes[0].parts.transactions.partition_for(ME))
        first = await ask(leader(cluster, at), init(ME))
        end = cluster.shared.topics.log(at).end_offset
        second = await ask(leader(cluster, at), init(ME))
        assert second.producer_epoch == first.producer_epoch + 1
        cluster.shared.controller.elect(at, lost_from=end)
        again = await ask(leader(cluster, at), init(ME))
        assert (again.producer_id, again.producer_epoch) == (second.producer_id, second.producer_epoch)

    with_cluster(tmp_path, scenario, brokers=3)


def test_the_ends_that_a_coordinator_decided_are_carried_out_by_the_next(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        at = coordinating(cluster, TRANSACTIONS_TOPIC, cluster.nodes[0].parts.transactions.partition_for(ME))
        before = leader(cluster, at)
        identity = await ask(before, init(ME))
        batch = records(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch, base_sequence=0, transactional=True)  # fmt: skip
        sent = produce("t", batch, version=12, transactional_id=ME)
        assert produced(await ask(leader(cluster), sent))[0] == Code.NONE
        cluster.shared.controller.elect(T, -1)
        ending = EndTxnRequest(
            version=5, transactional_id=ME, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch,
            committed=True,
        )  # fmt: skip
        assert (await ask(before, ending)).error_code == Code.NONE
        await asyncio.sleep(0)
        assert cluster.shared.topics.log(T).is_open(identity.producer_id) is not None, "nobody leads the partition"
        cluster.shared.controller.elect(at)
        cluster.shared.controller.elect(T)
        for _ in range(100):
            cluster.sweep()
            await asyncio.sleep(0)
        assert cluster.shared.topics.log(T).is_open(identity.producer_id) is None

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_killed_broker_is_led_for_by_another_and_named_no_more_until_it_is_back(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        gone = leader(cluster).parts.node_id
        await cluster.kill(gone)
        assert leader(cluster).parts.node_id != gone
        assert produced(await ask(leader(cluster), produce("t", records())))[0] == Code.NONE
        answer = await ask(leader(cluster), metadata("t"))
        assert gone not in [each.node_id for each in answer.brokers]
        part = answer.topics[0].partitions[0]
        assert (part.leader_epoch, gone in part.isr_nodes, part.offline_replicas) == (1, False, [gone])
        await cluster.revive(gone)
        answer = await ask(cluster[gone], metadata("t"))
        part = answer.topics[0].partitions[0]
        assert (part.leader_epoch, sorted(part.isr_nodes)) == (1, [0, 1, 2])

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_partition_with_one_replica_has_no_leader_while_its_broker_is_down(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster, replicas=1)
        gone = leader(cluster).parts.node_id
        await cluster.kill(gone)
        (node, _) = others(cluster) if cluster.shared.leaders.leader(T) >= 0 else [
            each for each in cluster.nodes if each.parts.node_id != gone
        ]  # fmt: skip
        part = (await ask(node, metadata("t"))).topics[0].partitions[0]
        assert (part.error_code, part.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)
        assert produced(await ask(node, produce("t", records())))[0] == Code.NOT_LEADER_OR_FOLLOWER
        await cluster.revive(gone)
        assert produced(await ask(cluster[gone], produce("t", records()))) == (Code.NONE, 0)

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_broker_is_missed_only_after_its_session_timeout(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        gone = leader(cluster).parts.node_id
        await cluster.kill(gone)
        assert cluster.shared.leaders.leader(T) == gone
        cluster.advance(9_000)
        assert cluster.shared.leaders.leader(T) != gone

    with_cluster(tmp_path, scenario, BrokerConfig(broker_session_timeout_ms=9_000), brokers=3)


def test_a_frozen_broker_answers_when_it_goes_on_and_as_the_cluster_is_then(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        frozen = leader(cluster)
        cluster.freeze(frozen.parts.node_id)
        asked = asyncio.ensure_future(ask(frozen, produce("t", records())))
        await asyncio.sleep(0)
        assert produced(await ask(leader(cluster), produce("t", records()))) == (Code.NONE, 0)
        assert not asked.done()
        cluster.thaw(frozen.parts.node_id)
        assert produced(await asked)[0] == Code.NOT_LEADER_OR_FOLLOWER
        assert cluster.shared.topics.log(T).end_offset == 1

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_broker_that_is_cut_off_goes_on_as_the_leader_that_it_was(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        old = leader(cluster)
        await ask(old, produce("t", records(3)))
        cluster.cut_off(old.parts.node_id)
        new = leader(cluster)
        assert new is not old
        assert produced(await ask(new, produce("t", records(2)))) == (Code.NONE, 3)
        # The old one has what was there, under its epoch, and names itself.
        assert partition(await ask(old, listed())).offset == 3
        assert partition(await ask(new, listed())).offset == 5
        part = (await ask(old, metadata("t"))).topics[0].partitions[0]
        assert (part.leader_id, part.leader_epoch) == (old.parts.node_id, 0)
        assert fetched(await ask(old, fetch("t", {0: 0})))[0].high_watermark == 3
        # What it appends is in no other replica.
        asked = produce("t", records())
        asked.timeout_ms = 1
        assert produced(await ask(old, asked))[0] == Code.REQUEST_TIMED_OUT
        # Its own log has that one, too.
        assert produced(await ask(old, produce("t", records(), acks=1))) == (Code.NONE, 4)
        assert cluster.shared.topics.log(T).end_offset == 5
        cluster.rejoin(old.parts.node_id)
        assert partition(await ask(old, listed())).error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert fetched(await ask(old, fetch("t", {0: 0})))[0].high_watermark == 5

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_broker_that_is_cut_off_checks_and_numbers_what_it_appends_alone_and_has_lost_it_when_it_is_back(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster)
        old = leader(cluster)

        async def sent(sequence: int, acks: int = 1, count: int = 2, node: Node = old) -> tuple[int, int]:
            data = records(count, producer_id=7, producer_epoch=0, base_sequence=sequence)
            asked = produce("t", data, acks=acks)
            asked.timeout_ms = 1
            return produced(await ask(node, asked))

        assert await sent(0) == (Code.NONE, 0)
        cluster.cut_off(old.parts.node_id)
        assert await sent(2) == (Code.NONE, 2)
        assert await sent(4) == (Code.NONE, 4)
        assert await sent(4) == (Code.NONE, 4), "a repetition is answered as the first time"
        assert await sent(9) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert produced(await ask(old, produce("t", bytes(80), acks=1)))[0] == Code.CORRUPT_MESSAGE
        assert await sent(6, acks=-1) == (Code.REQUEST_TIMED_OUT, -1)
        assert await sent(8) == (Code.NONE, 8), "what was never acknowledged has its place, too"
        # A consumer sees nothing of it: no other replica has it.
        assert fetched(await ask(old, fetch("t", {0: 0})))[0].high_watermark == 2
        assert partition(await ask(old, listed())).offset == 2

        cluster.rejoin(old.parts.node_id)
        assert cluster.shared.topics.log(T).end_offset == 2
        assert await sent(2, node=leader(cluster)) == (Code.NONE, 2)

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_coordinator_that_is_cut_off_describes_what_it_knew_and_decides_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        at = coordinating(cluster, TRANSACTIONS_TOPIC, cluster.nodes[0].parts.transactions.partition_for(ME))
        old = leader(cluster, at)
        first = await ask(old, init(ME))
        cluster.cut_off(old.parts.node_id)
        second = await ask(leader(cluster, at), init(ME))
        assert second.producer_epoch == first.producer_epoch + 1

        async def described(node: Node) -> int:
            answer = await ask(node, DescribeTransactionsRequest(version=0, transactional_ids=[ME]))
            return int(answer.transaction_states[0].producer_epoch)

        assert await described(old) == first.producer_epoch
        assert await described(leader(cluster, at)) == second.producer_epoch
        assert (await ask(old, init(ME))).error_code == Code.COORDINATOR_NOT_AVAILABLE
        (found,) = (await ask(old, find(ME, 1))).coordinators
        assert found.node_id == old.parts.node_id
        cluster.rejoin(old.parts.node_id)
        assert (await ask(old, init(ME))).error_code == Code.NOT_COORDINATOR

    with_cluster(tmp_path, scenario, brokers=3)


def test_too_few_replicas_in_sync_refuse_acks_all_and_nothing_is_written(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        made(cluster, configs={"min.insync.replicas": "2"})
        led = leader(cluster)
        cluster.shared.controller.set_in_sync(T, [led.parts.node_id])
        assert produced(await ask(led, produce("t", records())))[0] == Code.NOT_ENOUGH_REPLICAS
        assert cluster.shared.topics.log(T).end_offset == 0
        assert produced(await ask(led, produce("t", records(), acks=1))) == (Code.NONE, 0)
        cluster.shared.controller.set_in_sync(T, [0, 1, 2])
        assert produced(await ask(led, produce("t", records()))) == (Code.NONE, 1)

    with_cluster(tmp_path, scenario, brokers=3)


def test_more_replicas_than_brokers_are_refused_and_a_single_broker_notes_them(tmp_path: Path) -> None:
    topic = CreateTopicsRequest.CreatableTopic

    def creating() -> Message:
        new = topic(name="x", num_partitions=1, replication_factor=4, assignments=[], configs=[])
        return CreateTopicsRequest(version=5, topics=[new], timeout_ms=1_000, validate_only=False)

    async def several(cluster: KafkaCluster) -> None:
        (answer,) = (await ask(cluster.nodes[0], creating())).topics
        assert answer.error_code == Code.INVALID_REPLICATION_FACTOR
        assert cluster.shared.topics.get("x") is None

    async def one(cluster: KafkaCluster) -> None:
        (answer,) = (await ask(cluster.nodes[0], creating())).topics
        assert (answer.error_code, answer.replication_factor) == (Code.NONE, 4)

    with_cluster(tmp_path / "several", several, brokers=3)
    with_cluster(tmp_path / "one", one)


def test_leaders_stay_where_they_are_over_a_restart(tmp_path: Path) -> None:
    found = []

    async def move(cluster: KafkaCluster) -> None:
        made(cluster)
        cluster.shared.controller.elect(T)
        found.append(cluster.shared.leaders.placed(T))

    async def look(cluster: KafkaCluster) -> None:
        assert cluster.shared.leaders.placed(T) == found[0]
        assert found[0].leader != found[0].replicas[0]

    with_cluster(tmp_path, move, brokers=3)
    with_cluster(tmp_path, look, brokers=3)


def test_a_broker_of_an_older_release_offers_and_takes_no_newer_versions(tmp_path: Path) -> None:
    async def scenario(cluster: KafkaCluster) -> None:
        await cluster.kill(1)
        await cluster.revive(1, api_versions={"Produce": 9, "DescribeProducers": -1})
        offered = cluster[1].parts.offered
        assert offered[0][1] == 9
        assert DescribeProducersRequest.API_KEY not in offered
        assert cluster[0].parts.offered[0][1] > 9
        with pytest.raises(ValueError, match="did you mean Produce"):
            await cluster.kill(2) or await cluster.revive(2, api_versions={"Produc": 9})

    with_cluster(tmp_path, scenario, brokers=3)


def test_a_client_that_is_too_new_is_told_the_versions_of_the_broker_that_it_asks(tmp_path: Path) -> None:
    """Found in virtual time: told the newest release's, it asked again in the same version, for ever."""

    async def scenario(cluster: KafkaCluster) -> None:
        await cluster.kill(1)
        await cluster.revive(1, api_versions={"ApiVersions": 3})
        told = [unsupported(node.parts).api_keys[0].max_version for node in cluster.nodes]
        assert told == [5, 3, 5]

    with_cluster(tmp_path, scenario, brokers=3)
