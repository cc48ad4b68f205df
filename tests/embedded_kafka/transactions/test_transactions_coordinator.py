"""The coordinator against its surroundings in memory: what is logged before what, markers, timeouts, expiry,
refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import DAY_MS, BrokerConfig
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.machine.events import NO_TIMEOUT_MS, TransactionLogEntry, TransactionState
from embedded_kafka.transactions.state_log import decode_value, encode_key, encode_value
from kafka_core.errors import OptionsError, ProducerIdsExhausted
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from tests.embedded_kafka.transactions.transactions_world import A, B, C, StateRecord, World, settle

Play = Callable[[World, TransactionCoordinator], Awaitable[None]]
ME = "me"


def played(play: Play, world: World | None = None) -> World:
    world = world or World()

    async def main() -> None:
        coordinator = world.start()
        try:
            await play(world, coordinator)
        finally:
            await coordinator.close()

    asyncio.run(main())
    return world


async def refused(work: Awaitable[object]) -> Code:
    with pytest.raises(Refused) as refusal:
        await work
    return refusal.value.code


def logged(world: World) -> list[TransactionState]:
    return [
        decode_value(each.value).state if each.value else TransactionState.DEAD
        for each in world.journal
        if isinstance(each, StateRecord)
    ]


async def opened(coordinator: TransactionCoordinator, *partitions: TopicPartition) -> ProducerIdentity:
    identity = await coordinator.init_producer_id(ME, 1_000)
    await coordinator.add_partitions(ME, identity, partitions or (A,))
    return identity


def test_without_a_transactional_id_a_new_producer_id_is_given_at_epoch_0() -> None:
    """Rule: seed 000 §5.1.1: InitProducerId without a transactional id."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        first = await coordinator.init_producer_id(None, 0)
        second = await coordinator.init_producer_id(None, 0)
        assert (first.epoch, second.epoch) == (0, 0) and first.producer_id != second.producer_id
        assert world.journal == []

    played(play)


@pytest.mark.parametrize(
    ("transactional_id", "partition"),
    # As Kafka 4.3's Utils.abs(id.hashCode()) % 50 says; the second has the lowest hash, the fourth a negative one.
    [("me", 30), ("polygenelubricants", 0), ("", 0), ("my-transactional-id", 46), ("😀", 49)],
)
def test_the_hash_of_the_id_names_one_of_fifty_partitions(transactional_id: str, partition: int) -> None:
    """Rule: seed 003 finding the coordinator."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        assert coordinator.partition_for(transactional_id) == partition

    played(play)


def test_the_producer_id_is_in_the_log_before_it_is_answered() -> None:
    """Rule: seed 003 obtaining the PID: the mapping is logged before it is answered."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        world.stop_at = "init-logged"
        asked = asyncio.ensure_future(coordinator.init_producer_id(ME, 1_000))
        await settle()
        assert logged(world) == [TransactionState.EMPTY] and not asked.done()
        assert await refused(coordinator.init_producer_id(ME, 1_000)) is Code.CONCURRENT_TRANSACTIONS
        assert world.released is not None
        world.released.set()
        assert (await asked).epoch == 0

    played(play)


