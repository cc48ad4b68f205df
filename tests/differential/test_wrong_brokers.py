"""Requests at brokers that they are not for, on three embedded brokers and on three of Apache Kafka: at the leader's
follower, at a broker without the partition, at one that does not coordinate the id or the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka
from tests.differential import records
from tests.differential.brokers import _REAL_SETTINGS, _SETTINGS
from tests.differential.cases import JUDGED
from tests.differential.play import Play, Step, Transaction, new_token
from tests.differential.records import Identity
from tests.differential.wire import Connection

pytestmark = JUDGED

_GROUP, _TRANSACTION = 0, 1
_SIX = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}
"""Two for each of three brokers."""


@contextmanager
def three(bootstrap_servers: str, token: str) -> Iterator[dict[int, Play]]:
    """A client of each broker, by the broker's id."""
    host, _, _ = bootstrap_servers.partition(",")
    first = Connection(host)
    found = first.call("Metadata", 8, topics=[], allow_auto_topic_creation=False)
    first.close()
    plays = {
        broker["node_id"]: Play(Connection(f"{broker['host']}:{broker['port']}"), True, token)
        for broker in found["brokers"]
    }
    assert len(plays) == 3, found
    yield dict(sorted(plays.items()))
    for play in plays.values():
        play.connection.close()


def fetched(play: Play, label: str | None, topic: str, version: int = 11) -> Any:
    """Fetch, also where the answer is that somebody else has it."""
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1_000,
    }  # fmt: skip
    return play.ask(
        label, "Fetch", version, (), max_wait_ms=0, min_bytes=0, max_bytes=1_000, isolation_level=0,
        topics=[{"topic": topic, "partitions": [part]}],
    )  # fmt: skip


def end_of(play: Play, topic: str) -> int:
    """What a replica says how far all have it."""
    return int(fetched(play, None, topic)["responses"][0]["partitions"][0]["high_watermark"])


