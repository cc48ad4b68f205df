"""A ledger topic that gets more partitions moves the keys: what was decided before is found, and nobody writes it
twice.

On a cluster in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ProducerFenced
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import one_value
from pyspark_kafka_eos.commit import dataframe_write
from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.commit.decision import reinitialize_forgotten
from pyspark_kafka_eos.commit.ledger.notes import Moved, Settled, note_key
from pyspark_kafka_eos.commit.ledger.places import Places
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.ledger.writers import Writers
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.operations import decision_checks
from pyspark_kafka_eos.operations.known import require_known
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import murmur2_of
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    LEDGER,
    OUTPUT,
    PIPELINE,
    NodeCluster,
    World,
    decision_of,
)
from tests.pyspark_kafka_eos.commit.test_markers import Killed, kill_at
from tests.pyspark_kafka_eos.commit.ways import (
    OPTIONS,
    WAYS,
    HandedOver,
    InOneProcess,
    Way,
    lines,
    options,
    play,
)

ROWS = {0: {0: 2}, 1: {1: 1}}


@pytest.fixture(autouse=True)
def one_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process finds the cluster in memory, and keeps nothing of another test."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
    runtime.forget(runtime.process_id())
    yield
    runtime.forget(runtime.process_id())


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, world: World) -> Way:
    return WAYS[request.param](world)


def key_in(count: int) -> int:
    """The partition of the pipeline's key among so many."""
    return (int(murmur2_of(one_value(PIPELINE.encode()))[0]) & 0x7FFFFFFF) % count


def grow(world: World, count: int) -> None:
    """The ledger topic has so many partitions from now on; who is at work does not know it yet."""
    if count > world.kafka.topic(LEDGER).partitions:
        world.kafka.grow(LEDGER, count)


def counts(*, back: bool) -> tuple[int, int, int]:
    """Three numbers of partitions, each larger than the one before, of which the second moves the key, and the third
    moves it again: back to where it was first, or to a third partition.
    """
    first = 8
    for second in range(first + 1, 40):
        for third in range(second + 1, 80):
            places = [key_in(first), key_in(second), key_in(third)]
            if len(set(places)) == (2 if back else 3) and places[1] not in (places[0], places[2]):
                return first, second, third
    raise AssertionError("no such numbers")


FIRST, SECOND, THIRD = counts(back=False)
_, AWAY, BACK = counts(back=True)


def decided_in(world: World, count: int) -> list[int]:
    """The batches that each reader of committed records finds under the key, in the key's partition among so many."""
    ledger = Ledger(NodeCluster(world.kafka), LEDGER, PIPELINE)
    where = TopicPartition(LEDGER, key_in(count))
    places = Places(ledger.cluster, LEDGER, PIPELINE, Writers(ledger.cluster, PIPELINE))
    newest = places._read([where]).newest
    return [] if newest is None else [newest.batch_id]


def written(world: World) -> list[int]:
    return [len(world.shown(where)) for where in OUTPUT[:2]]


@pytest.mark.parametrize("third", [THIRD, BACK], ids=["elsewhere", "back"])
def test_a_pipeline_goes_on_after_each_change_and_moves_to_its_keys_partition(
    world: World, way: Way, third: int
) -> None:
    numbers = (FIRST, SECOND, THIRD) if third == THIRD else (FIRST, AWAY, BACK)
    for batch_id, count in enumerate(numbers):
        grow(world, count)
        way.restart()
        way.batch(2 * batch_id, ROWS)
        way.batch(2 * batch_id + 1, ROWS)
        assert decided_in(world, count) == [2 * batch_id + 1]
        (said, *_) = decision_checks.newest_decision(NodeCluster(world.kafka), options())
        assert f"batch {2 * batch_id + 1} of query query" in said.seen

    assert written(world) == [12, 6]


def test_a_decided_batch_is_known_after_a_change_and_not_written_again(world: World) -> None:
    grow(world, FIRST)
    InOneProcess(world).batch(0, ROWS)
    grow(world, SECOND)
    world.fresh_process()

    report = PerTask(Run(world.cluster, options(), "query")).start(0, None, lines(0))

    assert report is not None and report.resumed
    require_known(NodeCluster(world.kafka), LEDGER, PIPELINE, [f"{PIPELINE}:1"])
    assert written(world) == [2, 1]


