"""The transactional APIs at the wire's level: rights, versions, codes; the coordinator behind them is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from embedded_kafka.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from embedded_kafka.context import Context
from embedded_kafka.faults.faults import Faults
from embedded_kafka.log.values import ActiveProducer
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.wire.server import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    Message,
    WriteTxnMarkersRequest,
    frame_of,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from tests.embedded_kafka.transactions.transactions_world import A, B, World, settle

WHO = Context(1, "client", "127.0.0.1")
ME = "me"
PLACES = frozenset({A, B})


class Groups:
    def partition_for(self, group: str) -> int:
        return 9


class Topics:
    """Two topics; the first has one producer."""

    def has(self, where: TopicPartition) -> bool:
        return where in PLACES

    def log(self, where: TopicPartition) -> Topics:
        if where not in PLACES:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return self

    def producers(self) -> list[ActiveProducer]:
        return [ActiveProducer(7, 5, 11, 123, 0, 42), ActiveProducer(8, 0, -1, -1, -1, -1)]


class Outlook:
    """Of the only broker."""

    def has_replica(self, _where: TopicPartition) -> bool:
        return True

    def stand_of(self, _where: TopicPartition, *, replica: bool = False) -> None:
        assert replica

    def check_append(self, _where: TopicPartition) -> None:
        pass


@dataclass
class Parts:
    """What the handlers see of a broker."""

    world: World
    transactions: TransactionCoordinator

    def __post_init__(self) -> None:
        self.config = self.world.config
        self.clock = self.world.clock
        self.authorizer = Authorizer()
        self.faults = Faults()
        self.topics = Topics()
        self.groups = Groups()
        self.markers = self.world
        self.outlook = Outlook()


def played(play: Callable[[Parts], Awaitable[None]], config: BrokerConfig | None = None) -> None:
    async def main() -> None:
        world = World(config=config or BrokerConfig(), missing={TopicPartition("gone", 0)})
        parts = Parts(world, world.start())
        await play(parts)
        await parts.transactions.close()

    asyncio.run(main())


async def ask(api: Any, parts: Parts, request: Message) -> Any:
    answer = await api.handle(parts, request, WHO)
    assert answer.API_VERSION == request.API_VERSION
    assert frame_of(answer, 1)  # it can be sent in that version
    return answer


async def init(parts: Parts, version: int = 4, **fields: Any) -> Any:
    values = {"transactional_id": ME, "transaction_timeout_ms": 1_000, **fields}
    return await ask(init_producer_id, parts, InitProducerIdRequest(version=version, **values))


def adding(version: int, producer: Any, *places: TopicPartition) -> Message:
    cls = AddPartitionsToTxnRequest
    return cls(
        version=version,
        v3_and_below_transactional_id=ME,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            cls.AddPartitionsToTxnTopic(name=each.topic, partitions=[each.partition]) for each in places
        ],
    )


async def add(parts: Parts, version: int, producer: Any, *places: TopicPartition) -> dict[str, str]:
    answer = await ask(add_partitions_to_txn, parts, adding(version, producer, *places))
    return {
        topic.name: Code(topic.results_by_partition[0].partition_error_code).name
        for topic in answer.results_by_topic_v3_and_below
    }


async def end(parts: Parts, version: int, producer: Any, commit: bool = True, back: int = 0) -> Any:
    request = EndTxnRequest(
        version=version,
        transactional_id=ME,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch - back,
        committed=commit,
    )
    return await ask(end_txn, parts, request)


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_init_gives_an_identity(version: int) -> None:
    async def play(parts: Parts) -> None:
        answer = await init(parts, version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0) and answer.producer_id > 0

    played(play)


def test_without_write_on_the_transactional_id_nothing_is_initialised() -> None:
    """Rule: seed 000 §5.1.1: InitProducerId with a transactional id."""

    async def play(parts: Parts) -> None:
        parts.authorizer.deny("WRITE", "TRANSACTIONAL_ID", ME)
        answer = await init(parts)
        assert answer.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (answer.producer_id, answer.producer_epoch, parts.world.journal) == (-1, -1, [])

    played(play)


def test_without_a_transactional_id_idempotent_write_or_write_on_any_topic_is_needed() -> None:
    """Rule: seed 000 §5.1.1: IdempotentWrite on the cluster (or, since Kafka 2.8, Write on any topic)."""

    async def play(parts: Parts) -> None:
        parts.authorizer.deny("IDEMPOTENT_WRITE", "CLUSTER")
        assert (await init(parts, transactional_id=None)).error_code == 0
        parts.authorizer.deny("WRITE", "TOPIC")
        answer = await init(parts, transactional_id=None)
        assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED

    played(play)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_init_tells_a_fenced_client_so_in_words_that_it_knows(version: int, code: int) -> None:
    async def play(parts: Parts) -> None:
        first = await init(parts)
        await init(parts)
        again = await init(parts, version, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
        assert again.error_code == code

    played(play)


@pytest.mark.parametrize("fields", [{"producer_id": 7}, {"producer_epoch": 0}])
def test_half_an_identity_is_an_invalid_request(fields: dict[str, int]) -> None:
    async def play(parts: Parts) -> None:
        assert (await init(parts, **fields)).error_code == Code.INVALID_REQUEST

    played(play)


def test_two_phases_are_asked_for_by_version_6() -> None:
    async def play(parts: Parts) -> None:
        assert (await init(parts, 6, enable2_pc=True, transaction_timeout_ms=0)).error_code == 0
        assert parts.transactions.describe(ME).timeout_ms == 2_147_483_647
        assert (await init(parts, 6, keep_prepared_txn=True)).error_code == Code.UNSUPPORTED_VERSION

    played(play, BrokerConfig(two_phase_commit=True))


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(version: int) -> None:
    async def play(parts: Parts) -> None:
        producer = await init(parts)
        gone, internal = TopicPartition("gone", 0), TopicPartition("__consumer_offsets", 0)
        assert await add(parts, version, producer, A, gone, internal) == {
            "a": "OPERATION_NOT_ATTEMPTED",
            "gone": "UNKNOWN_TOPIC_OR_PARTITION",
            "__consumer_offsets": "TOPIC_AUTHORIZATION_FAILED",
        }
        parts.authorizer.deny("WRITE", "TOPIC", "b")
        assert await add(parts, version, producer, A, B) == {
            "a": "OPERATION_NOT_ATTEMPTED",
            "b": "TOPIC_AUTHORIZATION_FAILED",
        }
        assert parts.transactions.describe(ME).partitions == frozenset()
        assert await add(parts, version, producer, A) == {"a": "NONE"}
        producer.producer_epoch -= 1
        fenced = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
        assert await add(parts, version, producer, A) == {"a": fenced}
        parts.authorizer.deny("WRITE", "TRANSACTIONAL_ID", ME)
        assert await add(parts, version, producer, A) == {"a": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}

    played(play)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_or_look_at_several_transactions_at_once(version: int) -> None:
    async def play(parts: Parts) -> None:
        cls = AddPartitionsToTxnRequest
        mine, other = await init(parts), await init(parts, transactional_id="other")

        def one(name: str, producer: Any, verify_only: bool, *topics: str) -> Message:
            return cls.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=verify_only,
                topics=[cls.AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
            )

        async def codes(*transactions: Message) -> list[list[str]]:
            answer = await ask(add_partitions_to_txn, parts, cls(version=version, transactions=list(transactions)))
            assert answer.error_code == 0
            return [
                [Code(topic.results_by_partition[0].partition_error_code).name for topic in each.topic_results]
                for each in answer.results_by_transaction
            ]

        assert await codes(one(ME, mine, False, "a"), one("other", other, True, "a")) == [
            ["NONE"], ["TRANSACTION_ABORTABLE"],
        ]  # fmt: skip
        assert await codes(one(ME, mine, True, "a", "b")) == [["NONE", "TRANSACTION_ABORTABLE"]]
        parts.authorizer.deny("CLUSTER_ACTION", "CLUSTER")
        request = cls(version=version, transactions=[one(ME, mine, True, "a")])
        answer = await ask(add_partitions_to_txn, parts, request)
        assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED

    played(play)


@pytest.mark.parametrize("version", range(5))
def test_the_groups_partition_of_the_offsets_topic_is_added(version: int) -> None:
    async def play(parts: Parts) -> None:
        producer = await init(parts)

        async def code() -> int:
            request = AddOffsetsToTxnRequest(
                version=version,
                transactional_id=ME,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id="g",
            )
            return int((await ask(add_offsets_to_txn, parts, request)).error_code)

        parts.authorizer.deny("READ", "GROUP", "g")
        assert await code() == Code.GROUP_AUTHORIZATION_FAILED
        parts.authorizer.allow_all()
        assert await code() == Code.NONE
        assert parts.transactions.describe(ME).partitions == {TopicPartition("__consumer_offsets", 9)}
        producer.producer_epoch += 1
        assert await code() == (90 if version >= 2 else 47)
        parts.authorizer.deny("WRITE", "TRANSACTIONAL_ID")
        assert await code() == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    played(play)


@pytest.mark.parametrize("version", range(6))
def test_an_end_is_answered_and_from_version_5_on_with_the_next_identity(version: int) -> None:
    async def play(parts: Parts) -> None:
        producer = await init(parts)
        await add(parts, 3, producer, A)
        fenced = await end(parts, version, producer, back=1)
        assert fenced.error_code == (90 if version >= 2 else 47)
        answer = await end(parts, version, producer)
        assert answer.error_code == 0
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, 1)
        await settle()
        assert parts.transactions.describe(ME).epoch == (1 if version >= 5 else 0)
        parts.authorizer.deny("WRITE", "TRANSACTIONAL_ID", ME)
        denied = await end(parts, version, producer)
        assert denied.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    played(play)


def test_transactions_are_described_without_the_topics_that_the_client_may_not_see() -> None:
    async def play(parts: Parts) -> None:
        producer = await init(parts)
        await add(parts, 3, producer, A, B)
        parts.authorizer.deny("DESCRIBE", "TOPIC", "b")
        parts.authorizer.deny("DESCRIBE", "TRANSACTIONAL_ID", "secret")
        names = [ME, "nobody", "secret", ""]
        answer = await ask(
            describe_transactions, parts, DescribeTransactionsRequest(version=0, transactional_ids=names)
        )
        assert [Code(each.error_code).name for each in answer.transaction_states] == [
            "NONE", "TRANSACTIONAL_ID_NOT_FOUND", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_REQUEST",
        ]  # fmt: skip
        mine = answer.transaction_states[0]
        assert (mine.transaction_state, mine.transaction_timeout_ms) == ("Ongoing", 1_000)
        assert mine.transaction_start_time_ms == parts.clock.now_ms()
        assert [(topic.topic, topic.partitions) for topic in mine.topics] == [("a", [0])]

    played(play)


@pytest.mark.parametrize("version", [0, 1])
def test_transactions_are_listed_by_filters_and_unknown_states_are_named(version: int) -> None:
    async def play(parts: Parts) -> None:
        producer = await init(parts)
        await add(parts, 3, producer, A)
        await init(parts, transactional_id="idle")
        await init(parts, transactional_id="secret")
        parts.authorizer.deny("DESCRIBE", "TRANSACTIONAL_ID", "secret")

        async def names(states: list[str]) -> tuple[list[str], list[str]]:
            request = ListTransactionsRequest(
                version=version, state_filters=states, producer_id_filters=[], duration_filter=-1
            )
            answer = await ask(list_transactions, parts, request)
            return [each.transactional_id for each in answer.transaction_states], answer.unknown_state_filters

        assert await names([]) == ([ME, "idle"], [])
        assert await names(["Ongoing", "Nonsense"]) == ([ME], ["Nonsense"])
        assert await names(["Nonsense"]) == ([], ["Nonsense"])

    played(play)


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_a_transaction_in_single_partitions(version: int) -> None:
    async def play(parts: Parts) -> None:
        cls = WriteTxnMarkersRequest.WritableTxnMarker
        parts.world.produce(B, 7, 6)

        def request(**extra: int) -> Message:
            marker = cls(
                producer_id=7,
                producer_epoch=5,
                transaction_result=False,
                topics=[cls.WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in ("a", "b", "gone")],
                coordinator_epoch=0,
                **extra,
            )
            return WriteTxnMarkersRequest(version=version, markers=[marker])

        answer = await ask(write_txn_markers, parts, request())
        found = {each.name: Code(each.partitions[0].error_code).name for each in answer.markers[0].topics}
        assert found == {"a": "NONE", "b": "INVALID_PRODUCER_EPOCH", "gone": "UNKNOWN_TOPIC_OR_PARTITION"}
        assert [(each.where, each.commit) for each in parts.world.markers()] == [(A, False)]
        parts.authorizer.deny("ALTER", "CLUSTER")
        assert (await ask(write_txn_markers, parts, request())).markers[0].topics[0].partitions[0].error_code == 0
        parts.authorizer.deny("CLUSTER_ACTION", "CLUSTER")
        denied = await ask(write_txn_markers, parts, request())
        assert {partition.error_code for topic in denied.markers[0].topics for partition in topic.partitions} == {
            Code.CLUSTER_AUTHORIZATION_FAILED
        }
        assert len(parts.world.markers()) == 2

    played(play)


def test_a_partitions_producers_are_described() -> None:
    async def play(parts: Parts) -> None:
        cls = DescribeProducersRequest
        parts.authorizer.deny("READ", "TOPIC", "b")
        request = cls(
            version=0,
            topics=[cls.TopicRequest(name=name, partition_indexes=[0]) for name in ("a", "b", "gone")],
        )
        answer = await ask(describe_producers, parts, request)
        partitions = [topic.partitions[0] for topic in answer.topics]
        assert [Code(each.error_code).name for each in partitions] == [
            "NONE", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION",
        ]  # fmt: skip
        first, second = partitions[0].active_producers
        assert (first.producer_id, first.producer_epoch, first.last_sequence) == (7, 5, 11)
        assert (first.last_timestamp, first.current_txn_start_offset) == (123, 42)
        assert second.current_txn_start_offset == -1

    played(play)