def test_partitions_are_in_the_log_before_they_are_answered_and_the_first_starts_the_clock() -> None:
    """Rule: seed 003 AddPartitionsToTxnRequest."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await coordinator.init_producer_id(ME, 1_000)
        world.clock.advance(50)
        begun_ms = world.clock.now_ms()
        world.stop_at = "add-logged"
        asked = asyncio.ensure_future(coordinator.add_partitions(ME, identity, [A]))
        await settle()
        assert logged(world) == [TransactionState.EMPTY, TransactionState.ONGOING] and not asked.done()
        assert world.released is not None
        world.released.set()
        await asked
        world.stop_at = ""
        world.clock.advance(50)
        await coordinator.add_offsets(ME, identity, 7)
        entry = coordinator.describe(ME)
        assert entry.start_ms == begun_ms
        assert entry.partitions == {A, TopicPartition("__consumer_offsets", 7)}

    played(play)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_the_decision_is_logged_and_answered_then_markers_go_out_then_the_end_is_logged(
    commit: bool, version: int
) -> None:
    """Rule: seed 003 EndTxnRequest, WriteTxnMarker; nothing but the prepared end is possible afterwards."""
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    completed = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator, B, A)
        world.stop_at = "marker-written:1"
        after = await coordinator.end(ME, identity, commit=commit, version=version)
        assert logged(world)[-1] is prepared and world.markers() == []
        await settle()
        assert [(each.where, each.commit) for each in world.markers()] == [(A, commit)]
        assert coordinator.describe(ME).state is prepared
        for again in (True, False):
            code = await refused(coordinator.end(ME, identity, commit=again, version=version))
            assert code is Code.CONCURRENT_TRANSACTIONS
        assert await refused(coordinator.add_partitions(ME, after, [C])) is Code.CONCURRENT_TRANSACTIONS
        assert await refused(coordinator.init_producer_id(ME, 1_000)) is Code.CONCURRENT_TRANSACTIONS
        assert world.released is not None
        world.released.set()
        await settle()
        epoch = identity.epoch + (1 if version == 2 else 0)
        assert [(each.where, each.epoch, each.commit) for each in world.markers()] == [
            (A, epoch, commit), (B, epoch, commit),
        ]  # fmt: skip
        assert logged(world)[-1] is completed
        assert after == ProducerIdentity(identity.producer_id, epoch)
        assert await coordinator.end(ME, identity, commit=commit, version=version) == after
        code = await refused(coordinator.end(ME, identity, commit=not commit, version=version))
        assert code is Code.INVALID_TXN_STATE

    world = played(play)
    assert world.steps[-4:] == ["end-prepared", "marker-written:1", "marker-written:2", "end-completed"]


def test_a_partition_that_cannot_be_written_to_delays_its_own_marker_only() -> None:
    """Rule: seed 003 EndTxnRequest (addendum)."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator, A, B, C)
        world.unreachable = {B}
        await coordinator.end(ME, identity, commit=True, version=2)
        await settle()
        assert {each.where for each in world.markers()} == {A, C}
        assert coordinator.describe(ME).partitions == {B}
        coordinator.tick()
        await settle()
        assert len(world.markers()) == 2
        world.unreachable = set()
        coordinator.tick()
        await settle()
        assert [each.where for each in world.markers()] == [A, C, B]
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_COMMIT

    played(play)


def test_a_partition_that_is_gone_or_has_a_newer_epoch_does_not_hold_the_transaction_up() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator, A, B, C)
        world.missing = {A}
        world.produce(B, identity.producer_id, identity.epoch + 9)
        await coordinator.end(ME, identity, commit=True, version=2)
        await settle()
        assert [each.where for each in world.markers()] == [C]
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_COMMIT

    played(play)


@pytest.mark.parametrize(("version", "code"), [(0, Code.PRODUCER_FENCED), (2, Code.INVALID_TXN_STATE)])
def test_a_transaction_that_outlives_its_timeout_is_aborted_under_a_bumped_epoch(version: int, code: Code) -> None:
    """Rule: seed 003 transaction expiry: with version 2 EndTxn answers 48, else 90."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        world.clock.advance(1_000)
        coordinator.tick()
        await settle()
        assert coordinator.describe(ME).state is TransactionState.ONGOING
        world.clock.advance(1)
        coordinator.tick()
        await settle()
        entry = coordinator.describe(ME)
        assert (entry.state, entry.epoch) == (TransactionState.COMPLETE_ABORT, identity.epoch + 1)
        assert [(each.epoch, each.commit) for each in world.markers(A)] == [(identity.epoch + 1, False)]
        assert await refused(coordinator.end(ME, identity, commit=True, version=version)) is code

    config = BrokerConfig(transaction_version=max(1, version))
    assert "abort-prepared" in played(play, World(config=config)).steps


def test_a_prepared_end_that_the_sweep_finds_is_finished() -> None:
    """Rule: seed 003 ending expired transactions."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        await coordinator.end(ME, identity, commit=True, version=2)
        world.log_error = OSError(28, "no space left on device")
        await settle()
        assert coordinator.describe(ME).state is TransactionState.PREPARE_COMMIT
        world.log_error = None
        coordinator.tick()
        await settle()
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_COMMIT
        assert len(world.markers(A)) == 1

    played(play)


