"""What an operator may do to a pipeline's transactions when no run of it does. On a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_core.errors import OutcomeUnknown, ProducerFenced
from kafka_core.protocol.error_codes import Code
from kafka_core.protocol.messages import EndTxnRequest
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.wire.versions import built
from pyspark_kafka_eos.commit.ledger.notes import Mending
from pyspark_kafka_eos.commit.proof import Fate
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.operations import ending as operations
from pyspark_kafka_eos.operations.ending import Done, EndingProgress
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, OUTPUT, PIPELINE, World, decision_of

SLOTS = [f"{PIPELINE}:{slot}" for slot in range(4)]


def outcomes(done: Sequence[Done]) -> dict[str, str]:
    return {each.transactional_id: each.outcome for each in done}


def commit(world: World, *ids: str) -> dict[str, str]:
    return outcomes(operations.commit(world.cluster, world.ledger, ids))


def abort(world: World, *ids: str, fence: bool = False) -> dict[str, str]:
    end = operations.fence if fence else operations.abort
    return outcomes(end(world.cluster, world.ledger, GROUP, ids))


def decided(world: World, slots: int = 2) -> Decision:
    """Slots that are decided and open, by a run that is gone."""
    decision = decision_of([world.slot(slot) for slot in range(slots)])
    world.decide(decision)
    return decision


# ---- commit


def test_only_what_the_ledger_has_decided_is_committed(world: World) -> None:
    decided(world)
    world.slot(2)

    assert commit(world) == {**dict.fromkeys(SLOTS[:2], "committed"), SLOTS[2]: "refused"}
    assert world.state(SLOTS[2]) == "Ongoing"
    assert commit(world, SLOTS[2]) == {SLOTS[2]: "refused"}
    assert world.state(SLOTS[2]) == "Ongoing"


def test_of_the_named_ids_only_those_are_touched(world: World) -> None:
    decided(world)

    assert commit(world, SLOTS[1], "pipe:77") == {SLOTS[1]: "committed", "pipe:77": "unchanged"}
    assert world.state(SLOTS[0]) == "Ongoing"


def test_what_is_committed_stays_as_it_is(world: World) -> None:
    decision = decided(world)
    world.end(decision.seals[0], commit=True)

    assert commit(world) == {SLOTS[0]: "unchanged", SLOTS[1]: "committed"}


def test_what_the_broker_has_aborted_is_refused(world: World) -> None:
    decision = decided(world)
    world.end(decision.seals[1], commit=False)

    assert commit(world) == {SLOTS[0]: "committed", SLOTS[1]: "refused"}
    assert world.shown(OUTPUT[1]) == []


def test_a_missing_marker_of_a_committed_slot_is_written(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)

    assert commit(world) == {SLOTS[0]: "committed"}
    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


class Killed(Exception):
    """The process ended here."""


def killed_in_a_mending(world: World) -> Seal:
    """A committed slot whose missing marker was being written when the run ended."""

    def die() -> None:
        raise Killed

    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    crash_points.arm("mend-added", 1, die)
    with pytest.raises(Killed):
        world.mender.await_markers([seal], commit=True)
    assert world.state(SLOTS[0]) == "Ongoing"
    return seal


@pytest.mark.parametrize("operation", [commit, abort])
def test_a_mending_that_a_run_began_is_completed_whatever_the_operator_wants(
    world: World, operation: Callable[..., dict[str, str]]
) -> None:
    seal = killed_in_a_mending(world)

    assert operation(world, SLOTS[0]) == {SLOTS[0]: "unchanged"}
    assert world.fates(seal) == [Fate.COMMITTED, Fate.COMMITTED]


def test_what_is_open_under_a_noted_mending_is_never_aborted(world: World) -> None:
    seal = world.slot(3)
    assert seal.identity is not None
    world.ledger.note(Mending(SLOTS[3], seal.identity, (OUTPUT[3],)))
    # A newer decision: nobody completes the mending of an older one.
    world.decide(decision_of([]))

    assert abort(world, SLOTS[3]) == {SLOTS[3]: "refused"}
    assert world.state(SLOTS[3]) == "Ongoing"


def test_what_nobody_can_know_is_reported_as_unknown_and_left_alone(world: World) -> None:
    decision = decided(world, slots=1)
    world.end(decision.seals[0], commit=True)
    world.kafka.expire(SLOTS[0])
    world.kafka.log(OUTPUT[0]).lose_beginning(world.kafka.log(OUTPUT[0]).end)

    assert commit(world) == {SLOTS[0]: "unknown"}
    assert world.state(SLOTS[0]) == "NotFound"


def test_an_end_that_proves_nothing_is_reported_as_unknown(world: World) -> None:
    decided(world, slots=1)
    refused = world.kafka.fault("EndTxn", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=99)

    (done,) = operations.commit(world.cluster, world.ledger)

    assert refused.fired >= 1
    assert (done.transactional_id, done.outcome) == (SLOTS[0], "unknown")
    assert world.state(SLOTS[0]) == "Ongoing"


def test_an_operation_that_is_interrupted_says_what_is_done_what_is_not_known_and_what_was_not_begun(
    world: World,
) -> None:
    decided(world, slots=4)
    progress = EndingProgress()
    assert progress.known() == "nothing was changed"
    network = world.cluster.network
    real, asked = network.call_many, []

    def interrupted(requests: Sequence[Any], *rest: Any, **more: Any) -> Any:
        made = [built(request, network.versions_of(node)) for node, request in requests]
        asked.extend(each for each in made if each.API_KEY == EndTxnRequest.API_KEY)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(requests, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "call_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            operations.commit(world.cluster, world.ledger, progress=progress)

    assert progress.known() == (
        f"committed: {SLOTS[0]}; the outcome of {SLOTS[1]} is unknown; not begun: {SLOTS[2]}, {SLOTS[3]}; "
        "the same command goes on from there"
    )
    assert commit(world) == {SLOTS[0]: "unchanged", **dict.fromkeys(SLOTS[1:], "committed")}


def test_of_many_ids_the_line_names_a_few() -> None:
    done = [Done(f"p:{slot}", "aborted", "") for slot in range(200)]

    assert EndingProgress(done).known() == (
        "aborted: p:0, p:1, p:2, p:3, p:4 and 195 more; the same command goes on from there"
    )


# ---- abort


def test_what_is_not_decided_is_aborted_after_the_driver_is_fenced(world: World) -> None:
    older = world.driver()
    world.slot(0)
    fenced_first: list[bool] = []
    world.kafka.fault(
        "EndTxn",
        lambda: fenced_first.append(world.identity(DRIVER) != older.identity),
        matches=lambda each: each.transactional_id == SLOTS[0],
    )

    found = abort(world)

    assert found[SLOTS[0]] == "aborted"
    assert found[DRIVER] == "fenced"
    assert fenced_first == [True]
    assert world.state(SLOTS[0]) == "CompleteAbort"


@pytest.mark.parametrize("fence", [False, True])
def test_what_is_decided_and_open_is_never_aborted_nor_fenced(world: World, fence: bool) -> None:
    decided(world)

    found = abort(world, fence=fence)

    assert [found[name] for name in SLOTS[:2]] == ["refused", "refused"]
    assert [world.state(name) for name in SLOTS[:2]] == ["Ongoing"] * 2
    assert commit(world) == dict.fromkeys(SLOTS[:2], "committed")


def test_a_decision_whose_driver_was_still_at_it_is_not_decided(world: World) -> None:
    seal = world.slot(0)
    driver = world.decide(decision_of([seal]), commit=False)

    assert abort(world)[SLOTS[0]] == "aborted"

    assert world.ledger.look().newest is None
    with pytest.raises(OutcomeUnknown):
        driver.commit()
    assert world.shown(OUTPUT[0]) == []


def test_a_decision_whose_marker_is_missing_is_settled_before_anything_is_called_undecided(
    world: World,
) -> None:
    seal = world.slot(0)
    forgotten = world.kafka.forget_marker(world.where)
    world.decide(decision_of([seal]))

    assert abort(world)[SLOTS[0]] == "refused"

    assert forgotten.fired == 1
    assert world.state(SLOTS[0]) == "Ongoing"
    assert commit(world) == {SLOTS[0]: "committed"}


def test_a_fence_takes_the_id_from_whoever_still_writes_under_it(world: World) -> None:
    seal = world.slot(0)

    assert abort(world, fence=True)[SLOTS[0]] == "fenced"

    assert seal.identity is not None
    assert world.identity(SLOTS[0]).epoch > seal.identity.epoch
    assert world.state(SLOTS[0]) == "Empty"


def test_an_abort_without_an_answer_is_unknown_unless_the_coordinator_shows_it(world: World) -> None:
    world.slot(0)
    refused = world.kafka.fault(
        "EndTxn",
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        times=99,
        matches=lambda each: each.transactional_id == SLOTS[0],
    )

    assert abort(world, SLOTS[0])[SLOTS[0]] == "unknown"

    assert refused.fired == 1
    assert world.state(SLOTS[0]) == "Ongoing"


def test_a_named_id_under_which_nothing_is_open_is_unchanged(world: World) -> None:
    world.end(world.slot(3), commit=False)

    assert abort(world, SLOTS[3], "pipe:88") == {SLOTS[3]: "unchanged", "pipe:88": "unchanged"}


def test_a_run_that_was_fenced_by_an_operator_decides_nothing_any_more(world: World) -> None:
    driver = world.driver()
    seal: Seal = world.slot(0)
    abort(world)

    with pytest.raises(ProducerFenced):
        world.decide(decision_of([seal]), driver)

    assert world.ledger.look().newest is None
