"""The group APIs on the wire's side: every version is read, answered and read back; codes and rights are Kafka's."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from embedded_kafka.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.wire import server
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.groups.groups_world import RANGE, World, run, soon

CONTEXT = Context(connection_id=1, client_id="client", client_host="127.0.0.1")
UNKNOWN, FORBIDDEN = "no such topic", "secret"


class FakeTopics:
    """Topics "t" and "secret" with two partitions each."""

    def has(self, where: TopicPartition) -> bool:
        return where.topic in ("t", FORBIDDEN) and where.partition in (0, 1)

    def ensure_internal(self, name: str) -> None:
        assert name == "__consumer_offsets"


class FakeTransactions:
    """The transaction coordinator of another part: remembers what it was asked, and refuses what the test wants
    refused.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.refusal: Code | None = None

    async def ensure_partition(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: list[TopicPartition],
        *, add: bool, knows_abortable: bool,
    ) -> None:  # fmt: skip
        self.asked.append((transactional_id, producer_id, epoch, partitions, add, knows_abortable))
        if self.refusal is not None:
            raise Refused(self.refusal, "the test says so")


class Broker(World):
    """The group APIs of one broker, asked through their bytes."""

    def __init__(self, **settings: int) -> None:
        super().__init__(**settings)
        self.authorizer = Authorizer()
        self.transactions = FakeTransactions()
        self.parts = cast(
            "Parts",
            SimpleNamespace(
                groups=self.groups,
                authorizer=self.authorizer,
                topics=FakeTopics(),
                transactions=self.transactions,
                coordinator_of=lambda _transactional_id: self.transactions,
                config=self.config,
                clock=self.clock,
            ),
        )

    async def ask(self, api: Any, version: int, **fields: Any) -> Any:
        cls = server.REQUESTS[api.API_KEY]
        frame = memoryview(
            struct.pack(">hhih", api.API_KEY, version, 1, -1)
            + (b"\0" if cls.flexible_version_q(version) else b"")
            + bytes(cls(version=version, **fields).encode())
        )
        header = server.parse_header(frame)
        response = await api.handle(self.parts, server.parse_request(header, frame), CONTEXT)
        answer = getattr(server, cls.__name__.replace("Request", "Response"))
        return answer.decode(bytes(response.encode()), version=version)


def versions(api: Any) -> list[int]:
    lowest, highest = api.VERSIONS
    return list(range(lowest, highest + 1))


def joining(version: int, member_id: str = "", **more: Any) -> dict[str, Any]:
    protocol = server.JoinGroupRequest.JoinGroupRequestProtocol
    fields = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [protocol(version=version, name=name, metadata=data) for name, data in RANGE],
    }
    if version >= 1:
        fields["rebalance_timeout_ms"] = 60_000
    return fields | more


async def member_of(broker: Broker, version: int = 9) -> str:
    """Somebody joins and syncs, by the newest version."""
    answer = await broker.ask(join_group, version, **joining(version))
    if answer.error_code == Code.MEMBER_ID_REQUIRED:
        answer = await broker.ask(join_group, version, **joining(version, answer.member_id))
    assert answer.error_code == Code.NONE
    part = server.SyncGroupRequest.SyncGroupRequestAssignment(version=5, member_id=answer.member_id, assignment=b"mine")
    synced = await broker.ask(
        sync_group, 5, group_id="g", generation_id=answer.generation_id, member_id=answer.member_id,
        protocol_type="consumer", protocol_name="range", assignments=[part],
    )  # fmt: skip
    assert (synced.error_code, synced.assignment) == (Code.NONE, b"mine")
    return str(answer.member_id)


def partitions_of(api: Any, version: int, *names: str, offset: int = 7) -> list[Any]:
    cls = server.REQUESTS[api.API_KEY]
    topic = getattr(cls, f"{cls.__name__}Topic")
    partition = getattr(topic, f"{cls.__name__}Partition")
    fields = {} if api is offset_delete else {"committed_offset": offset, "committed_metadata": None}
    return [
        topic(version=version, name=name, partitions=[partition(version=version, partition_index=0, **fields)])
        for name in names
    ]