def test_an_id_without_a_transaction_expires_after_seven_days_and_gets_a_new_producer_id() -> None:
    """Rule: seed 003 ending transactional ids; seed 004 warning."""

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await coordinator.init_producer_id(ME, 1_000)
        world.clock.advance(7 * DAY_MS - 1)
        coordinator.tick()
        assert coordinator.describe(ME).state is TransactionState.EMPTY
        world.clock.advance(1)
        coordinator.tick()
        assert logged(world) == [TransactionState.EMPTY, TransactionState.DEAD]
        assert await refused(coordinator.end(ME, identity, commit=True, version=2)) is Code.INVALID_PRODUCER_ID_MAPPING
        with pytest.raises(Refused, match="TRANSACTIONAL_ID_NOT_FOUND"):
            coordinator.describe(ME)
        again = await coordinator.init_producer_id(ME, 1_000, identity)
        assert again.producer_id != identity.producer_id and again.epoch == 0

    played(play)


def test_a_two_phase_transaction_is_left_to_its_owner() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await coordinator.init_producer_id(ME, 0, two_phase=True)
        await coordinator.add_partitions(ME, identity, [A])
        world.clock.advance(365 * DAY_MS)
        coordinator.tick()
        await settle()
        entry = coordinator.describe(ME)
        assert (entry.state, entry.timeout_ms) == (TransactionState.ONGOING, NO_TIMEOUT_MS)

    played(play, World(config=BrokerConfig(two_phase_commit=True)))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("", 1_000), Code.INVALID_REQUEST),
        (("x" * 32_768, 1_000), Code.INVALID_REQUEST),
        ((ME, 0), Code.INVALID_TRANSACTION_TIMEOUT),
        ((ME, -1), Code.INVALID_TRANSACTION_TIMEOUT),
        ((ME, 900_001), Code.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_an_init_that_cannot_work_is_refused_and_nothing_is_logged(arguments: tuple[str, int], code: Code) -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        assert await refused(coordinator.init_producer_id(*arguments)) is code
        assert world.journal == [] and coordinator.listing() == []

    played(play)


def test_two_phases_need_the_setting_and_an_open_transaction_cannot_be_kept() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        off = coordinator.init_producer_id(ME, 1_000, two_phase=True)
        assert await refused(off) is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        keep = coordinator.init_producer_id(ME, 1_000, keep_prepared=True)
        assert await refused(keep) is Code.UNSUPPORTED_VERSION

    played(play)


def test_without_producer_ids_the_client_is_told_to_ask_again_and_what_needs_none_goes_on() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        world.ids_left = 0
        assert await refused(coordinator.init_producer_id("new", 1_000)) is Code.COORDINATOR_LOAD_IN_PROGRESS
        assert await refused(coordinator.init_producer_id(None, 0)) is Code.COORDINATOR_LOAD_IN_PROGRESS
        assert (await coordinator.end(ME, identity, commit=True, version=2)).epoch == identity.epoch + 1

    played(play)


def test_when_the_ids_are_exhausted_the_client_is_told_of_a_server_error() -> None:
    class Exhausted(World):
        def next_id(self) -> int:
            raise ProducerIdsExhausted("Have exhausted all producerIds.")

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        assert await refused(coordinator.init_producer_id(ME, 1_000)) is Code.UNKNOWN_SERVER_ERROR

    played(play, Exhausted())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(28, "no space left on device"), Code.NOT_COORDINATOR),
        (Refused(Code.KAFKA_STORAGE_ERROR, "x"), Code.NOT_COORDINATOR),
        (Refused(Code.MESSAGE_TOO_LARGE, "x"), Code.UNKNOWN_SERVER_ERROR),
        (Refused(Code.NOT_ENOUGH_REPLICAS, "x"), Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_cannot_be_logged_has_not_happened_and_works_when_there_is_room(error: Exception, code: Code) -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        world.log_error = error
        assert await refused(coordinator.init_producer_id(ME, 1_000)) is code
        assert coordinator.listing() == []
        world.log_error = None
        identity = await opened(coordinator)
        world.log_error = error
        before = coordinator.describe(ME)
        assert await refused(coordinator.add_partitions(ME, identity, [B])) is code
        assert await refused(coordinator.end(ME, identity, commit=True, version=2)) is code
        world.clock.advance(2_000)
        coordinator.tick()
        await settle()
        assert coordinator.describe(ME) == before and world.markers() == []
        world.log_error = None
        coordinator.tick()
        await settle()
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_ABORT

    played(play)


def test_a_request_whose_connection_is_gone_after_the_append_has_taken_effect() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        world.stop_at = "end-prepared"
        asked = asyncio.ensure_future(coordinator.end(ME, identity, commit=True, version=2))
        await settle()
        asked.cancel()
        await settle()
        assert asked.cancelled()
        assert [each.commit for each in world.markers(A)] == [True]
        assert coordinator.describe(ME).state is TransactionState.COMPLETE_COMMIT

    played(play)


def test_init_over_an_open_transaction_aborts_it_and_the_next_one_gets_an_epoch() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        assert await refused(coordinator.init_producer_id(ME, 1_000)) is Code.CONCURRENT_TRANSACTIONS
        await settle()
        assert [(each.epoch, each.commit) for each in world.markers(A)] == [(identity.epoch + 1, False)]
        again = await coordinator.init_producer_id(ME, 1_000)
        assert again == ProducerIdentity(identity.producer_id, identity.epoch + 2)

    played(play)


@pytest.mark.parametrize("add", [True, False])
def test_before_records_are_written_their_partition_is_part_of_the_transaction(add: bool) -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await coordinator.init_producer_id(ME, 1_000)
        pid, epoch = identity.producer_id, identity.epoch
        if add:
            await coordinator.ensure_partition(ME, pid, epoch, [A], add=True)
            entry = coordinator.describe(ME)
            assert (entry.partitions, entry.version) == ({A}, 2)
        else:
            code = await refused(coordinator.ensure_partition(ME, pid, epoch, [A], add=False))
            assert code is Code.TRANSACTION_ABORTABLE
            old = coordinator.ensure_partition(ME, pid, epoch, [A], add=False, knows_abortable=False)
            assert await refused(old) is Code.INVALID_TXN_STATE
            await coordinator.add_partitions(ME, identity, [A])
            await coordinator.ensure_partition(ME, pid, epoch, [A], add=False)
        stale = coordinator.ensure_partition(ME, pid, epoch - 1, [A], add=add)
        assert await refused(stale) is Code.INVALID_PRODUCER_EPOCH
        foreign = coordinator.ensure_partition(ME, pid + 1, epoch, [A], add=add)
        assert await refused(foreign) is Code.INVALID_PRODUCER_ID_MAPPING
        unknown = coordinator.ensure_partition("nobody", pid, epoch, [A], add=add)
        assert await refused(unknown) is Code.INVALID_PRODUCER_ID_MAPPING

    played(play)


def test_the_epochs_run_out_and_the_end_answers_a_new_producer_id() -> None:
    last = ProducerIdentity(7, 32_766)
    entry = TransactionLogEntry(
        7, 32_766, 1_000, TransactionState.EMPTY, last_update_ms=1_000_000, previous_producer_id=7
    )

    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        await coordinator.add_partitions(ME, last, [A], version=2)
        after = await coordinator.end(ME, last, commit=True, version=2)
        assert after.producer_id != 7 and after.epoch == 0
        await settle()
        assert [(each.producer_id, each.epoch) for each in world.markers(A)] == [(7, 32_767)]
        assert await coordinator.end(ME, last, commit=True, version=2) == after
        await coordinator.add_partitions(ME, after, [A], version=2)

    played(play, World([StateRecord(30, encode_key(ME), encode_value(entry, 1))]))


def test_a_log_of_another_number_of_partitions_is_refused_at_the_start() -> None:
    world = World([StateRecord(3, encode_key(ME), encode_value(TransactionLogEntry(7, 0), 1))])

    async def play(_world: World, _coordinator: TransactionCoordinator) -> None:
        raise AssertionError("it came up")

    with pytest.raises(OptionsError, match="number of partitions"):
        played(play, world)


def test_ids_are_listed_by_state_producer_and_duration() -> None:
    async def play(world: World, coordinator: TransactionCoordinator) -> None:
        identity = await opened(coordinator)
        await coordinator.init_producer_id("other", 1_000)
        world.clock.advance(100)
        names = [name for name, _ in coordinator.listing([TransactionState.ONGOING])]
        assert names == [ME]
        assert [name for name, _ in coordinator.listing(None, {identity.producer_id})] == [ME]
        assert [name for name, _ in coordinator.listing([TransactionState.ONGOING], (), 99)] == [ME]
        assert coordinator.listing([TransactionState.ONGOING], (), 100) == []
        assert coordinator.listing([]) == []
        assert len(coordinator.listing()) == 2

    played(play)
