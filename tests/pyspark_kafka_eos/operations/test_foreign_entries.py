"""What somebody else wrote under a pipeline's keys takes no place of its own batches in `verify` and `ledger`, and says
nothing of them. In memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.commit.ledger.notes import Ended, Named, Settled, note_key, to_bytes
from pyspark_kafka_eos.model import Decision
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.fakes import (
    DECIDED_MS,
    DRIVER,
    LEDGER,
    OLDER_IS_SLOW,
    PIPELINE,
    World,
    decision_of,
)

pytestmark = [
    pytest.mark.usefixtures("one_cluster"),
    pytest.mark.parametrize("world", OLDER_IS_SLOW, indirect=True),
]

KEY = PIPELINE.encode()
LAST = 5
FORGED = 20


def batch(world: World, batch_id: int) -> Decision:
    """A batch of one slot, decided and ended."""
    seal = world.slot(0, {0: 1})
    decision = decision_of([seal], batch_id=batch_id, number=batch_id + 1, writers=world.ledger.writers)
    world.decide(decision)
    world.end(seal, commit=True)
    return decision


Writes = Callable[[World, bytes, bytes], None]


@pytest.fixture(
    params=[stranger.plainly, stranger.in_a_transaction_of_his_own, stranger.left_open], ids=lambda how: how.__name__
)
def forge(request: pytest.FixtureRequest) -> Writes:
    return request.param


def following(decision: Decision) -> bytes:
    """The next batch, of the same slots."""
    return replace(decision, batch_id=decision.batch_id + 1, number=decision.number + 1).to_bytes()


FORGERIES: dict[str, Callable[[Decision], tuple[bytes, bytes]]] = {
    "the next batch": lambda last: (KEY, following(last)),
    "the same batch": lambda last: (KEY, last.to_bytes()),
    "the same batch, with other contents": lambda last: (KEY, replace(last, decided_ms=1).to_bytes()),
    "no decision": lambda _: (KEY, b"junk"),
}


def command(world: World, *words: str) -> dict[str, Any]:
    world.fresh_process()
    done = CliRunner().invoke(
        app, [*words, "-b", "memory:1", "-o", f"ledger.topic={LEDGER}", "-o", "topic=out", "--json"]
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def verified(world: World, *name: str) -> Any:
    found = command(world, "verify", *name, "--last", str(LAST))
    return found["batches"], found["undecided"], found["problems"], found["older"]


def listed(world: World, *name: str) -> list[Any]:
    """The entries of the pipeline that `ledger` shows as its own."""
    (found,) = command(world, "ledger", *name, "--last", str(LAST))["pipelines"]
    return [each for each in found["decisions"] if each["status"] != "foreign"]


@pytest.mark.parametrize("name", [[PIPELINE], []], ids=["named", "all"])
@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("behind", [True, False], ids=["behind", "among"])
def test_forged_records_take_no_place_of_the_batches_of_the_pipeline(
    world: World, forge: Writes, forgery: str, behind: bool, name: list[str]
) -> None:
    for batch_id in range(6):
        last = batch(world, batch_id)
    if behind:
        seen, shown = verified(world, *name), listed(world, *name)
    for _ in range(FORGED):
        forge(world, *FORGERIES[forgery](last))
    if not behind:
        batch(world, 6)

    batches, undecided, problems, older = verified(world, *name)

    newest = range(1, 6) if behind else range(2, 7)
    assert [(each["batch_id"], each["decided_ms"]) for each in batches] == [(n, DECIDED_MS + n) for n in newest]
    assert (undecided, problems, older) == ([], [], [PIPELINE])
    # Among the pipeline's own, one with a number that comes next may be of an id that was replaced.
    ids = [each["batch_id"] for each in listed(world, *name)]
    assert sorted(set(ids)) == [*newest]
    assert len(ids) <= len(newest) + (not behind)
    if behind:
        assert (seen, shown) == (verified(world, *name), listed(world, *name))


def test_forged_notes_hide_no_decision_and_end_none(world: World, forge: Writes) -> None:
    for batch_id in range(6):
        last = batch(world, batch_id)
    offset = next(each["offset"] for each in listed(world) if each["batch_id"] == 5)
    open_ = decision_of([], batch_id=6, number=7, writers=last.writers)
    world.decide(open_, commit=False)
    before = verified(world), listed(world)
    for note in (Settled(offset, ProducerIdentity(1, 1), last), Ended.of_decision(open_)):
        forge(world, note_key(KEY, note), to_bytes(note))

    assert (verified(world), listed(world)) == before
    assert listed(world)[0]["status"] == "open"


def test_what_somebody_else_wrote_is_shown_as_foreign_as_often_as_there_are_own_ones(
    world: World, forge: Writes
) -> None:
    for batch_id in range(6):
        last = batch(world, batch_id)
    for _ in range(FORGED):
        forge(world, KEY, following(last))

    (found,) = command(world, "ledger", PIPELINE, "--last", str(LAST))["pipelines"]

    statuses = [each["status"] for each in found["decisions"]]
    # Each transaction that he opens ends the one that he has left open.
    there = 1 if forge is stranger.left_open else LAST
    assert (statuses.count("foreign"), statuses.count("decided")) == (there, LAST)
    assert command(world, "ledger", PIPELINE)["exit_code"] == 0


def test_batches_of_ids_that_were_replaced_are_verified(world: World) -> None:
    """After a rest that was longer than coordinators know an id."""
    for batch_id in range(3):
        batch(world, batch_id)
    # A start behind the rest leaves a note of its ids; beside the decisions before, these would be foreign.
    world.kafka.expire(DRIVER)
    world.fresh_process()
    world.ledger.look()
    world.ledger.note(Named((world.driver().identity.producer_id,)))
    world.fresh_process()
    batch(world, 3)

    assert [each["batch_id"] for each in verified(world, PIPELINE)[0]] == [0, 1, 2, 3]
