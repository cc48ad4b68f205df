"""What the ledger says of a pipeline, read from a partition in memory that others write to as well."""

from __future__ import annotations

import json
import sys
from types import FrameType

import pytest

from embedded_kafka.log.records import encode_batch
from kafka_core.errors import BrokerUnavailable, LedgerUnreadable
from kafka_core.protocol.messages import Message
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.writing.appending import one_record
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.notary import Notary
from pyspark_kafka_eos.commit.ledger.notes import Aborted, Ended, Mending, Settled
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import LEDGER_FORMAT_VERSION, Decision, Seal
from pyspark_kafka_eos.records import jit, pack
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, LEDGER, PIPELINE, World, decision_of, send

KEY = PIPELINE.encode()


def put(world: World, value: bytes | None, key: bytes = KEY) -> None:
    """A record that no driver wrote."""
    world.ledger._append(key, value, "a record of a test")


def fetches(world: World) -> int:
    return world.kafka.asked["Fetch"]


# ---- the newest decision


def test_an_empty_ledger_says_nothing(world: World) -> None:
    view = world.ledger.look()

    assert (view.newest, view.open, view.ended, view.mendings) == (None, None, False, {})


def test_the_newest_committed_decision_counts(world: World) -> None:
    producer = world.driver()
    for batch_id in range(3):
        world.decide(decision_of([], batch_id=batch_id), producer)
        producer = world.driver()

    assert world.ledger.look().newest == decision_of([], batch_id=2)