def asked_of_partitions(play: Play, topic: str) -> None:
    """Every request about a partition."""
    named = [{"name": topic, "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}]
    for version in (9, 11, 12):
        play.produce(f"Produce {version}", topic, records.batch(b"x"), version=version, again=())
    play.produce("Produce, acks=1", topic, records.batch(b"x"), version=9, acks=1, again=())
    for version in (4, 10, 11, 12):
        fetched(play, f"Fetch {version}", topic, version)
    for replica in (-1, -2):
        play.ask(
            f"ListOffsets of replica {replica}",
            "ListOffsets",
            7,
            (),
            replica_id=replica,
            isolation_level=0,
            topics=named,
        )
    epochs = [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
    play.ask("OffsetForLeaderEpoch", "OffsetForLeaderEpoch", 4, (), replica_id=-1, topics=epochs)
    producers = [{"name": topic, "partition_indexes": [0]}]
    play.ask("DescribeProducers", "DescribeProducers", 0, (), topics=producers)
    deleted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    play.ask("DeleteRecords", "DeleteRecords", 2, (), topics=deleted, timeout_ms=5_000)
    marker = {
        "producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }  # fmt: skip
    play.ask("WriteTxnMarkers", "WriteTxnMarkers", 1, (), markers=[marker])


def asked_of_groups(play: Play, group: str, topic: str) -> None:
    """Every request about a group."""
    member: dict[str, Any] = {"group_id": group, "member_id": "m", "group_instance_id": None}
    named = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]
    play.ask(
        "JoinGroup", "JoinGroup", 5, (), **(member | {"member_id": ""}), session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
    )  # fmt: skip
    play.ask("SyncGroup", "SyncGroup", 3, (), **member, generation_id=1, assignments=[])
    play.ask("Heartbeat", "Heartbeat", 3, (), **member, generation_id=1)
    leaver = [{"member_id": "m", "group_instance_id": None}]
    play.ask("LeaveGroup", "LeaveGroup", 4, (), group_id=group, members=leaver)
    for version in (8, 9):
        play.ask(
            f"OffsetCommit {version}", "OffsetCommit", version, (), group_id=group, generation_id_or_member_epoch=-1,
            member_id="", topics=named,
        )  # fmt: skip
    asked = [{"name": topic, "partition_indexes": [0]}]
    for version in (1, 7):
        stable = {"require_stable": True} if version == 7 else {}
        play.ask(f"OffsetFetch {version}", "OffsetFetch", version, (), group_id=group, topics=asked, **stable)
    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": asked}]
    play.ask("OffsetFetch 9", "OffsetFetch", 9, (), groups=groups, require_stable=True)
    for version in (5, 6):
        play.ask(
            f"DescribeGroups {version}",
            "DescribeGroups",
            version,
            (),
            groups=[group],
            include_authorized_operations=False,
        )
    play.ask("DeleteGroups", "DeleteGroups", 2, (), groups_names=[group])
    removed = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    play.ask("OffsetDelete", "OffsetDelete", 0, (), group_id=group, topics=removed)
    play.ask(
        "ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", 1, (), group_id=group, member_id="m", member_epoch=0,
        rebalance_timeout_ms=30_000, subscribed_topic_names=[topic], topic_partitions=[],
    )  # fmt: skip
    play.ask(
        "ConsumerGroupDescribe", "ConsumerGroupDescribe", 1, (), group_ids=[group], include_authorized_operations=False
    )
    txn = Transaction(f"{group}-id", Identity(7, 0), topic)
    for version in (3, 4):
        play.commit_offset(f"TxnOffsetCommit {version}", txn, group, 5, version=version, again=())


def asked_of_ids(play: Play, name: str, group: str, topic: str) -> None:
    """Every request about a transactional id."""
    txn = Transaction(name, Identity(7, 0), topic)
    init = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    play.ask("InitProducerId", "InitProducerId", 4, (), **init)
    play.add("AddPartitionsToTxn", txn, {topic: [0]}, again=())
    play.add_offsets("AddOffsetsToTxn", txn, group, again=())
    for version in (4, 5):
        play.end(f"EndTxn {version}", txn, True, version=version, again=())
    play.ask("DescribeTransactions", "DescribeTransactions", 0, (), transactional_ids=[name])
    listed = play.ask(None, "ListTransactions", 1, (), state_filters=[], producer_id_filters=[], duration_filter=-1)
    play.note("ListTransactions", [one for one in listed["transaction_states"] if one["transactional_id"] == name])


def coordinator(play: Play, key: str, kind: int) -> int:
    found: list[int] = []

    def known() -> bool:
        (one,) = play.ask(None, "FindCoordinator", 4, key_type=kind, coordinator_keys=[key])["coordinators"]
        found.append(one["node_id"])
        return bool(one["error_code"] == 0)

    play.wait_until(known, f"{key} has a coordinator")
    return found[-1]


def knows(play: Play, topic: str) -> bool:
    """Whether the broker knows who leads the topic's partition."""
    (found,) = play.metadata(topic)["topics"]
    return bool(found["error_code"] == 0 and found["partitions"][0]["error_code"] == 0)


def said_by(bootstrap_servers: str, token: str) -> dict[str, list[Step]]:
    """What each of three brokers says, by its place: leader, follower, ..."""
    with three(bootstrap_servers, token) as plays:
        leader, follower, outside = plays
        asked = plays[leader]
        topic, group, name = f"topic-{token}", f"group-{token}", f"id-{token}"
        made = {"name": topic, "num_partitions": -1, "replication_factor": -1, "configs": []}
        made["assignments"] = [{"partition_index": 0, "broker_ids": [leader, follower]}]
        asked.ask(None, "CreateTopics", 5, timeout_ms=20_000, validate_only=False, topics=[made])
        asked.wait_for_topic(topic, 1)
        for play in plays.values():
            play.wait_until(lambda play=play: knows(play, topic), "every broker knows the topic")  # type: ignore[misc]
        asked.produce(None, topic, records.batch(b"first"), version=9)
        for play in (plays[leader], plays[follower]):
            # A follower has a record a moment later, and hears a moment later that all have it.
            play.wait_until(lambda play=play: end_of(play, topic) == 1, "it is everywhere")  # type: ignore[misc]
        of_group, of_id = coordinator(asked, group, _GROUP), coordinator(asked, name, _TRANSACTION)
        transcripts = {}

        def section(place: str, node: int, questions: Callable[[Play], None]) -> None:
            play = Play(plays[node].connection, True, token)
            questions(play)
            transcripts[place] = play.transcript

        section("follower", follower, lambda play: asked_of_partitions(play, topic))
        section("without a replica", outside, lambda play: asked_of_partitions(play, topic))
        elsewhere = next(node for node in plays if node != of_group)
        section("of no group", elsewhere, lambda play: asked_of_groups(play, group, topic))
        elsewhere = next(node for node in plays if node != of_id)
        section("of no id", elsewhere, lambda play: asked_of_ids(play, name, group, topic))
        section("leader, behind it all", leader, lambda play: fetched(play, "the log", topic))
        return transcripts


def test_three_embedded_brokers_answer_what_is_not_for_them_as_three_of_apache_kafka_do() -> None:
    token = new_token()
    with EmbeddedKafka(brokers=3, config={**_SETTINGS, **_SIX}) as embedded:
        ours = said_by(embedded.bootstrap_servers, token)
    with LocalKafka(
        NEWEST_KAFKA, brokers=3, config={**_REAL_SETTINGS, **_SIX}, transaction_version=2, fast_start=True, heap="320m"
    ) as real:
        theirs = said_by(real.bootstrap_servers, token)
    differences = [
        f"{place}: {label}: embedded {dict(ours[place]).get(label)}, real {said}"
        for place in theirs
        for label, said in theirs[place]
        if dict(ours[place]).get(label) != said
    ]
    assert sum(map(len, theirs.values())) > 40
    assert differences == [], "\n".join(differences)
