"""A decision that is larger than a record of the ledger: cut into parts, found again, and refused where it is not
whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_kafka.log import encode_batch
from kafka_core.errors import LedgerUnreadable, OptionsError
from kafka_core.values import ProducerIdentity as Identity
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.commit.ledger.joining import Authors, joined
from pyspark_kafka_eos.commit.ledger.notes import Settled, from_bytes, is_part_of, note_key, to_bytes
from pyspark_kafka_eos.commit.ledger.parts import Collection, DecisionPart, Manifest, cut
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import LEDGER_FORMAT_VERSION, Decision, Seal, SealedPartition
from pyspark_kafka_eos.operations.history import newest_first
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, PIPELINE, World, decision_of

KEY = PIPELINE.encode()
ROOM_BYTES = 700


def large(batch_id: int = 0, slots: int = 40) -> Decision:
    """One that takes several records."""
    parts = (SealedPartition("out", 0, 5, 9, 5), SealedPartition("out", 1, 7, 9, 3))
    seals = [
        Seal(f"pipe:{slot}", slot, Identity(1_000 + slot * slot, slot), 2, 8, 80, slot * 2**50, 1_234 + slot, parts)
        for slot in range(slots)
    ]  # fmt: skip
    return decision_of(seals, batch_id=batch_id)


@pytest.fixture
def narrow(world: World) -> World:
    """A ledger whose records are short."""
    world.kafka.configure(LEDGER, {"max.message.bytes": str(ROOM_BYTES)})
    world.ledger.prepare()
    return world


def put(world: World, key: bytes, value: bytes | None) -> None:
    world.ledger._append(key, value, "a record of a test")


def others(world: World, count: int) -> None:
    """Records of other pipelines' drivers, each in a batch of its own."""
    for number in range(count):
        batch = encode_batch([(b"other", b"%d" % number)], timestamp_ms=1)
        world.kafka.log(world.where).append(bytes(batch))


def decided(world: World, *batch_ids: int) -> None:
    """As one driver after another does it."""
    for batch_id in batch_ids:
        world.decide(large(batch_id))


# ---- the parts


@given(st.binary(max_size=4_000), st.integers(330, 5_000))
def test_what_was_cut_is_put_together_again_in_any_order(data: bytes, room: int) -> None:
    value = json.dumps(data.hex()).encode()
    manifest, parts = cut(value, room)
    found = Collection(manifest)
    found.add_parts(reversed(parts))

    assert found.complete
    assert found.value() == value
    assert Manifest.from_record(manifest.to_bytes()) == manifest
    assert [from_bytes(to_bytes(part)) for part in parts] == parts


@pytest.mark.parametrize("room", [500, 1_000, 100_000])
def test_every_part_fits_its_record_uncompressed(room: int) -> None:
    _, parts = cut(large(slots=400).to_bytes(), room)

    assert max(len(to_bytes(part)) for part in parts) < room - 100


def test_a_part_that_is_missing_and_one_that_was_changed_are_no_decision() -> None:
    manifest, parts = cut(large().to_bytes(), ROOM_BYTES)
    short, changed = Collection(manifest), Collection(manifest)
    short.add_parts(parts[1:])
    changed.add_parts([*parts[1:], DecisionPart(manifest.digest, 0, parts[0].text.swapcase())])

    with pytest.raises(LedgerUnreadable, match=rf"1 of the {len(parts)} parts .* nothing was changed"):
        short.value()
    with pytest.raises(LedgerUnreadable, match="not what was written; nothing was changed"):
        changed.value()


def test_a_decision_in_parts_of_another_version_is_refused_as_one() -> None:
    manifest, _ = cut(large().to_bytes(), ROOM_BYTES)
    other = json.dumps({**json.loads(manifest.to_bytes()), "version": LEDGER_FORMAT_VERSION + 1}).encode()

    assert Manifest.from_record(other) is None
    with pytest.raises(LedgerUnreadable, match="written by a newer version"):
        Decision.from_bytes(other)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        large(slots=0).to_bytes(),
        b'{"version":1,"digest":"ab","parts":1}',
        b'{"version":1,"digest":"',
    ],
)
def test_no_other_value_is_taken_for_a_manifest(value: bytes) -> None:
    assert Manifest.from_record(value) is None