def test_an_aborted_decision_never_counts(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    world.decide(decision_of([], batch_id=1), commit=False).abort()

    view = world.ledger.look()

    assert (view.newest, view.open) == (decision_of([], batch_id=0), None)


def test_a_decision_without_its_end_is_open_and_the_one_before_stays_the_newest(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    producer = world.decide(decision_of([], batch_id=1), commit=False)

    view = world.ledger.look()

    assert view.newest == decision_of([], batch_id=0)
    assert view.open is not None
    assert view.open.identity == producer.identity
    assert not view.settled


def test_nothing_behind_the_logs_end_is_asked_for_while_a_decision_is_open(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    world.ledger.look()
    world.decide(decision_of([], batch_id=1), commit=False)

    for _ in range(2):
        before = fetches(world)
        assert world.ledger.look().open is not None
        # A broker holds a request for what is not there yet, each time for 0.1 s.
        assert fetches(world) - before == 1


def test_an_open_decision_is_found_again_when_its_end_has_come(world: World) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    assert world.ledger.look().open is not None

    producer.commit()

    view = world.ledger.look()
    assert (view.newest, view.open) == (decision_of([], batch_id=0), None)


def test_a_decision_is_decoded_once_however_often_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    real = Decision.from_bytes
    monkeypatch.setattr(Decision, "from_bytes", lambda value: decoded.append(value) or real(value))
    producer = world.driver()
    world.decide(decision_of([], batch_id=0), producer)

    views = [world.ledger.look() for _ in range(3)]
    assert [view.newest for view in views] == [decision_of([], batch_id=0)] * 3
    assert len(decoded) == 1

    world.decide(decision_of([], batch_id=1), world.driver())

    assert world.ledger.look().newest == decision_of([], batch_id=1)
    assert len(decoded) == 2


def test_a_reader_that_lives_as_long_as_its_run_keeps_the_end_of_the_newest_batch_alone(world: World) -> None:
    producer = world.driver()
    for batch in range(20):
        decision = decision_of([], batch_id=batch)
        world.decide(decision, producer)
        world.ledger.note(Ended.of_decision(decision, producer.identity))
        producer.initialize()
        view = world.ledger.look()

        assert (view.newest, view.ended) == (decision, True)
        assert view.ends == {Ended.of_decision(decision)}


def test_the_newest_note_of_an_end_names_the_driver(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    for epoch in (None, 4, 5):
        driver = None if epoch is None else ProducerIdentity(17, epoch)
        world.ledger.note(Ended.of_decision(decision_of([], batch_id=0), driver))

        assert world.ledger.look().driver == driver
    world.fresh_process()
    assert world.ledger.look().driver == ProducerIdentity(17, 5)


def test_an_open_decision_that_is_aborted_leaves_nothing(world: World) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    assert world.ledger.look().open is not None

    producer.abort()

    view = world.ledger.look()
    assert (view.newest, view.open) == (None, None)


def test_another_pipelines_open_decision_hides_nothing(world: World) -> None:
    foreign = world.driver()
    foreign.begin()
    send(foreign, world.where, b"{}", key=b"other")
    foreign.flush()
    producer = Producer(world.cluster, "pipe.mine")
    producer.initialize()
    world.decide(decision_of([], batch_id=1), producer)

    assert world.ledger.look().newest == decision_of([], batch_id=1)
    assert world.kafka.log(world.where).last_stable_offset == 0


def test_what_other_pipelines_decided_is_passed_over_together(world: World) -> None:
    """A reader decoded each of their records and markers for itself: with 1,000 pipelines that took 60 ms of each
    batch.
    """
    # As in a process that reads so many: interpreted loops would call helpers for each record.
    jit.load()
    others = Producer(world.cluster, "others:driver")

    def decided_by_others(batches: int) -> None:
        for number in range(batches):
            others.initialize()
            others.begin()
            send(others, world.where, b"{}", key=b"other-%d" % number)
            others.commit()
            world.ledger._append(b"other-%d/ended" % number, b"{}", "a note of a test")

    def calls_to_read(batches: int) -> int:
        decided_by_others(batches)
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            view = world.ledger.look()
        finally:
            sys.setprofile(None)
        assert view.newest == decision_of([], batch_id=1)
        return calls

    world.decide(decision_of([], batch_id=1))
    calls_to_read(1)

    further = calls_to_read(60) - calls_to_read(10)

    # For each of them a decision, its marker and a note.
    assert further / 50 / 3 < 40


def test_a_pipeline_whose_name_begins_alike_is_another_one(world: World) -> None:
    put(world, b"garbage", key=KEY + b"2")
    put(world, b"garbage", key=KEY + b"2/ended")

    assert world.ledger.look().newest is None


def test_a_waiting_reader_waits_for_the_end_of_an_open_decision(world: World) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    world.kafka.at_pause(producer.commit)

    assert world.ledger.settled().newest == decision_of([], batch_id=0)


def test_a_decision_that_never_ends_is_named_by_offset_and_partition(world: World) -> None:
    world.decide(decision_of([], batch_id=0), commit=False)

    with pytest.raises(BrokerUnavailable, match="at offset 0 of ledger-0") as late:
        world.ledger.newest(settle=True)

    assert late.value.facts == {"partition": "ledger-0", "offset": 0}


# ---- what is refused


def test_a_tombstone_says_that_there_is_no_such_pipeline(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    world.ledger.note(Mending("pipe:0", ProducerIdentity(1, 3), ()))
    put(world, None)

    for view in (world.ledger.look(), Ledger(world.cluster, LEDGER, PIPELINE).look()):
        assert (view.newest, view.open, view.mendings, view.forgotten) == (None, None, {}, True)


def test_what_is_behind_a_tombstone_is_a_pipeline_again(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    put(world, None)
    world.decide(decision_of([], batch_id=5))

    view = world.ledger.look()

    assert view.newest is not None and (view.newest.batch_id, view.forgotten) == (5, False)


def test_a_decision_behind_a_tombstone_whose_marker_was_forgotten_is_one_at_every_look(world: World) -> None:
    """Its note is the only sign of it, and what is in front of a tombstone is dropped at each look."""
    world.decide(decision_of([], batch_id=0))
    put(world, None)
    offset = world.kafka.log(world.where).end
    again = decision_of([], batch_id=5)
    producer = world.decide(again, commit=False)
    world.ledger.note(Settled(offset, producer.identity, again))

    for view in (world.ledger.look(), world.ledger.look(), Ledger(world.cluster, LEDGER, PIPELINE).look()):
        assert (view.newest, view.settled, view.forgotten) == (again, True, False)


def test_an_empty_value_is_no_tombstone(world: World) -> None:
    put(world, b"")

    with pytest.raises(LedgerUnreadable, match="is not a decision"):
        world.ledger.look()


def test_a_garbled_decision_is_refused_by_topic_partition_and_offset(world: World) -> None:
    put(world, b"garbage")

    with pytest.raises(LedgerUnreadable) as refused:
        world.ledger.look()

    assert (refused.value.facts["ledger"], refused.value.facts["offset"]) == ("ledger-0", 0)


def test_another_pipelines_decision_under_this_key_is_refused(world: World) -> None:
    body = json.loads(decision_of([]).to_bytes()) | {"pipeline": "other"}
    put(world, json.dumps(body).encode())

    with pytest.raises(LedgerUnreadable, match="is a decision of pipeline 'other'"):
        world.ledger.look()


def test_a_decision_of_a_newer_version_is_refused(world: World) -> None:
    put(
        world,
        json.dumps(json.loads(decision_of([]).to_bytes()) | {"version": LEDGER_FORMAT_VERSION + 1}).encode(),
    )

    with pytest.raises(LedgerUnreadable, match="newer version"):
        world.ledger.look()


def test_a_garbled_note_is_refused_by_topic_partition_and_offset(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    # The pipeline's own, as a defect would write it.
    batch = pack(one_record(KEY + b"/ended", b"garbage"), transactional=True, compression="none", max_batch_bytes=None)
    Notary(world.cluster, PIPELINE).write_note(world.where, batch, "a note")

    with pytest.raises(LedgerUnreadable, match="a note in the ledger") as refused:
        world.ledger.look()

    assert (refused.value.facts["ledger"], refused.value.facts["offset"]) == ("ledger-0", 2)


def test_a_note_without_value_is_a_note_that_was_deleted(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    put(world, None, key=KEY + b"/ended")

    assert not world.ledger.look().ended


# ---- notes


def test_an_ended_batch_is_known_as_ended(world: World) -> None:
    decision = decision_of([], batch_id=4)
    world.decide(decision)
    assert not world.ledger.look().ended

    world.ledger.note(Ended.of_decision(decision))

    assert world.ledger.look().ended
    world.fresh_process()
    assert world.ledger.look().ended


@pytest.mark.parametrize(
    "late", [{"batch_id": 3}, {"batch_id": 4, "repaired": 1}, {"batch_id": 4, "query_id": "other"}]
)
def test_a_late_note_that_another_batch_has_ended_changes_no_newer_decision(
    world: World, late: dict[str, object]
) -> None:
    world.decide(decision_of([], batch_id=4))
    world.ledger.note(Ended.of_decision(decision_of([], **late)))  # type: ignore[arg-type]

    view = world.ledger.look()

    assert (view.newest, view.ended) == (decision_of([], batch_id=4), False)


def test_a_late_note_that_an_older_decision_is_settled_changes_no_newer_decision(world: World) -> None:
    older = world.decide(decision_of([], batch_id=0)).identity
    world.decide(decision_of([], batch_id=1))
    world.ledger.note(Settled(0, older, decision_of([], batch_id=0)))

    view = world.ledger.look()

    assert (view.newest, view.open, view.settled) == (decision_of([], batch_id=1), None, False)
    world.fresh_process()
    assert world.ledger.look().newest == decision_of([], batch_id=1)


def test_a_settled_decision_counts_while_its_marker_is_missing_and_when_an_abort_has_come(
    world: World,
) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    world.ledger.note(Settled(0, producer.identity, decision_of([], batch_id=0)))

    view = world.ledger.look()
    assert view.newest == decision_of([], batch_id=0)
    assert view.open is not None and view.settled
    producer.abort()

    for view in (world.ledger.look(), Ledger(world.cluster, LEDGER, PIPELINE).look()):
        assert (view.newest, view.open) == (decision_of([], batch_id=0), None)


def test_a_settling_of_another_transaction_at_that_offset_settles_nothing(world: World) -> None:
    world.decide(decision_of([], batch_id=0), commit=False)
    world.ledger.note(Settled(0, ProducerIdentity(9, 9), decision_of([], batch_id=0)))

    view = world.ledger.look()

    assert view.open is not None and not view.settled


def test_the_newest_mending_of_an_id_counts_in_whatever_order_it_is_read(world: World) -> None:
    notes = [Mending("pipe:0", ProducerIdentity(1, epoch), ()) for epoch in range(3)]
    for note in notes:
        world.ledger.note(note)
        world.ledger.look()

    assert world.ledger.look().mendings == {"pipe:0": notes[-1]}
    world.fresh_process()
    assert world.ledger.look().mendings == {"pipe:0": notes[-1]}


def test_an_older_mending_that_is_read_later_replaces_no_newer_one(world: World) -> None:
    """The first reading goes backwards, from window to window."""
    older, newer = (Mending("pipe:0", ProducerIdentity(1, epoch), ()) for epoch in range(2))
    world.ledger.note(older)
    filled(world, 600)
    world.ledger.note(newer)

    assert world.ledger.look().mendings == {"pipe:0": newer}


def test_a_mending_older_than_the_newest_decision_is_not_unfinished(world: World) -> None:
    old, young = (Mending(f"pipe:{slot}", ProducerIdentity(1, 0), ()) for slot in range(2))
    world.ledger.note(old)
    world.decide(decision_of([], batch_id=0))
    world.ledger.note(young)

    view = world.ledger.look()

    assert view.unfinished == (young,)
    assert set(view.mendings) >= {"pipe:1"}


# ---- how much is read


def filled(world: World, count: int) -> None:
    """Other pipelines' decisions."""
    batch = encode_batch([(b"other", b"{}")], timestamp_ms=1)
    for _ in range(count):
        world.kafka.log(world.where).append(bytes(batch))


def test_the_reader_reads_on_from_where_it_ended(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    filled(world, 40)
    world.ledger.look()

    before = fetches(world)
    world.ledger.look()
    assert fetches(world) == before, "nothing new, and it was read again"

    world.decide(decision_of([], batch_id=1))
    asked = watched(world)
    assert world.ledger.look().newest == decision_of([], batch_id=1)
    assert asked == [42]


def watched(world: World) -> list[int]:
    """The offsets that are fetched from here on."""
    asked: list[int] = []

    def watch(request: Message) -> bool:
        asked.append(request.topics[0].partitions[0].fetch_offset)
        return False

    world.kafka.fault("Fetch", lambda: None, matches=watch)
    return asked


def test_the_first_reading_goes_backwards_and_stops_at_the_newest_decision(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    filled(world, 600)
    world.decide(decision_of([], batch_id=1))
    world.fresh_process()
    asked = watched(world)

    assert world.ledger.look().newest == decision_of([], batch_id=1)
    assert min(asked) > 2


def test_the_first_reading_goes_back_to_the_beginning_where_it_has_to(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    filled(world, 600)
    world.fresh_process()

    assert world.ledger.look().newest == decision_of([], batch_id=0)


def test_a_reading_that_goes_on_does_not_forget_what_was_open_before(world: World) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    world.ledger.look()
    filled(world, 3)
    view = world.ledger.look()
    assert view.open is not None and view.open.offset == 0

    producer.commit()
    filled(world, 3)

    assert world.ledger.look().newest == decision_of([], batch_id=0)


def test_a_log_that_has_become_shorter_is_read_from_the_beginning(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    world.decide(decision_of([], batch_id=1))
    assert world.ledger.look().newest == decision_of([], batch_id=1)

    world.kafka.log(world.where).lose_tail(2)

    assert world.ledger.look().newest == decision_of([], batch_id=0)


def test_a_log_whose_beginning_was_removed_under_the_reader_is_read_anew(world: World) -> None:
    producer = world.decide(decision_of([], batch_id=0), commit=False)
    assert world.ledger.look().open is not None
    producer.commit()
    world.decide(decision_of([], batch_id=1))

    world.kafka.log(world.where).lose_beginning(2)

    view = world.ledger.look()
    assert (view.newest, view.open) == (decision_of([], batch_id=1), None)


def test_a_reader_that_cannot_read_to_the_end_says_so_and_concludes_nothing(world: World) -> None:
    world.decide(decision_of([], batch_id=0))
    lost = world.kafka.fault("Fetch", "drop-answer", times=10_000)

    with pytest.raises(BrokerUnavailable, match="ledger-0 could not be read"):
        world.ledger.look()

    assert lost.fired > 1
    world.kafka.clear_faults()
    assert world.ledger.look().newest == decision_of([], batch_id=0)


def test_a_decision_is_read_back_with_all_that_it_says(world: World) -> None:
    seal: Seal = world.slot(0, {0: 2, 1: 1})
    decision = decision_of([seal], source_offsets=("a", "b"), warnings=("w",))
    world.decide(decision)

    assert world.ledger.look().newest == decision
    assert world.state(DRIVER) == "CompleteCommit"


def test_a_note_of_another_pipelines_transaction_is_none(world: World) -> None:
    """Whoever ends the transactions of the one would end the other's."""
    seal = world.slot(0)
    his = Ledger(world.cluster, LEDGER, "evil")
    his.note(Mending(seal.transactional_id, ProducerIdentity(17, 0), ()))
    his.note(Aborted(seal.transactional_id, ProducerIdentity(17, 0)))
    his.note(Mending("evil:0", ProducerIdentity(17, 0), ()))

    view = Ledger(world.cluster, LEDGER, "evil").look()

    assert (list(view.mendings), dict(view.aborted)) == (["evil:0"], {})
