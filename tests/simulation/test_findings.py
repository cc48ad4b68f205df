"""What campaigns found, played by hand, and what counts as one fault."""

from __future__ import annotations

import pytest

from tests.simulation import circumstances as given
from tests.simulation.circumstances import LEDGER
from tests.simulation.faults import at_point
from tests.simulation.history import History, play_history
from tests.simulation.planted.recipes import KILL, at, forgotten, kill_this, moved_on
from tests.simulation.play import Scene, play
from tests.simulation.requests import REQUEST_FAULTS, Extent

pytestmark = pytest.mark.simulation

VERSIONS = pytest.mark.parametrize("version", [1, 2])


@VERSIONS
@pytest.mark.parametrize("victim", [KILL, kill_this], ids=["driver", "task"])
def test_the_try_behind_a_decision_without_its_marker_is_not_taken_for_a_mending(victim: object, version: int) -> None:
    faults = at({"before-decision": [forgotten(LEDGER)], ("after-last-acknowledgement", 3): [victim]})  # type: ignore[list-item]
    outcome = play(1, faults, scope="batch", transaction_version=version, batches=3)
    assert not outcome.problems, outcome.problems


def _doubled(api: str, again_s: float) -> object:
    return lambda scene: REQUEST_FAULTS["doubled request"][0](scene, api, 1, Extent(again_s=(again_s,)))


def test_a_made_decision_stays_made_where_a_late_request_opens_its_transaction_again() -> None:
    acts = [forgotten(LEDGER), _doubled("AddPartitionsToTxn", 0.012)]
    outcome = play(
        1,
        at(
            {
                "before-decision": acts,
                "after-end": [lambda scene: scene.world.schedule(0.002, lambda: KILL(scene))],
            }
        ),  # type: ignore[dict-item]
        transaction_version=1,
    )
    assert outcome.fired["doubled request AddPartitionsToTxn"] == 1
    assert not outcome.problems, outcome.problems


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_the_network_delivers_twice_commits_the_same_offsets_again(version: int) -> None:
    """Only version 1 carries it out again; the judge holds no decision against it that is not there."""
    acts = [
        _doubled(api, again_s)
        for api, again_s in (("AddOffsetsToTxn", 0.030), ("TxnOffsetCommit", 0.040), ("EndTxn", 0.050))
        if version == 1 or api != "AddOffsetsToTxn"
    ]
    outcome = play(1, at({"before-decision": acts}), transaction_version=version, batches=1)  # type: ignore[dict-item]
    assert outcome.fired["doubled request TxnOffsetCommit"] == 1
    assert not outcome.problems, outcome.problems


def test_what_lasts_counts_once() -> None:
    def faults(scene: Scene) -> None:
        def strike(scene: Scene) -> None:
            given.disk_full(scene, 5.0)
            given.denied(scene, ("WRITE", "TOPIC", LEDGER), 8.0)
            scene.net.cut("executor0", "broker", 3.0)

        at_point("before-check", strike)(scene)

    outcome = play(2, faults, batches=3)

    assert not outcome.problems, outcome.problems
    # The one direction of the one link, however many messages waited.
    assert outcome.fired == {"disk full": 1, "right denied": 1} | (
        {"cut link": 1} if "cut link" in outcome.fired else {}
    )


def test_what_one_fault_brings_about_is_not_counted_again() -> None:
    def torn(scene: Scene) -> None:
        given.torn_write(scene)

    assert play(0, at_point("before-decision", torn)).fired == {"torn write": 1}
    assert play(0, at_point("before-decision", "zombie")).fired == {"zombie": 1}
    assert play(0).fired == {}, "the broker's end after a history is no fault"


def killed_for_longer_than_ids_live(scene: Scene) -> None:
    """The driver is killed, and transactional ids expire before the next one starts."""
    scene.world.schedule(0.1, lambda: given.long_rest(scene, 8.0))
    KILL(scene)


@VERSIONS
def test_what_no_client_can_end_is_repaired_after_the_command_that_the_error_names(version: int) -> None:
    """A slot's marker is forgotten, the driver dies before it is mended, and the slot's transactional id expires
    meanwhile.
    """
    outcome = play(
        1,
        at({"before-decision": [forgotten(given.OUTPUT)], "before-mend": [killed_for_longer_than_ids_live]}),  # type: ignore[dict-item]
        transaction_version=version,
    )

    assert not outcome.problems, outcome.problems
    assert [error.split(" [")[0] for error in outcome.errors if error.startswith("DecisionBroken: ")]
    assert outcome.repaired == 1


@VERSIONS
def test_a_decision_of_which_no_trace_is_left_is_recreated_after_the_command_that_the_error_names(
    version: int,
) -> None:
    outcome = play(
        1,
        at({"before-decision": [forgotten(LEDGER)], "after-decision": [killed_for_longer_than_ids_live]}),  # type: ignore[dict-item]
        transaction_version=version,
    )

    assert not outcome.problems, outcome.problems
    assert [error for error in outcome.errors if "it is written anew" in error]
    assert outcome.repaired == 0


@VERSIONS
@pytest.mark.parametrize("job", ["", "handed over"])
@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("point", ["after-decision", "after-end"])
def test_a_decided_batch_that_spark_takes_for_done_is_ended_before_the_next_one_begins(
    point: str, scope: str, job: str, version: int
) -> None:
    if scope == "batch" and point == "after-end":
        pytest.skip("with one transaction the decision is the end")
    outcome = play(
        1,
        at({point: [moved_on]}),
        scope=scope,
        transaction_version=version,
        job=job,
        batches=3,  # type: ignore[list-item]
    )

    assert not outcome.problems, outcome.problems
    assert outcome.fired["commit log moved on"] == 1 and outcome.repaired == 0


OVERTAKEN = (
    '{"seed": 956943060378, "scope": "task", "version": 1, "batches": 2, '
    '"strikes": [["zombie", "time", 0.03606381932209376, 853764915], ["calm", "time", 60.0, 196613467]]}'
)


def test_a_driver_that_was_abandoned_before_it_took_its_id_ends_its_successor_and_no_more() -> None:
    """It goes on as the newest run. The budget of one zombie did not know it: one of 500 histories of a rehearsal."""
    outcome = play_history(History.parse(OVERTAKEN))

    assert not outcome.problems, outcome.problems
    assert (outcome.fired, outcome.runs) == ({"zombie": 1}, 3)
    assert [error.split(":")[0] for error in outcome.errors] == ["ProducerFenced"]
