"""Somebody with WRITE on the shared ledger, and none on the pipeline's transactional ids, makes no run skip or repeat a
record.

He reads all of the ledger, so he knows names, queries and producer ids. On a cluster in memory, by each way to write.
Source: docs/tenants.md; the broker's check is KIP-890's, from 3.6 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from kafka_core import runtime
from kafka_core.errors import AbortableError, ExactlyOnceError, PipelineConflict
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.ledger.notes import (
    Aborted,
    Ended,
    Mending,
    Note,
    Renamed,
    Settled,
    note_key,
    to_bytes,
)
from pyspark_kafka_eos.model import Decision
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, OLDER_IS_SLOW, OUTPUT, PIPELINE, SOURCE, NodeCluster, World
from tests.pyspark_kafka_eos.commit.ways import WAYS, HandedOver, Way, lines, options, seals_of

pytestmark = pytest.mark.parametrize("world", OLDER_IS_SLOW, indirect=True)

KEY = PIPELINE.encode()
ROWS = {0: {0: 1}, 1: {1: 1}}
"""Of each batch: a record of each of two slots."""


class Killed(BaseException):
    """Where the process dies."""


@pytest.fixture(autouse=True)
def one_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process finds the cluster in memory, and keeps nothing of another test."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
    runtime.forget(runtime.process_id())
    yield
    crash_points.arm("")
    runtime.forget(runtime.process_id())


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, world: World) -> Way:
    return WAYS[request.param](world)


# ---- how he writes


def under_the_drivers_producer_id(world: World, key: bytes, value: bytes | None) -> None:
    """Idempotently: a broker takes any producer id then."""
    _under_the_next_epoch(world, key, value, DRIVER)


def under_the_notes_producer_id(world: World, key: bytes, value: bytes | None) -> None:
    _under_the_next_epoch(world, key, value, f"{PIPELINE}:notes")


def _under_the_next_epoch(world: World, key: bytes, value: bytes | None, name: str) -> None:
    now = world.identity(name)
    following = replace(now, epoch=now.epoch + 1)
    stranger.put(NodeCluster(world.kafka), world.where, key, value, following)


HOW = [
    stranger.plainly,
    under_the_drivers_producer_id,
    under_the_notes_producer_id,
    stranger.in_a_transaction_of_his_own,
]
Writes = Callable[[World, bytes, bytes | None], None]


def _begun(world: World) -> Producer:
    return stranger.begun(NodeCluster(world.kafka), "evil:driver")


@pytest.fixture(params=HOW, ids=lambda how: how.__name__)
def forge(request: pytest.FixtureRequest) -> Writes:
    return request.param


def note(world: World, forge: Writes, forged: Note) -> None:
    forge(world, note_key(KEY, forged), to_bytes(forged))


# ---- what is seen


def newest(world: World) -> Decision:
    found = world.ledger.look().newest
    assert found is not None
    return found


def forged_next(world: World) -> Decision:
    """The next batch, with its true source offsets; its rows are said to be those of the one before."""
    last = newest(world)
    following = last.batch_id + 1
    return replace(
        last,
        batch_id=following,
        source_offsets=lines(following),
        decided_ms=last.decided_ms + 1,
        number=last.number + 1,
    )


def written(world: World) -> list[int]:
    """How many records readers see of each of the two slots."""
    return [len(world.shown(where)) for where in OUTPUT[:2]]


def goes_on(way: Way, batch_id: int) -> None:
    """The batch, as Spark retries it: an epoch that he has used already is given up, with nothing visible."""
    try:
        way.batch(batch_id, ROWS)
    except AbortableError:
        way.restart()
        way.batch(batch_id, ROWS)


def killed_at(point: str, way: Way, batch_id: int) -> None:
    def kill() -> None:
        raise Killed

    crash_points.arm(point, 1, kill)
    with pytest.raises(Killed):
        way.batch(batch_id, ROWS)
    crash_points.arm("")
    way.restart()


# ---- decisions


def test_the_next_batch_is_written_though_a_forged_decision_says_that_it_was(
    world: World, way: Way, forge: Writes
) -> None:
    way.batch(0, ROWS)
    forge(world, KEY, forged_next(world).to_bytes())
    way.restart()

    goes_on(way, 1)

    assert written(world) == [2, 2]
    assert newest(world).batch_id == 1


def test_a_batch_is_not_written_twice_though_an_older_decision_is_put_behind_it(
    world: World, way: Way, forge: Writes
) -> None:
    way.batch(0, ROWS)
    older = newest(world)
    way.batch(1, ROWS)
    forge(world, KEY, older.to_bytes())
    way.restart()

    way.again(1)

    assert written(world) == [2, 2]
    assert newest(world).batch_id == 1


def test_a_record_that_cannot_be_read_stops_nobody(world: World, way: Way, forge: Writes) -> None:
    way.batch(0, ROWS)
    forge(world, KEY, b"no decision")
    forge(world, note_key(KEY, Renamed("query", "x")), b"no note")
    way.restart()

    goes_on(way, 1)

    assert written(world) == [2, 2]


def test_what_he_has_open_under_the_key_is_not_waited_for(world: World, way: Way) -> None:
    way.batch(0, ROWS)
    his = _begun(world)
    stranger.send(his, world.where, KEY, forged_next(world).to_bytes())
    way.restart()

    goes_on(way, 1)

    assert written(world) == [2, 2]
    his.abort()


# ---- notes


def test_a_decided_batch_is_finished_though_a_forged_note_says_that_it_is(
    world: World, way: Way, forge: Writes
) -> None:
    way.batch(0, ROWS)
    killed_at("after-decision", way, 1)
    note(world, forge, Ended.of_decision(newest(world), world.identity(DRIVER)))

    way.again(1)

    assert written(world) == [2, 2]


def test_a_forged_note_decides_nothing(world: World, way: Way, forge: Writes) -> None:
    way.batch(0, ROWS)
    end = world.kafka.log(world.where).end
    note(world, forge, Settled(end + 1000, world.identity(DRIVER), forged_next(world)))
    way.restart()

    goes_on(way, 1)

    assert written(world) == [2, 2]


def test_what_is_committed_is_not_written_again_because_of_a_forged_note(world: World, way: Way, forge: Writes) -> None:
    way.batch(0, ROWS)
    killed_at("after-end", way, 1)
    for seal in newest(world).seals:
        if seal.identity is not None:
            note(world, forge, Aborted(seal.transactional_id, seal.identity))

    way.again(1)

    assert written(world) == [2, 2]


def test_a_late_attempt_is_not_committed_because_of_a_forged_note(world: World, forge: Writes) -> None:
    seal = world.slot(0)
    world.decide(replace(_decision(world), seals=(seal,), writers=(world.identity(DRIVER).producer_id,)))
    world.end(seal, commit=True)
    late = world.slot(0)
    assert late.identity is not None
    world.transactions.init_producer_id(f"{PIPELINE}:notes", 1000)
    note(world, forge, Mending(late.transactional_id, late.identity, ()))
    world.fresh_process()

    world.mender.finish(world.ledger.look())

    assert world.state(late.transactional_id) == "Ongoing"


def test_the_query_goes_on_under_its_name_whatever_a_forged_note_says(world: World, way: Way, forge: Writes) -> None:
    way.batch(0, ROWS)
    note(world, forge, Renamed("query", "evil"))
    way.restart()

    goes_on(way, 1)

    assert written(world) == [2, 2]


# ---- scope=batch, whose decisions are of another id


def test_a_decision_of_a_whole_batch_is_the_newest_one_whatever_stands_behind_it(world: World, forge: Writes) -> None:
    world.driver()
    world.transactions.init_producer_id(f"{PIPELINE}:notes", 1000)
    batch = Producer(world.cluster, f"{PIPELINE}:batch")
    batch.initialize()
    world.decide(Decision(PIPELINE, "query", 0, (), number=1), batch)
    forge(world, KEY, Decision(PIPELINE, "query", 1, (), number=2).to_bytes())
    world.fresh_process()

    view = world.ledger.look()

    assert view.newest is not None and view.newest.batch_id == 0
    assert view.known
    assert view.foreign is not None


# ---- other producer ids


@pytest.mark.parametrize("name", ["driver", "notes"])
def test_a_pipeline_goes_on_when_an_id_gets_another_producer_id(world: World, way: Way, name: str) -> None:
    """Its epochs are at their end; with transaction version 2 the answer to an EndTxn names the new one."""
    way.batch(0, ROWS)
    before = world.identity(f"{PIPELINE}:{name}").producer_id
    way.restart()
    world.kafka.set_epoch(f"{PIPELINE}:{name}", 32_760)

    for batch_id in range(1, 12):
        way.batch(batch_id, ROWS)
    way.restart()
    way.again(11)
    way.restart()
    way.batch(12, ROWS)

    assert world.identity(f"{PIPELINE}:{name}").producer_id != before
    assert written(world) == [13, 13]


@pytest.mark.parametrize("name", ["driver", "notes"])
def test_a_decided_batch_is_not_written_twice_when_the_next_start_gets_another_producer_id(
    world: World, way: Way, name: str
) -> None:
    way.batch(0, ROWS)
    killed_at("after-end", way, 1)
    before = world.identity(f"{PIPELINE}:{name}").producer_id
    world.kafka.set_epoch(f"{PIPELINE}:{name}", 32_766)

    for _ in range(3):
        way.again(1)
        way.restart()
    way.batch(2, ROWS)

    assert world.identity(f"{PIPELINE}:{name}").producer_id != before
    assert written(world) == [3, 3]


# ---- where the pipeline's own records are not there, yet or any more


def test_the_first_batch_is_written_though_a_forged_decision_comes_while_its_tasks_write(
    world: World, forge: Writes
) -> None:
    """By format, where another process ends the batch than began it."""
    _, handover = ho.begin(world.cluster, options(), "query", 0, lines(0))
    forge(world, KEY, Decision(PIPELINE, "query", 0, (), number=1, source_offsets=lines(0)).to_bytes())
    HandedOver(world).restart()
    seals = seals_of(world, ROWS)

    try:
        ho.finish(world.cluster, options(), handover, seals, lines(0), {SOURCE: 1})
    except AbortableError:
        HandedOver(world).restart()
        HandedOver(world).batch(0, ROWS)

    assert written(world) == [1, 1]


def test_a_forged_decision_that_has_taken_the_place_of_the_pipelines_own_stops_the_start(
    world: World, way: Way, forge: Writes
) -> None:
    """Compaction keeps the newest record of a key. It names every id as the decision before did."""
    way.batch(0, ROWS)
    way.batch(1, ROWS)
    forged = replace(forged_next(world), seals=(), earlier=tuple(sorted(newest(world).ends.items())))
    way.restart()
    end = world.kafka.log(world.where).end
    forge(world, KEY, forged.to_bytes())
    world.kafka.log(world.where).lose_beginning(end)
    way.restart()

    with pytest.raises(PipelineConflict, match="somebody else's record has taken their place"):
        way.batch(2, ROWS)

    assert written(world) == [2, 2]


def test_a_forged_decision_over_a_tombstone_and_far_behind_the_own_one_is_none(world: World, forge: Writes) -> None:
    way = HandedOver(world)
    way.batch(0, ROWS)
    forged = replace(forged_next(world), seals=(), earlier=tuple(sorted(newest(world).ends.items())))
    _, handover = ho.begin(world.cluster, options(), "query", 1, lines(1))
    for _ in range(600):
        stranger.plainly(world, b"neighbour", b"")
    stranger.plainly(world, KEY, None)
    forge(world, KEY, forged.to_bytes())
    way.restart()
    seals = seals_of(world, ROWS)

    with suppress(AbortableError):
        ho.finish(world.cluster, options(), handover, seals, lines(1), {SOURCE: 2})
        # The tombstone says that there is no such pipeline, which no batch is skipped for.
        assert written(world) == [2, 2]


def test_a_pipeline_rests_twice_for_longer_than_its_ids_are_known(world: World, way: Way) -> None:
    for batch_id in range(4):
        way.batch(batch_id, ROWS)
        way.restart()
        for name in ("driver", "batch", "notes", "0", "1"):
            world.kafka.expire(f"{PIPELINE}:{name}")

    assert written(world) == [4, 4]


# ---- where nobody can tell


def _decision(world: World) -> Decision:
    world.driver()
    return Decision(PIPELINE, "query", 0, ())


def test_a_pipeline_whose_ids_are_forgotten_goes_on_and_says_that_nobody_knows_its_writer(
    world: World, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    way.batch(0, ROWS)
    killed_at("after-end", way, 1)
    for name in ("driver", "batch", "notes", "0", "1"):
        world.kafka.expire(f"{PIPELINE}:{name}")

    way.again(1)

    assert written(world) == [2, 2]
    assert "no coordinator knows who wrote it" in caplog.text
    way.restart()
    way.batch(2, ROWS)
    way.restart()
    caplog.clear()
    way.batch(3, ROWS)
    assert written(world) == [4, 4]
    assert "no coordinator knows who wrote it" not in caplog.text


def test_a_forged_record_is_named_once_by_the_next_start(
    world: World, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    way.batch(0, ROWS)
    stranger.plainly(world, KEY, forged_next(world).to_bytes())
    way.restart()

    way.batch(1, ROWS)

    assert caplog.text.count("which somebody else wrote") == 1


def test_the_broker_lets_nobody_write_in_a_transaction_under_the_pipelines_producer_id(world: World, way: Way) -> None:
    way.batch(0, ROWS)
    his = _begun(world)
    for name in ("driver", "notes"):
        with pytest.raises(ExactlyOnceError):
            stranger.send(his, world.where, KEY, b"x", world.identity(f"{PIPELINE}:{name}"))
        his.abort()
        his = _begun(world)


@pytest.mark.parametrize("named", [True, False])
def test_a_decision_under_a_new_producer_id_counts_beside_an_older_one_that_does_not_name_it(
    world: World, named: bool
) -> None:
    """The batch's id was forgotten while the run rested, and is again, while the driver's is not."""
    driver = world.driver()
    first = Producer(world.cluster, f"{PIPELINE}:batch")
    first.initialize()
    world.ledger.written_by(driver.identity, first.identity)
    world.decide(Decision(PIPELINE, "query", 0, (), number=1, writers=world.ledger.writers), driver)
    world.ledger.look()
    world.kafka.expire(f"{PIPELINE}:batch")
    again = Producer(world.cluster, f"{PIPELINE}:batch")
    assert again.initialize().producer_id != first.identity.producer_id
    if not named:
        # As if the note were not there: this is what it is for.
        world.ledger._places.on_record |= {again.identity.producer_id}
    world.decide(Decision(PIPELINE, "query", 1, (), number=2), again)
    world.kafka.expire(f"{PIPELINE}:batch")
    world.fresh_process()

    view = world.ledger.look()

    assert view.newest is not None and view.newest.batch_id == int(named)