# ---- in the ledger


def test_a_large_decision_is_written_in_records_that_fit_and_read_as_it_was(narrow: World) -> None:
    decided(narrow, 0)

    sizes = [len(each.data) for each in narrow.kafka.log(narrow.where).batches]
    assert max(sizes) <= ROOM_BYTES < len(large().to_bytes())
    assert narrow.ledger_keys()[-1] == KEY
    assert all(is_part_of(KEY, key) for key in narrow.ledger_keys()[:-1])
    assert narrow.ledger.look().newest == large()
    narrow.fresh_process()
    assert narrow.ledger.look().newest == large()


def test_a_decision_that_fits_is_one_record(world: World) -> None:
    decided(world, 0)

    assert world.ledger_keys() == [KEY]


def test_the_parts_of_an_aborted_decision_never_count(narrow: World) -> None:
    decided(narrow, 0)
    narrow.decide(large(1), commit=False).abort()

    assert narrow.ledger.look().newest == large()
    narrow.fresh_process()
    assert narrow.ledger.look().newest == large()


def test_a_decision_without_its_end_can_be_read_by_who_settles_it(narrow: World) -> None:
    decided(narrow, 0)
    narrow.decide(large(1), commit=False)
    narrow.fresh_process()

    view = narrow.ledger.look()

    assert (view.newest, view.open is not None) == (large(), True)
    assert view.open is not None
    assert narrow.ledger.decision(view.open) == large(1)


@pytest.mark.slow
def test_parts_are_found_far_in_front_of_their_decision(narrow: World) -> None:
    """Many drivers write to the partition."""
    manifest, parts = cut(large().to_bytes(), ROOM_BYTES)
    for part in parts:
        put(narrow, note_key(KEY, part), to_bytes(part))
        others(narrow, 80)
    put(narrow, KEY, manifest.to_bytes())

    assert narrow.kafka.log(narrow.where).end > 1_000
    assert narrow.ledger.look().newest == large()


def test_the_search_ends_at_the_pipelines_decision_before(narrow: World) -> None:
    for number in range(600):
        put(narrow, b"other", b"%d" % number)
    put(narrow, KEY, large(0, slots=1).to_bytes())
    at = narrow.kafka.log(narrow.where).end
    before = narrow.kafka.asked["Fetch"]

    with pytest.raises(LedgerUnreadable, match="1 of the 1 parts"):
        joined(narrow.cluster, narrow.where, PIPELINE, at, Manifest("0" * 64, 1), Authors(None))

    assert narrow.kafka.asked["Fetch"] == before + 1


def test_a_newest_decision_without_all_its_parts_stops_the_query(narrow: World) -> None:
    manifest, parts = cut(large().to_bytes(), ROOM_BYTES)
    for part in parts[1:]:
        put(narrow, note_key(KEY, part), to_bytes(part))
    put(narrow, KEY, manifest.to_bytes())

    with pytest.raises(LedgerUnreadable, match="parts of a decision are not in the ledger any more") as no:
        narrow.ledger.look()

    assert no.value.facts["pipeline"] == PIPELINE


def test_a_record_that_is_no_part_under_a_parts_key_stops_the_query(narrow: World) -> None:
    manifest, parts = cut(large().to_bytes(), ROOM_BYTES)
    note = Settled(0, Identity(1, 1), large(slots=0))
    put(narrow, note_key(KEY, parts[0]), to_bytes(note))
    put(narrow, KEY, manifest.to_bytes())

    with pytest.raises(LedgerUnreadable, match="another client wrote it; nothing was changed"):
        narrow.ledger.look()