def test_an_older_decision_in_the_keys_partition_does_not_hide_the_newer_one(world: World) -> None:
    """Changed twice, back to the first partition: it has batch 0, and another one has batch 1."""
    way = InOneProcess(world)
    for batch_id, count in enumerate((FIRST, AWAY)):
        grow(world, count)
        way.restart()
        way.batch(batch_id, ROWS)
    grow(world, BACK)
    way.restart()
    assert decided_in(world, BACK) == [0]

    report = PerTask(Run(world.cluster, options(), "query")).start(1, None, lines(1))

    assert report is not None and (report.batch_id, report.resumed) == (1, True)
    assert written(world) == [4, 2]


def test_a_running_query_stays_where_it_is_until_its_next_start(world: World, way: Way) -> None:
    grow(world, FIRST)
    way.batch(0, ROWS)
    grow(world, SECOND)
    # Whatever else this process asks of the topic.
    world.cluster.topic(LEDGER, refresh=True)

    if isinstance(way, HandedOver) and way.forgets:
        way.batch(1, ROWS)
        assert decided_in(world, SECOND) == [1]
    else:
        way.batch(1, ROWS)
        assert decided_in(world, FIRST) == [1]
        way.restart()
        way.batch(2, ROWS)
        assert decided_in(world, SECOND) == [2]


def test_a_dataframe_is_not_written_again_after_a_change_when_its_ids_have_expired(world: World) -> None:
    chosen = SinkOptions.parse({**OPTIONS, "batch.id": "5"}, "batch")
    grow(world, FIRST)
    begun = dataframe_write.begin(chosen)
    seals = [world.slot(0, {0: 2})]
    assert dataframe_write.commit(begun, seals, 1) is not None
    grow(world, SECOND)
    world.fresh_process()
    for name in list(world.kafka.ids()):
        world.kafka.expire(name)

    again = dataframe_write.begin(chosen)

    # What it would have written is measured and compared, and nothing is committed.
    assert again.handover is None and again.decided is not None
    assert written(world) == [2, 0]


# ---- two runs with different metadata


def test_a_run_with_older_metadata_finds_what_a_newer_one_has_decided_elsewhere(world: World) -> None:
    grow(world, FIRST)
    older = PerTask(Run(world.cluster, options(), "query"))
    older.start(0, None, lines(0))
    play(world, older, 0, ROWS)
    grow(world, SECOND)
    newer = PerTask(Run(NodeCluster(world.kafka), options(), "query"))
    newer.start(1, None, lines(1))
    play(world, newer, 1, ROWS)
    # The older one has rested so long that the coordinator does not tell it of the newer one.
    world.kafka.expire(DRIVER)

    with pytest.raises(ProducerFenced, match="has decided batch 1 while this run was idle"):
        reinitialize_forgotten(older.run.producer, older.run.ledger, older.run.newest)

    assert written(world) == [4, 2]


def test_of_two_new_runs_with_different_metadata_the_later_one_knows_what_the_other_decided(
    world: World,
) -> None:
    """The other decides while the later one waits for the fence, in a partition that the later one's key is not in."""
    grow(world, FIRST)
    other = PerTask(Run(world.cluster, options(), "query"))
    other.start(0, None, lines(0))
    grow(world, SECOND)
    later = PerTask(Run(NodeCluster(world.kafka), options(), "query"))
    between = world.kafka.fault(
        "InitProducerId",
        lambda: play(world, other, 0, ROWS),
        matches=lambda asked: asked.transactional_id == DRIVER,
    )

    report = later.start(0, None, lines(0))

    assert between.fired == 1
    assert report is not None and report.resumed
    assert written(world) == [2, 1]


def test_metadata_that_lag_behind_a_note_are_waited_for(world: World) -> None:
    way = InOneProcess(world)
    grow(world, FIRST)
    way.batch(0, ROWS)
    grow(world, SECOND)
    way.restart()
    way.batch(1, ROWS)
    world.kafka.told[LEDGER] = FIRST
    world.fresh_process()
    world.kafka.at_pause(world.kafka.told.clear)

    newest = world.ledger.look().newest

    assert newest is not None and newest.batch_id == 1


def test_metadata_that_stay_behind_a_note_are_refused_naming_both_numbers(world: World) -> None:
    grow(world, FIRST)
    InOneProcess(world).batch(0, ROWS)
    world.ledger.look()
    world.ledger.note(Moved(SECOND))
    before = world.kafka.log(world.where).end
    world.fresh_process()

    with pytest.raises(BrokerUnavailable, match=f"report {FIRST} partitions .* names {SECOND}"):
        PerTask(Run(world.cluster, options(), "query")).start(1, None, lines(1))

    assert world.kafka.log(world.where).end == before


