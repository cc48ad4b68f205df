"""Who may say that something is not there: a leader that is older or lags, a broker that lacks a topic. On a cluster in
memory.

The broker CUT_OFF was cut off from the controller and not from its clients. It is the first one that a client asks; it
answers for what it led as of then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from kafka_core.errors import BrokerUnavailable, OutcomeUnknown, UnknownTopic
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.commit.fates import Fate, places_of
from pyspark_kafka_eos.commit.gone.absent import warn_of_gone
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import per_task as cm
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import partitions_of, states_of
from pyspark_kafka_eos.commit.proof import Proof, prove
from pyspark_kafka_eos.commit.shell import CommitShell
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import verify
from pyspark_kafka_eos.operations.ending import abort as abort_by_hand
from pyspark_kafka_eos.operations.ending import commit as commit_by_hand
from tests.pyspark_kafka_eos.commit.fakes import GROUP, OUTPUT, FakeRun, World, decision_of
from tests.pyspark_kafka_eos.commit.node_kafka import CUT_OFF, NODE
from tests.pyspark_kafka_eos.commit.test_shell import newest, states
from tests.pyspark_kafka_eos.commit.test_shell_repair import narrowed

OUT = OUTPUT[0]
ALL = [b"slot 0 row 0", b"slot 0 row 1"]


def cut_off(world: World, *, alone: bool = False) -> None:
    """The leader of the output is cut off. `alone`: clients know no other broker than that."""
    for where in OUTPUT:
        world.kafka.cut_off(where)
    world.kafka.brokers = [CUT_OFF, NODE]
    world.cluster.refresh_topics(["out"])
    world.kafka.brokers = [NODE]
    world.cluster.refresh_topics(["out"])
    assert world.cluster.leader_epoch(OUT) == 1
    world.kafka.brokers = [CUT_OFF, NODE]
    if alone:
        world.kafka.brokers = [CUT_OFF]


def restarted(world: World) -> None:
    """A new process, which asks the broker that was cut off first."""
    world.fresh_process()
    world.cluster.topic("out")
    assert world.cluster.leader_epoch(OUT) == (0 if world.kafka.stale else 1)


def decided(world: World, slots: int = 1) -> list[Seal]:
    seals = [world.slot(slot, dict.fromkeys(range(2), 2)) for slot in range(slots)]
    world.decide(decision_of(seals))
    return seals


def resume(world: World, seals: Sequence[Seal], **shell: object) -> CommitShell:
    carried_out = world.shell(decision_of(seals), **shell)  # type: ignore[arg-type]
    carried_out.run(cm.resume(tuple(seals)))
    return carried_out


def shown_in_all(world: World) -> list[bytes]:
    return sorted(value for where in OUTPUT for value in world.shown(where))


# ---- the epoch of a seal


def test_a_seal_has_the_epoch_of_the_newest_leader_that_its_writer_knew(world: World) -> None:
    assert [part.leader_epoch for part in world.slot(0, {0: 1}).partitions] == [0]
    world.kafka.log(OUT).elect(3)
    world.fresh_process()

    assert [part.leader_epoch for part in world.slot(0, {0: 1, 1: 1}).partitions] == [3, 0]


# ---- A1: the end of a log as a leader tells it that was replaced


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("more", [0, 3], ids=["ends there", "ends before it"])
def test_the_end_of_a_stale_leader_is_not_believed_and_another_broker_is_asked(
    world: World, committed: bool, more: int
) -> None:
    cut_off(world)
    if more:
        world.end(world.slot(5, dict.fromkeys(range(2), more)), commit=True)
    (seal,) = decided(world)
    world.end(seal, commit=committed)
    world.kafka.expire(seal.transactional_id)
    restarted(world)

    proof = prove(world.cluster, [seal])[0]

    assert proof == Proof(Outcome.COMMITTED if committed else Outcome.ABORTED)


def test_without_a_leader_that_can_know_nothing_is_concluded_and_nothing_is_changed(world: World) -> None:
    cut_off(world)
    (seal,) = decided(world)
    world.end(seal, commit=False)
    world.kafka.expire(seal.transactional_id)
    before, keys = world.kafka.log(OUT).end, world.ledger_keys()
    world.kafka.brokers = [CUT_OFF]
    restarted(world)

    with pytest.raises(OutcomeUnknown, match=r"epoch 1 or later.*is 0.*nothing is skipped") as stopped:
        resume(world, [seal])

    assert (stopped.value.facts["leader_epoch"], stopped.value.facts["found"]) == (1, 0)
    assert (world.kafka.log(OUT).end, world.ledger_keys()) == (before, keys)
    # A restart remedies it.
    world.kafka.brokers = [NODE]
    world.fresh_process()
    assert prove(world.cluster, [seal])[0] == Proof(Outcome.ABORTED)


def test_a_stale_leader_that_has_nothing_open_is_no_sign_that_a_marker_was_written(world: World) -> None:
    cut_off(world)
    (seal,) = decided(world)
    for where in OUTPUT[:2]:
        world.kafka.forget_marker(where)
    world.end(seal, commit=True)
    world.kafka.brokers = [CUT_OFF]
    restarted(world)

    with pytest.raises(BrokerUnavailable, match="nothing is concluded"):
        world.mender.await_markers([seal], commit=True)

    world.kafka.brokers = [CUT_OFF, NODE]
    restarted(world)
    assert world.mender.await_markers([seal], commit=True)
    assert shown_in_all(world) == sorted(ALL * 2)


def test_without_epochs_the_word_of_any_leader_counts(world: World) -> None:
    """Brokers that report none reported none to the writer."""
    world.kafka.asked.clear()
    absence.require_leaders(world.cluster, {OUT: LogMark()})
    assert not world.kafka.asked


def test_nothing_more_is_asked_where_the_known_leader_can_know(world: World) -> None:
    (seal,) = decided(world)
    world.cluster.topic("out")
    world.kafka.asked.clear()

    assert absence.present(world.cluster, places_of([seal])) == partitions_of([seal])
    states_of(world.cluster, partitions_of([seal]), [seal])

    assert world.kafka.asked == {"DescribeProducers": 1}


# ---- A2: a new leader whose high watermark lags


@pytest.mark.parametrize("committed", [True, False])
def test_a_high_watermark_that_lags_is_waited_out(world: World, committed: bool) -> None:
    (seal,) = decided(world)
    world.end(seal, commit=committed)
    world.kafka.expire(seal.transactional_id)
    log = world.kafka.log(OUT)
    log.lags = 0
    for _ in range(3):
        world.kafka.at_pause(lambda: None)
    world.kafka.at_pause(lambda: setattr(log, "lags", None))

    assert prove(world.cluster, [seal])[0] == Proof(Outcome.COMMITTED if committed else Outcome.ABORTED)
    assert log.lags is None


def test_a_marker_behind_a_high_watermark_that_lags_is_not_missing(world: World) -> None:
    """All records are before the high watermark, only the marker is not."""
    (seal,) = decided(world)
    world.end(seal, commit=False)
    world.kafka.expire(seal.transactional_id)
    log = world.kafka.log(OUT)
    log.lags = log.end - 1
    world.kafka.at_pause(lambda: setattr(log, "lags", None))

    assert world.fates(seal) == [Fate.ABORTED, Fate.ABORTED]
    assert log.lags is None


def test_a_high_watermark_that_stays_behind_proves_nothing(world: World) -> None:
    (seal,) = decided(world)
    world.end(seal, commit=True)
    world.kafka.expire(seal.transactional_id)
    world.kafka.log(OUT).lags = 0

    with pytest.raises(OutcomeUnknown, match=r"OFFSET_NOT_AVAILABLE.*nothing is skipped"):
        resume(world, [seal])

    assert states(world)[:1] == ["NotFound"]


# ---- A3: records that an election lost between the decision and the end


def test_a_decided_slot_that_is_open_without_its_records_is_aborted_and_written_again(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.log(OUT).lose_tail(0)
    world.fresh_process()
    replayed: list[frozenset[int]] = []

    def replay(slots: frozenset[int]) -> list[Seal]:
        replayed.append(slots)
        assert world.state("pipe:0") == "CompleteAbort"
        return [world.slot(0, {0: 2, 1: 2})]

    shell = resume(world, [seal], replay=replay)

    assert len(replayed) == 1 and 0 in replayed[0]
    assert shown_in_all(world) == sorted(ALL * 2)
    assert newest(world).repaired == shell.decision.repaired == 1


def test_a_slot_that_lost_only_its_last_records_is_written_again_too(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.log(OUT).lose_tail(1)
    world.fresh_process()

    resume(world, [seal], replay=lambda _: [world.slot(0, {0: 2, 1: 2})])

    assert shown_in_all(world) == sorted(ALL * 2)


def test_lost_records_of_a_batch_that_nobody_can_replay_stop_the_query_and_nothing_is_ended(
    world: World,
) -> None:
    (seal,) = decided(world)
    world.kafka.log(OUT).lose_tail(0)
    world.fresh_process()

    with pytest.raises(Exception, match="cannot replay"):
        resume(world, [seal])

    assert world.state("pipe:0") == "Ongoing"


def test_what_was_ended_between_the_two_looks_is_proven_and_not_taken_for_lost(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.fault("DescribeProducers", lambda: world.end(seal, commit=True))

    assert prove(world.cluster, [seal])[0] == Proof(Outcome.COMMITTED)


@pytest.mark.parametrize("whole", [True, False])
def test_records_that_are_lost_while_the_batch_is_ended_are_written_again(world: World, whole: bool) -> None:
    """A new leader shows itself after the end; its log has no records, only the marker."""
    seal = world.slot(0, {1: 2}) if whole else world.slot(0, {0: 2, 1: 1}, digests={0: 3, 1: 4})

    world.kafka.fault("EndTxn", lambda: world.kafka.log(OUTPUT[1]).lose_tail(0), skip=1)
    # As of another broker: the one that was the leader says so.
    world.kafka.fault("DescribeProducers", Code.NOT_LEADER_OR_FOLLOWER, skip=2)
    run = FakeRun()

    def replay(_: frozenset[int]) -> list[Seal]:
        return [world.slot(0, {1: 2}) if whole else narrowed(world, seal)]

    shell = world.shell(decision_of([seal]), run=run, replay=replay)

    shell.run(sealed(seal))

    assert shell.decision.repaired == 1
    assert run.narrowed == ([{}] if whole else [{0: frozenset({OUTPUT[1]})}])
    # What readers saw of another partition is not written again.
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == ([0, 2] if whole else [2, 1])


def sealed(seal: Seal) -> tuple[cm.Commit, Sequence[ev.Effect]]:
    commit, _ = cm.Commit().handle(ev.Sealed((seal,)))
    return commit.handle(ev.TasksFinished(1))


def test_by_hand_no_slot_is_committed_of_which_records_are_lost(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.log(OUT).lose_tail(0)
    world.fresh_process()

    (done,) = [
        each for each in commit_by_hand(world.cluster, world.ledger) if each.transactional_id == seal.transactional_id
    ]

    assert done.outcome == "refused" and "next run" in done.detail
    assert world.state("pipe:0") == "Ongoing"


# ---- topics


def test_a_topic_that_one_broker_lacks_is_there(world: World) -> None:
    """It has just started."""
    (seal,) = decided(world)
    world.kafka.brokers, world.kafka.fresh = [7, NODE, 8], {7}
    with pytest.raises(UnknownTopic):
        world.cluster.topic("out", refresh=True, new_topic_ms=0)

    assert absence.existing(world.cluster, places_of([seal])) == partitions_of([seal])


def test_a_topic_is_gone_where_more_than_half_of_the_brokers_say_so_for_long_enough(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.brokers = [NODE, 7, 8]
    world.kafka.delete("out")
    world.kafka.fault("Metadata", "drop-request", skip=1, times=1)

    assert absence.existing(world.cluster, places_of([seal])) == set()
    assert world.kafka.asked["Metadata"] >= 2 * 3


def test_a_topic_that_is_gone_is_waited_for_once_as_its_id_never_comes_again(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.delete("out")
    assert absence.existing(world.cluster, places_of([seal])) == set()
    world.kafka.asked.clear()

    assert absence.existing(world.cluster, places_of([seal])) == set()

    assert world.kafka.asked["Metadata"] == 1


def test_too_few_brokers_are_no_proof_that_a_topic_is_gone(world: World) -> None:
    (seal,) = decided(world)
    world.kafka.brokers = [NODE, 7, 8]
    world.kafka.delete("out")
    asked = iter(range(1_000_000))
    world.kafka.fault("Metadata", "drop-request", times=10_000, matches=lambda _: next(asked) % 3 != 0)

    with pytest.raises(BrokerUnavailable, match=r"topic 'out' is there; nothing is concluded"):
        absence.existing(world.cluster, places_of([seal]))


def test_a_topic_of_the_same_name_is_another_one(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (seal,) = decided(world)
    world.end(seal, commit=True)
    world.kafka.expire(seal.transactional_id)
    world.kafka.delete("out")
    world.kafka.create("out", len(OUTPUT))
    world.fresh_process()

    assert prove(world.cluster, [seal])[0] == Proof(Outcome.UNKNOWN, forgotten=True, gone=frozenset(places_of([seal])))
    with caplog.at_level(logging.WARNING):
        warn_of_gone(world.cluster, [seal])
    assert "deleted or recreated" in caplog.text


# ---- the ledger


def test_a_decision_that_the_ledgers_former_leader_does_not_have_is_found(world: World) -> None:
    world.kafka.cut_off(world.where)
    seals = decided(world)
    world.kafka.brokers = [CUT_OFF, NODE]
    world.fresh_process()
    # As a run or an operator's command would: without the question to every broker nothing is decided.
    assert world.ledger.look().newest is None
    world.fresh_process()

    world.ledger.prepare()

    assert world.ledger.look().newest == decision_of(seals)


def test_by_hand_nothing_is_aborted_that_only_the_ledgers_former_leader_has_not_decided(world: World) -> None:
    world.kafka.cut_off(world.where)
    (seal,) = decided(world)
    world.kafka.brokers = [CUT_OFF, NODE]
    world.fresh_process()

    done = {each.transactional_id: each.outcome for each in abort_by_hand(world.cluster, world.ledger, GROUP)}

    assert done[seal.transactional_id] == "refused"
    assert world.state(seal.transactional_id) == "Ongoing"


# ---- readers of the proof


def test_verify_believes_no_stale_leader(world: World) -> None:
    cut_off(world)
    (seal,) = decided(world)
    world.end(seal, commit=True)
    restarted(world)

    (finding,) = verify(world.cluster, decision_of([seal]))
    assert finding.found_records == 4

    world.kafka.brokers = [CUT_OFF]
    restarted(world)
    with pytest.raises(BrokerUnavailable, match="nothing is concluded"):
        verify(world.cluster, decision_of([seal]))