@pytest.mark.slow
def test_a_ledger_whose_records_have_no_room_for_any_part_is_the_users_to_change(world: World) -> None:
    world.kafka.configure(LEDGER, {"max.message.bytes": "200"})
    world.ledger.prepare()
    producer = world.driver()
    producer.begin()

    with pytest.raises(OptionsError, match=r"nothing of the batch is visible; raise max\.message\.bytes"):
        world.ledger.add_decision(producer, large())

    assert world.ledger_keys() == []


def test_a_write_of_its_own_leaves_no_part_behind(narrow: World) -> None:
    decided(narrow, 0)
    kept = set(narrow.ledger_keys())

    narrow.ledger.forget()

    assert set(narrow.ledger_keys()[-len(kept) :]) == kept


# ---- the note that states a commit


def test_the_note_of_a_large_decision_is_in_parts_too_and_outlives_the_abort_of_its_record(
    narrow: World,
) -> None:
    producer = narrow.decide(large(), commit=False)
    record = narrow.ledger.look().open
    assert record is not None
    narrow.ledger.note(Settled(record.offset, producer.identity, large()))

    view = narrow.ledger.look()
    assert (view.newest, view.settled) == (large(), True)
    producer.abort()

    assert max(len(each.data) for each in narrow.kafka.log(narrow.where).batches) <= ROOM_BYTES
    for view in (narrow.ledger.look(), Ledger(narrow.cluster, LEDGER, PIPELINE).look()):
        assert (view.newest, view.open) == (large(), None)


def test_a_process_that_dies_among_the_parts_of_a_note_leaves_the_note_before_whole(narrow: World) -> None:
    producer = narrow.decide(large(), commit=False)
    record = narrow.ledger.look().open
    assert record is not None
    narrow.ledger.note(Settled(record.offset, producer.identity, large()))
    producer.abort()

    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    crash_points.arm("settled-part-noted", 3, die)
    with pytest.raises(Died):
        narrow.ledger.note(Settled(record.offset + 99, producer.identity, large(1)))
    crash_points.arm("")

    assert len(set(narrow.ledger_keys())) == len(narrow.ledger_keys())
    narrow.fresh_process()
    assert narrow.ledger.look().newest == large()


def test_a_note_is_compressed_as_its_decision_is(world: World) -> None:
    """Else a decision that fits its record would have a note that does not."""
    world.ledger.note(Settled(0, Identity(1, 1), large(slots=400)))

    batch, _marker = world.kafka.log(world.where).batches
    assert len(batch.data) < len(large(slots=400).to_bytes()) / 3


# ---- what somebody else puts under these keys


JUNK: dict[str, Callable[[DecisionPart], bytes]] = {
    "junk": lambda _: b"no part",
    "another note": lambda _: to_bytes(Settled(0, Identity(1, 1), large(slots=0))),
    "the part, with other text": lambda part: to_bytes(replace(part, text=part.text.swapcase())),
}


def plainly(world: World, key: bytes, value: bytes) -> None:
    stranger.put(world.cluster, world.where, key, value)


def in_a_transaction_of_his_own(world: World, key: bytes, value: bytes) -> None:
    his = stranger.begun(world.cluster, "evil:driver")
    stranger.send(his, world.where, key, value)
    his.commit()


HOW = [plainly, in_a_transaction_of_his_own]
Writes = Callable[[World, bytes, bytes], None]


@pytest.fixture(params=HOW, ids=lambda how: how.__name__)
def forge(request: pytest.FixtureRequest) -> Writes:
    return request.param


def between_parts_and_manifest(world: World, act: Callable[[], None]) -> Decision:
    """A decision in parts, with what `act` does in front of the record that stands for them."""
    _, parts = cut(large().to_bytes(), ROOM_BYTES - len(KEY))
    crash_points.arm("decision-part-sent", len(parts), act)
    world.decide(large())
    crash_points.arm("")
    world.fresh_process()
    return large()