# ---- killed while it moves


@pytest.mark.parametrize("point", ["before-decision", "decision-written", "decision-answered", "after-decision"])
def test_a_run_that_is_killed_while_it_moves_loses_and_repeats_nothing(world: World, point: str) -> None:
    way = InOneProcess(world)
    grow(world, FIRST)
    way.batch(0, ROWS)
    grow(world, SECOND)
    way.restart()
    kill_at(point)
    with pytest.raises(Killed):
        way.batch(1, ROWS)
    grow(world, THIRD)
    way.restart()

    driver = PerTask(Run(world.cluster, options(), "query"))
    report = driver.start(1, None, lines(1))
    if report is None:
        play(world, driver, 1, ROWS)

    assert (report is not None) is (point in ("decision-answered", "after-decision"))
    assert written(world) == [4, 2]


def test_a_decision_without_its_marker_is_settled_where_it_is(world: World) -> None:
    """Its note goes beside it: an offset says nothing in another partition."""
    way = InOneProcess(world)
    grow(world, FIRST)
    way.batch(0, ROWS)
    before = TopicPartition(LEDGER, key_in(FIRST))
    forgotten = world.kafka.forget_marker(before, DRIVER)
    way.batch(1, ROWS)
    assert forgotten.fired == 1
    grow(world, SECOND)
    way.restart()

    way.batch(2, ROWS)

    noted = note_key(PIPELINE.encode(), Settled(0, world.identity(DRIVER), decision_of([])))
    assert noted in world.ledger_keys(before)
    assert decided_in(world, SECOND) == [2]
    assert written(world) == [6, 3]


def test_a_marker_that_is_mended_behind_the_move_is_noted_beside_the_new_decision(world: World) -> None:
    way = InOneProcess(world)
    grow(world, FIRST)
    way.batch(0, ROWS)
    grow(world, SECOND)
    way.restart()
    forgotten = world.kafka.forget_marker(OUTPUT[1], f"{PIPELINE}:1")
    kill_at("mend-added")

    with pytest.raises(Killed):
        way.batch(1, ROWS)

    assert forgotten.fired == 1
    way.restart()
    view = world.ledger.look()
    assert view.where == TopicPartition(LEDGER, key_in(SECOND))
    assert [each.transactional_id for each in view.unfinished] == [f"{PIPELINE}:1"]
    report = PerTask(Run(world.cluster, options(), "query")).start(1, None, lines(1))
    assert report is not None and report.resumed
    assert written(world) == [4, 2]


# ---- its price


@pytest.fixture
def asked(world: World) -> Callable[[Callable[[], object]], dict[str, int]]:
    def count(action: Callable[[], object]) -> dict[str, int]:
        before = dict(world.kafka.asked)
        action()
        return {api: n - before.get(api, 0) for api, n in world.kafka.asked.items() if n > before.get(api, 0)}

    return count


def test_a_pipeline_that_goes_on_reads_one_partition(
    world: World, asked: Callable[[Callable[[], object]], dict[str, int]]
) -> None:
    grow(world, 50)
    InOneProcess(world).batch(0, ROWS)
    world.fresh_process()

    writers = {"FindCoordinator": 1, "DescribeTransactions": 1}
    assert asked(world.ledger.look) == {"Metadata": 1, "ListOffsets": 2, "Fetch": 1} | writers
    assert asked(world.ledger.look) == {"ListOffsets": 1}


def test_a_new_pipeline_asks_once_for_all_partitions(
    world: World, asked: Callable[[Callable[[], object]], dict[str, int]]
) -> None:
    grow(world, 50)
    others = [Ledger(world.cluster, LEDGER, f"other-{number}") for number in range(3)]
    for each in others:
        each.note(Moved(1))
    busy = len({each.partition for each in others})

    # The own partition first, then all.
    writers = {"FindCoordinator": 1, "DescribeTransactions": 1}
    assert asked(world.ledger.look) == {"Metadata": 1, "ListOffsets": 4, "Fetch": busy} | writers
    again = asked(world.ledger.look)
    assert again == {"Metadata": 1, "ListOffsets": 2}


def test_a_name_that_was_made_up_for_one_write_is_looked_for_nowhere_else(
    world: World, asked: Callable[[Callable[[], object]], dict[str, int]]
) -> None:
    grow(world, 50)
    ledger = Ledger(world.cluster, LEDGER, UNNAMED + "0" * 32, fresh=True)

    assert asked(ledger.look) == {"Metadata": 1, "ListOffsets": 2}