def codes_of(answer: Any) -> dict[str, Code]:
    return {topic.name: Code(topic.partitions[0].error_code) for topic in answer.topics}


@pytest.mark.parametrize("version", versions(join_group))
def test_join_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        answer = await broker.ask(join_group, version, **joining(version))
        if version >= 4:
            assert (answer.error_code, answer.generation_id) == (Code.MEMBER_ID_REQUIRED, -1)
            assert answer.protocol_name == (None if version >= 7 else "")
            answer = await broker.ask(join_group, version, **joining(version, answer.member_id))
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (Code.NONE, 1, "range")
        assert answer.leader == answer.member_id and answer.member_id.startswith("client-")
        assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, RANGE[0][1])]

    run(story)


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_that_returns_need_not_assign_from_version_9_on(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        first = await broker.ask(join_group, version, **joining(version, group_instance_id="i"))
        await broker.ask(
            sync_group, 3, group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i",
            assignments=[],
        )  # fmt: skip
        again = await broker.ask(join_group, version, **joining(version, group_instance_id="i"))
        assert again.error_code == Code.NONE and again.member_id != first.member_id
        assert (again.leader == again.member_id) is (version >= 9)
        if version >= 9:
            assert again.skip_assignment is True

    run(story)


@pytest.mark.parametrize("version", versions(sync_group))
def test_sync_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        member_id = await member_of(broker)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        fields = {"group_id": "g", "member_id": member_id, "assignments": [], **named}
        answer = await broker.ask(sync_group, version, generation_id=1, **fields)
        assert (answer.error_code, answer.assignment) == (Code.NONE, b"mine")
        stale = await broker.ask(sync_group, version, generation_id=0, **fields)
        assert (stale.error_code, stale.assignment) == (Code.ILLEGAL_GENERATION, b"")

    run(story)


def test_sync_from_version_5_on_must_name_the_protocol() -> None:
    async def story() -> None:
        broker = Broker()
        member_id = await member_of(broker)
        for named in ({}, {"protocol_type": "consumer"}, {"protocol_type": "x", "protocol_name": "range"}):
            answer = await broker.ask(
                sync_group, 5, group_id="g", generation_id=1, member_id=member_id, assignments=[], **named
            )
            assert answer.error_code == Code.INCONSISTENT_GROUP_PROTOCOL

    run(story)


@pytest.mark.parametrize("version", versions(heartbeat))
def test_heartbeat_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        member_id = await member_of(broker)
        for generation, code in [(1, Code.NONE), (0, Code.ILLEGAL_GENERATION)]:
            answer = await broker.ask(heartbeat, version, group_id="g", generation_id=generation, member_id=member_id)
            assert answer.error_code == code

    run(story)


@pytest.mark.parametrize("version", versions(leave_group))
def test_leave_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        member_id = await member_of(broker)
        for code in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
            if version < 3:
                answer = await broker.ask(leave_group, version, group_id="g", member_id=member_id)
                assert answer.error_code == code
                continue
            identity = server.LeaveGroupRequest.MemberIdentity(version=version, member_id=member_id)
            answer = await broker.ask(leave_group, version, group_id="g", members=[identity])
            assert (answer.error_code, answer.members[0].error_code) == (Code.NONE, code)
            assert answer.members[0].member_id == member_id

    run(story)


@pytest.mark.parametrize("version", versions(offset_commit))
def test_offset_commit_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.authorizer.deny("READ", "TOPIC", FORBIDDEN)
        topics = partitions_of(offset_commit, version, "t", UNKNOWN, FORBIDDEN)
        answer = await broker.ask(offset_commit, version, group_id="g", member_id="", topics=topics)
        assert codes_of(answer) == {
            "t": Code.NONE,
            UNKNOWN: Code.UNKNOWN_TOPIC_OR_PARTITION,
            FORBIDDEN: Code.TOPIC_AUTHORIZATION_FAILED,
        }
        assert await broker.committed() == 7

        stale = await broker.ask(
            offset_commit, version, group_id="other", generation_id_or_member_epoch=1, member_id="m",
            topics=partitions_of(offset_commit, version, "t"),
        )  # fmt: skip
        assert codes_of(stale) == {"t": Code.GROUP_ID_NOT_FOUND if version >= 9 else Code.ILLEGAL_GENERATION}

    run(story)


def test_a_full_disk_under_a_commit_sends_the_client_to_look_for_the_coordinator() -> None:
    async def story() -> None:
        broker = Broker()
        broker.log_of("g").refusal = Code.KAFKA_STORAGE_ERROR
        answer = await broker.ask(
            offset_commit, 8, group_id="g", member_id="", topics=partitions_of(offset_commit, 8, "t")
        )
        assert codes_of(answer) == {"t": Code.NOT_COORDINATOR}

    run(story)


def in_transaction(version: int, **more: Any) -> dict[str, Any]:
    return {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": 1000,
        "producer_epoch": 0,
        "topics": partitions_of(txn_offset_commit, version, "t", UNKNOWN),
        **more,
    }


@pytest.mark.parametrize("version", versions(txn_offset_commit))
def test_txn_offset_commit_in_every_version(version: int) -> None:
    """Rule: seed 003 TxnOffsetCommitRequest."""

    async def story() -> None:
        broker = Broker()
        answer = await broker.ask(txn_offset_commit, version, **in_transaction(version))
        assert codes_of(answer) == {"t": Code.NONE, UNKNOWN: Code.UNKNOWN_TOPIC_OR_PARTITION}
        partition = TopicPartition("__consumer_offsets", broker.groups.partition_for("g"))
        assert broker.transactions.asked == [("x", 1000, 0, [partition], version >= 5, version >= 4)]
        assert await broker.committed() == -1
        broker.end("g", 1000, commit=True)
        assert await broker.committed() == 7

    run(story)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (Code.INVALID_TXN_STATE, 3, Code.INVALID_TXN_STATE),
        (Code.INVALID_PRODUCER_EPOCH, 5, Code.INVALID_PRODUCER_EPOCH),
        (Code.TRANSACTION_ABORTABLE, 4, Code.TRANSACTION_ABORTABLE),
        (Code.CONCURRENT_TRANSACTIONS, 5, Code.CONCURRENT_TRANSACTIONS),
        (Code.COORDINATOR_LOAD_IN_PROGRESS, 2, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Code.COORDINATOR_LOAD_IN_PROGRESS, 1, Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_the_transaction_coordinator_refuses_is_told_as_kafka_tells_it(
    said: Code, version: int, told: Code
) -> None:
    async def story() -> None:
        broker = Broker()
        broker.transactions.refusal = said
        answer = await broker.ask(txn_offset_commit, version, **in_transaction(version))
        assert codes_of(answer)["t"] is told
        assert broker.logs.partitions == {}, "nothing was written"

    run(story)


def test_a_transaction_of_a_generation_that_is_not_there_is_refused() -> None:
    async def story() -> None:
        broker = Broker()
        answer = await broker.ask(txn_offset_commit, 3, **in_transaction(3, generation_id=1, member_id="m"))
        assert codes_of(answer)["t"] is Code.ILLEGAL_GENERATION
        await member_of(broker)
        for member_id, generation, code in [
            ("m", 1, Code.UNKNOWN_MEMBER_ID),
            ("client-1", 0, Code.ILLEGAL_GENERATION),
        ]:
            named = in_transaction(3, generation_id=generation, member_id=member_id)
            assert codes_of(await broker.ask(txn_offset_commit, 3, **named))["t"] is code

    run(story)


@pytest.mark.parametrize("version", versions(offset_fetch))
def test_offset_fetch_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.authorizer.deny("DESCRIBE", "TOPIC", FORBIDDEN)
        await broker.ask(
            offset_commit,
            8,
            group_id="g",
            member_id="",
            topics=partitions_of(offset_commit, 8, "t", FORBIDDEN),
        )
        topics = await fetched(broker, version, "t", UNKNOWN, FORBIDDEN)
        found = {topic.name: topic.partitions[0] for topic in topics}
        assert {name: (each.committed_offset, Code(each.error_code)) for name, each in found.items()} == {
            "t": (7, Code.NONE),
            UNKNOWN: (-1, Code.NONE),
            FORBIDDEN: (-1, Code.TOPIC_AUTHORIZATION_FAILED),
        }
        if version >= 2:
            assert [topic.name for topic in await fetched(broker, version)] == ["t"]

    run(story)


async def fetched(broker: Broker, version: int, *names: str) -> list[Any]:
    cls = server.OffsetFetchRequest
    if version >= 8:
        group = cls.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics
        topics = [topic(version=version, name=name, partition_indexes=[0]) for name in names] or None
        groups = [group(version=version, group_id=group_id, topics=topics) for group_id in ("g", "other")]
        answer = await broker.ask(offset_fetch, version, groups=groups)
        assert [each.group_id for each in answer.groups] == ["g", "other"]
        return list(answer.groups[0].topics)
    topic = cls.OffsetFetchRequestTopic
    topics = [topic(version=version, name=name, partition_indexes=[0]) for name in names] or None
    answer = await broker.ask(offset_fetch, version, group_id="g", topics=topics)
    return list(answer.topics)


@pytest.mark.parametrize("version", [7, 9])
def test_offset_fetch_can_wait_for_open_transactions(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        await broker.ask(txn_offset_commit, 3, **in_transaction(3))
        cls = server.OffsetFetchRequest
        for stable, code in [(False, Code.NONE), (True, Code.UNSTABLE_OFFSET_COMMIT)]:
            if version >= 8:
                group = cls.OffsetFetchRequestGroup
                topic = group.OffsetFetchRequestTopics(version=version, name="t", partition_indexes=[0])
                asked = {"groups": [group(version=version, group_id="g", topics=[topic])]}
            else:
                topic = cls.OffsetFetchRequestTopic(version=version, name="t", partition_indexes=[0])
                asked = {"group_id": "g", "topics": [topic]}
            answer = await broker.ask(offset_fetch, version, require_stable=stable, **asked)
            topics = answer.groups[0].topics if version >= 8 else answer.topics
            assert topics[0].partitions[0].error_code == code

    run(story)


def test_version_1_of_offset_fetch_has_its_codes_at_the_partitions() -> None:
    async def story() -> None:
        broker = Broker()
        broker.authorizer.deny("DESCRIBE", "GROUP", "g")
        (topic,) = await fetched(broker, 1, "t")
        assert topic.partitions[0].error_code == Code.GROUP_AUTHORIZATION_FAILED

    run(story)


def test_offset_delete() -> None:
    async def story() -> None:
        broker = Broker()
        broker.authorizer.deny("READ", "TOPIC", FORBIDDEN)
        topics = partitions_of(offset_delete, 0, "t", UNKNOWN, FORBIDDEN)
        missing = await broker.ask(offset_delete, 0, group_id="g", topics=topics)
        assert (missing.error_code, missing.topics) == (Code.GROUP_ID_NOT_FOUND, [])
        await broker.ask(offset_commit, 8, group_id="g", member_id="", topics=partitions_of(offset_commit, 8, "t"))

        answer = await broker.ask(offset_delete, 0, group_id="g", topics=topics)

        assert answer.error_code == Code.NONE
        assert codes_of(answer) == {
            "t": Code.NONE,
            UNKNOWN: Code.UNKNOWN_TOPIC_OR_PARTITION,
            FORBIDDEN: Code.TOPIC_AUTHORIZATION_FAILED,
        }
        assert await broker.committed() == -1

    run(story)


@pytest.mark.parametrize("version", versions(describe_groups))
def test_describe_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        member_id = await member_of(broker)
        operations = {"include_authorized_operations": True} if version >= 3 else {}
        answer = await broker.ask(describe_groups, version, groups=["g", "nobody"], **operations)
        group, nobody = answer.groups
        assert (group.error_code, group.group_state) == (Code.NONE, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (RANGE[0][1], b"mine")
        if version >= 3:
            assert group.authorized_operations == {3, 6, 8, 10, 11}

        assert (nobody.group_state, nobody.members) == ("Dead", [])
        assert nobody.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
        if version >= 6:
            assert nobody.error_message == "Group nobody not found."

    run(story)


def test_a_group_that_rebalances_is_described_without_its_old_assignment() -> None:
    async def story() -> None:
        broker = Broker()
        await member_of(broker)
        tasks = await soon(broker.ask(join_group, 3, **joining(3)))
        (group,) = (await broker.ask(describe_groups, 5, groups=["g"])).groups
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        assert [member.member_assignment for member in group.members] == [b"", b""]
        for task in tasks:
            task.cancel()

    run(story)


@pytest.mark.parametrize("version", versions(list_groups))
def test_list_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        await member_of(broker)
        await broker.ask(offset_commit, 8, group_id="simple", member_id="", topics=partitions_of(offset_commit, 8, "t"))
        answer = await broker.ask(list_groups, version)
        assert [(group.group_id, group.protocol_type) for group in answer.groups] == [
            ("g", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            assert [group.group_state for group in answer.groups] == ["Stable", "Empty"]
            empty = await broker.ask(list_groups, version, states_filter=["empty", "DEAD"])
            assert [group.group_id for group in empty.groups] == ["simple"]
        if version >= 5:
            assert {group.group_type for group in answer.groups} == {"classic"}
            for kind, count in [("Classic", 2), ("consumer", 0), ("nonsense", 0)]:
                assert len((await broker.ask(list_groups, version, types_filter=[kind])).groups) == count

    run(story)


@pytest.mark.parametrize("version", versions(delete_groups))
def test_delete_in_every_version(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        await member_of(broker)
        await broker.ask(offset_commit, 8, group_id="simple", member_id="", topics=partitions_of(offset_commit, 8, "t"))
        answer = await broker.ask(delete_groups, version, groups_names=["g", "simple", "nobody", "simple"])
        assert {result.group_id: Code(result.error_code) for result in answer.results} == {
            "g": Code.NON_EMPTY_GROUP,
            "simple": Code.NONE,
            "nobody": Code.GROUP_ID_NOT_FOUND,
        }

    run(story)


def test_every_api_asks_for_the_right_that_kafka_asks_for() -> None:
    async def story() -> None:
        broker = Broker()
        for operation in ("READ", "DESCRIBE", "DELETE"):
            broker.authorizer.deny(operation, "GROUP", "g")
        forbidden = Code.GROUP_AUTHORIZATION_FAILED
        named = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        assert (await broker.ask(join_group, 9, **joining(9))).error_code == forbidden
        assert (await broker.ask(sync_group, 4, assignments=[], **named)).error_code == forbidden
        assert (await broker.ask(heartbeat, 4, **named)).error_code == forbidden
        assert (await broker.ask(leave_group, 5, group_id="g", members=[])).error_code == forbidden
        topics = partitions_of(offset_commit, 8, "t")
        assert codes_of(await broker.ask(offset_commit, 8, group_id="g", member_id="", topics=topics)) == {
            "t": forbidden
        }
        assert codes_of(await broker.ask(txn_offset_commit, 3, **in_transaction(3)))["t"] is forbidden
        assert (await broker.ask(offset_delete, 0, group_id="g", topics=[])).error_code == forbidden
        assert (await broker.ask(offset_fetch, 7, group_id="g", topics=None)).error_code == forbidden
        assert (await broker.ask(describe_groups, 6, groups=["g"])).groups[0].error_code == forbidden
        assert (await broker.ask(delete_groups, 2, groups_names=["g"])).results[0].error_code == forbidden
        broker.authorizer.deny("WRITE", "TRANSACTIONAL_ID", "x")
        refused = codes_of(await broker.ask(txn_offset_commit, 3, **in_transaction(3)))
        assert set(refused.values()) == {Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert await broker.groups.list() == [] and broker.transactions.asked == []

    run(story)


def test_groups_that_may_not_be_described_are_not_listed() -> None:
    async def story() -> None:
        broker = Broker()
        await member_of(broker)
        broker.authorizer.deny("DESCRIBE", "GROUP", "g")
        assert len((await broker.ask(list_groups, 5)).groups) == 1, "whoever may describe the cluster sees all"
        broker.authorizer.deny("DESCRIBE", "CLUSTER")
        assert (await broker.ask(list_groups, 5)).groups == []

    run(story)