@pytest.mark.parametrize("junk", JUNK)
def test_what_somebody_else_puts_under_the_keys_of_parts_is_not_read(narrow: World, forge: Writes, junk: str) -> None:
    _, parts = cut(large().to_bytes(), ROOM_BYTES - len(KEY))

    def act() -> None:
        for part in parts:
            forge(narrow, note_key(KEY, part), JUNK[junk](part))

    decision = between_parts_and_manifest(narrow, act)

    assert narrow.ledger.look().newest == decision
    ((entry, *_),) = (page for page in newest_first(narrow.cluster, LEDGER, PIPELINE) if page)
    assert entry.decision == decision


def test_somebody_elses_decision_among_the_parts_does_not_end_the_search_for_them(narrow: World, forge: Writes) -> None:
    def act() -> None:
        # So many that the parts are in another window.
        others(narrow, 600)
        forge(narrow, KEY, large(slots=0).to_bytes())

    decision = between_parts_and_manifest(narrow, act)

    assert narrow.ledger.look().newest == decision


@pytest.mark.parametrize("junk", JUNK)
def test_what_somebody_else_puts_under_the_keys_of_a_notes_parts_is_not_read(
    narrow: World, forge: Writes, junk: str
) -> None:
    producer = narrow.decide(large(), commit=False)
    record = narrow.ledger.look().open
    assert record is not None
    _, parts = cut(large().to_bytes(), ROOM_BYTES - len(KEY), str(record.offset))

    def act() -> None:
        for part in parts:
            forge(narrow, note_key(KEY, part), JUNK[junk](part))

    crash_points.arm("settled-part-noted", len(parts), act)
    narrow.ledger.note(Settled(record.offset, producer.identity, large()))
    producer.abort()
    narrow.fresh_process()

    assert narrow.ledger.look().newest == large()


def test_what_is_put_into_the_pipelines_own_transaction_before_is_not_read(narrow: World) -> None:
    """The broker asks no coordinator about a transaction that has begun in the partition."""
    producer = narrow.decide(large(0, slots=0), commit=False)
    _, parts = cut(large(1).to_bytes(), ROOM_BYTES - len(KEY))
    his = stranger.begun(narrow.cluster, "evil:driver")
    key, mine = note_key(KEY, parts[0]), producer.identity
    stranger.put_into(narrow.cluster, his.transactional_id, narrow.where, key, b"no part", mine, 1)
    producer.commit()
    narrow.decide(large(1), narrow.driver())
    narrow.fresh_process()

    assert narrow.ledger.look().newest == large(1)


def test_the_parts_of_a_note_count_though_its_id_gets_another_producer_id_among_them(narrow: World) -> None:
    producer = narrow.decide(large(), commit=False)
    record = narrow.ledger.look().open
    assert record is not None
    before: list[int] = []

    def act() -> None:
        before.append(narrow.identity(f"{PIPELINE}:notes").producer_id)
        narrow.kafka.set_epoch(f"{PIPELINE}:notes", 32_766)
        narrow.ledger._notary._producer = None

    crash_points.arm("settled-part-noted", 3, act)
    narrow.ledger.note(Settled(record.offset, producer.identity, large()))
    producer.abort()

    assert narrow.identity(f"{PIPELINE}:notes").producer_id not in before
    assert narrow.ledger.look().newest == large()


# ---- for people


def test_the_history_has_large_decisions_and_says_which_are_not_whole_any_more(narrow: World) -> None:
    """Compaction takes the parts whose keys were written again, and leaves a decision in its last segment."""
    manifest, _ = cut(large(0).to_bytes(), ROOM_BYTES)
    put(narrow, KEY, manifest.to_bytes())
    decided(narrow, 1, 2)

    pages = list(newest_first(narrow.cluster, LEDGER, PIPELINE))

    found = [entry for page in pages for entry in page]
    assert [each.status for each in found] == ["decided", "decided", "unreadable"]
    assert [each.decision for each in found[:2]] == [large(2), large(1)]
    assert "takes their place" in found[2].problem
