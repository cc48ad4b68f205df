"""A pipeline without a decision: who else knows it, batches that it misses (`foreachBatch` functions that return),
renames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_core.errors import PipelineConflict
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.commit.dataframe_write import BATCH_WRITES
from pyspark_kafka_eos.commit.ledger.notes import Ended, to_bytes
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, LEDGER, PIPELINE, RUN_OPTIONS, World


@pytest.fixture
def wide(world: World) -> World:
    """The same with a ledger of three partitions."""
    world.kafka.grow(LEDGER, 3)
    world.fresh_process()
    return world


def run_of(world: World, query: str = "query", **more: Any) -> PerTask:
    """A new process's run."""
    world.fresh_process()
    given = {name.replace("__", "."): value for name, value in more.items()}
    options = SinkOptions.parse({**RUN_OPTIONS, "ledger.topic": LEDGER, **given})
    return PerTask(Run(world.cluster, options, query))


def write(world: World, driver: PerTask, batch_id: int, name: str | None = None) -> None:
    """One batch of one slot, to its end."""

    def task(_: object) -> Sequence[Seal]:
        driver.plan(batch_id)
        return [world.slot(0, name=name)]

    driver.process(batch_id, task, (f"offsets {batch_id}",), {}, lambda: 1)


def everything(world: World) -> dict[TopicPartition, int]:
    """How many batches each log has."""
    partitions = [TopicPartition(LEDGER, number) for number in range(3)]
    partitions += [TopicPartition("out", number) for number in range(4)]
    return {where: len(world.kafka.log(where).batches) for where in partitions}


def test_a_pipeline_that_nobody_knows_begins_at_any_batch_and_says_so(
    wide: World, caplog: pytest.LogCaptureFixture
) -> None:
    driver = run_of(wide)

    assert driver.start(3, None, ("offsets 3",)) is None
    write(wide, driver, 3)

    assert "does not have batches 0 to 2 of this query and goes on with batch 3" in caplog.text
    assert "`if df.isEmpty(): return`" in caplog.text
    assert "Spark's own before it was moved to this one" in caplog.text
    newest = wide.ledger.look().newest
    assert newest is not None and (newest.batch_id, newest.records) == (3, 2)
    assert any("batches 0 to 2" in warning for warning in newest.warnings)


@pytest.mark.parametrize("batch_id", [0, 1])
@pytest.mark.parametrize("left", ["only the driver's id", "an open slot", "an aborted slot"])
def test_its_first_batch_is_tried_again_after_it_failed(wide: World, left: str, batch_id: int) -> None:
    assert run_of(wide).start(batch_id, None, ()) is None
    if left != "only the driver's id":
        seal = wide.slot(0)
        if left == "an aborted slot":
            wide.end(seal, commit=False)

    again = run_of(wide)

    assert again.start(batch_id, None, ()) is None
    write(wide, again, batch_id)
    assert len(wide.shown(TopicPartition("out", 0))) == 2
    later = run_of(wide)
    assert later.start(batch_id + 1, None, ()) is None


@pytest.mark.parametrize("batch_id", [0, 1])
def test_its_first_batch_is_tried_again_after_its_ids_were_forgotten(wide: World, batch_id: int) -> None:
    """Coordinators forget what rests for transactional.id.expiration.ms. The run behind it has other producer ids, and
    says so in the ledger, beside which the note of the first start was somebody else's.
    """
    assert run_of(wide).start(batch_id, None, ()) is None
    for name in ("driver", "batch", "notes"):
        wide.kafka.expire(f"{PIPELINE}:{name}")

    assert run_of(wide).start(batch_id, None, ()) is None
    wide.slot(0)
    again = run_of(wide)

    assert again.start(batch_id, None, ()) is None
    write(wide, again, batch_id)
    assert len(wide.shown(TopicPartition("out", 0))) == 2


def test_the_note_of_a_first_start_is_there_before_any_id(wide: World) -> None:
    """Else a start that dies between both leaves ids that the next start takes for those of another ledger."""

    def die() -> None:
        raise KeyboardInterrupt

    crash_points.arm("after-note-began", 1, die)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_of(wide).start(0, None, ())
    finally:
        crash_points.arm("")

    assert wide.state(DRIVER) == "NotFound"
    assert run_of(wide).start(0, None, ()) is None


def test_of_two_first_starts_at_once_none_takes_the_others_ids_for_another_ledgers(wide: World) -> None:
    """The second one begins between the first one's look at the ledger and its question for the ids."""
    first = run_of(wide)
    list_ids = first.run._slot_ids

    def slowly(*states: Any) -> Any:
        if first.run.newest is None and wide.state(DRIVER) == "NotFound":
            other = PerTask(Run(wide.cluster, first.run.options, "query"))
            assert other.start(0, None, ()) is None
        return list_ids(*states)

    first.run._slot_ids = slowly  # type: ignore[method-assign]

    assert first.start(0, None, ()) is None


def test_a_pipeline_that_was_forgotten_begins_anew(wide: World) -> None:
    driver = run_of(wide)
    assert driver.start(0, None, ()) is None
    wide.end(wide.slot(0), commit=False)
    append_record(wide.cluster, wide.ledger.home, PIPELINE.encode(), None, what="its end", grant="")

    assert run_of(wide).start(0, None, ()) is None


@pytest.mark.parametrize("committed", [True, False])
def test_a_tombstone_is_named_where_a_later_batch_begins_behind_it(wide: World, committed: bool) -> None:
    """The ledger was not deleted, recreated or restored: whoever wrote the tombstone would look for a cause that does
    not hold.
    """
    driver = run_of(wide)
    assert driver.start(0, None, ()) is None
    if committed:
        write(wide, driver, 0)
    else:
        wide.end(wide.slot(0), commit=False)
    append_record(wide.cluster, wide.ledger.home, PIPELINE.encode(), None, what="its end", grant="")
    before = everything(wide)

    with pytest.raises(PipelineConflict, match="a tombstone in the ledger topic") as refused:
        run_of(wide).start(1, None, ())

    assert "Find out whether batch 1 is in the output: if it is, start from a checkpoint behind it" in str(
        refused.value
    )
    assert "recreated" not in str(refused.value)
    assert everything(wide) == before
    assert run_of(wide, adopt__checkpoint="true").start(1, None, ()) is None


@pytest.mark.parametrize(("query", "batch_id"), [("query", 4), ("another", 2)])
def test_a_first_start_of_one_batch_is_none_of_another(wide: World, query: str, batch_id: int) -> None:
    """Spark goes on behind a batch that is done: its decision is lost, and the note in front of it is not."""
    assert run_of(wide).start(1, None, ()) is None

    with pytest.raises(PipelineConflict, match=f", and the checkpoint begins batch {batch_id}"):
        run_of(wide, query).start(batch_id, None, ())

    assert run_of(wide, query, adopt__checkpoint="true").start(batch_id, None, ()) is None


def test_another_query_may_begin_where_the_first_one_never_committed(wide: World) -> None:
    """Its author has deleted the checkpoint after a first try."""
    assert run_of(wide).start(0, None, ()) is None
    wide.end(wide.slot(0), commit=False)

    assert run_of(wide, "another").start(0, None, ()) is None


@pytest.mark.parametrize("batch_id", [0, 2])
@pytest.mark.parametrize("state", ["Ongoing", "CompleteAbort", "Empty"])
def test_a_pipeline_that_a_coordinator_knows_and_the_ledger_does_not_is_refused(
    wide: World, state: str, batch_id: int
) -> None:
    """A batch may be committed under an id that shows an abort: its markers were mended under it, and that timed
    out.
    """
    seal = wide.slot(0)
    if state != "Ongoing":
        wide.end(seal, commit=False)
    if state == "Empty":
        wide.transactions.init_producer_id(f"{PIPELINE}:0", 60_000)
    assert wide.state(f"{PIPELINE}:0") == state
    before = everything(wide)

    with pytest.raises(
        PipelineConflict,
        match=r"nor the first start of this batch, but a coordinator knows its transactional id 'pipe:0'",
    ) as refused:
        run_of(wide).start(batch_id, None, ())

    assert "nothing was written" in refused.value.message and "adopt.checkpoint" in refused.value.message
    assert ("begins batch 2" in refused.value.message) == (batch_id == 2)
    assert everything(wide) == before and wide.state(DRIVER) == "NotFound"
    assert run_of(wide, adopt__checkpoint="true").start(batch_id, None, ()) is None
    # Said once, it counts for the batch's next try as well.
    assert run_of(wide).start(batch_id, None, ()) is None


def test_a_pipeline_whose_drivers_id_alone_is_known_is_refused(wide: World) -> None:
    wide.driver()

    with pytest.raises(PipelineConflict, match=r"a coordinator knows its transactional id 'pipe:driver'"):
        run_of(wide).start(2, None, ())


def test_a_record_of_the_pipeline_in_another_partition_of_the_ledger_is_found(wide: World) -> None:
    elsewhere = next(TopicPartition(LEDGER, n) for n in range(3) if TopicPartition(LEDGER, n) != wide.ledger.partition)
    note = to_bytes(Ended("of another time", 4, 1, 0))
    append_record(wide.cluster, elsewhere, f"{PIPELINE}/ended".encode(), note, what="a note", grant="")
    before = everything(wide)

    with pytest.raises(PipelineConflict) as refused:
        run_of(wide).start(2, None, ())

    assert str(elsewhere) in refused.value.message
    assert everything(wide) == before


# ---- a renamed pipeline


def renamed(wide: World, batch_id: int = 5, **more: Any) -> PerTask:
    """A query whose newest batch was written under another name."""
    old = run_of(wide, pipeline="old-name")
    assert old.start(0, None, ("offsets 0",)) is None
    write(wide, old, 0, "old-name:0")
    if batch_id:
        write(wide, old, batch_id, "old-name:0")
    return run_of(wide, **more)


def test_a_renamed_pipeline_is_told_the_name_that_its_query_had(wide: World) -> None:
    new = renamed(wide)
    before = everything(wide)

    with pytest.raises(PipelineConflict, match="this query wrote as pipeline 'old-name' until batch 5") as refused:
        new.start(6, None, ("offsets 6",))

    assert "set pipeline='old-name' again" in refused.value.message
    assert (refused.value.facts["ledger_pipeline"], refused.value.facts["ledger_batch"]) == ("old-name", 5)
    assert everything(wide) == before and wide.state(DRIVER) == "NotFound"
    assert run_of(wide, adopt__checkpoint="true").start(6, None, ()) is None


@pytest.mark.parametrize(("newest", "batch_id"), [(5, 5), (5, 3), (0, 0)])
@pytest.mark.parametrize("adopt", ["true", "false"])
def test_a_batch_that_is_committed_under_the_former_name_is_refused_whatever_is_adopted(
    wide: World, newest: int, batch_id: int, adopt: str
) -> None:
    """Spark's commit log lacks it: the function raised behind the writer, or the driver died. The advice to adopt wrote
    it twice.
    """
    new = renamed(wide, newest, adopt__checkpoint=adopt)
    new.run.offset_log = OffsetLog(None, lambda *_: ())  # as a query has it, and `df.write` has not
    before = everything(wide)

    with pytest.raises(
        PipelineConflict, match=f"batch {batch_id} of this query is committed already, as pipeline 'old-name'"
    ) as refused:
        new.start(batch_id, None, ("offsets",))

    assert f"newest batch is {newest}" in refused.value.message
    assert "Start the query once more with pipeline='old-name'" in refused.value.message
    assert everything(wide) == before


def test_data_frames_of_other_pipelines_are_no_reason_to_refuse(wide: World) -> None:
    """All of them have one query's id, and each begins at 0."""
    renamed(wide, 0)

    assert run_of(wide).start(0, None, ()) is None


def test_a_second_pipeline_of_the_same_run_is_no_rename(wide: World) -> None:
    new = renamed(wide)
    new.run.beside = frozenset({"old-name"})

    assert new.start(6, None, ()) is None


def test_another_querys_pipelines_are_no_reason_to_refuse(wide: World) -> None:
    renamed(wide)

    assert run_of(wide, "another-query").start(6, None, ()) is None


def test_a_former_name_that_another_query_has_by_now_is_no_reason_to_refuse(wide: World) -> None:
    renamed(wide)
    heir = run_of(wide, "another-query", pipeline="old-name", adopt__checkpoint="true")
    assert heir.start(0, None, ()) is None
    write(wide, heir, 0, "old-name:0")

    assert run_of(wide).start(6, None, ()) is None


@pytest.mark.parametrize("further", [True, False], ids=["and wrote on", "and died"])
def test_a_start_under_the_former_name_is_refused_once_the_query_writes_under_another(
    wide: World, further: bool
) -> None:
    """A deployment was rolled back. What both names have is in the ledger, and neither one has a gap that it sees."""
    new = renamed(wide, adopt__checkpoint="true")
    assert new.start(6, None, ("offsets 6",)) is None
    write(wide, new, 6)
    if further:
        write(wide, new, 7)
    newest = 7 if further else 6
    before = everything(wide)

    with pytest.raises(PipelineConflict, match=f"wrote as pipeline 'pipe' until batch {newest}.*is 5;"):
        run_of(wide, pipeline="old-name").start(newest + 1, None, ("offsets",))
    for adopt in ("true", "false"):
        old = run_of(wide, pipeline="old-name", adopt__checkpoint=adopt)
        with pytest.raises(PipelineConflict, match=f"batch {newest} of this query is committed already"):
            old.start(newest, None, ("offsets",))

    assert everything(wide) == before
    assert run_of(wide).start(newest + 1, None, ("offsets",)) is None


def test_a_query_may_take_its_former_name_again_and_each_change_is_known(wide: World) -> None:
    new = renamed(wide, adopt__checkpoint="true")
    assert new.start(6, None, ("offsets 6",)) is None
    write(wide, new, 6)
    back = run_of(wide, pipeline="old-name", adopt__checkpoint="true")
    assert back.start(7, None, ("offsets 7",)) is None
    # Before it has written anything both names may go on: the next batch is nobody's yet.
    assert run_of(wide).start(7, None, ("offsets 7",)) is None
    back = run_of(wide, pipeline="old-name", adopt__checkpoint="true")
    assert back.start(7, None, ("offsets 7",)) is None
    write(wide, back, 7, "old-name:0")

    with pytest.raises(PipelineConflict, match="wrote as pipeline 'old-name' until batch 7"):
        run_of(wide).start(8, None, ("offsets 8",))

    assert run_of(wide, pipeline="old-name").start(8, None, ("offsets 8",)) is None


def test_a_former_name_whose_newest_record_cannot_be_read_is_left_by_its_users_word(wide: World) -> None:
    new = renamed(wide, adopt__checkpoint="true")
    former = Ledger(wide.cluster, LEDGER, "old-name")
    append_record(wide.cluster, former.partition, b"old-name", b"no decision", what="a record", grant="")

    assert new.start(6, None, ("offsets 6",)) is None


def test_of_two_pipelines_that_one_run_writes_none_is_the_others_former_name(wide: World) -> None:
    both = renamed(wide, adopt__checkpoint="true")
    assert both.start(6, None, ("offsets 6",)) is None
    write(wide, both, 6)
    other = run_of(wide, pipeline="old-name")
    other.run.beside = frozenset({PIPELINE})

    assert other.start(6, None, ("offsets 6",)) is None


# ---- what a user has confirmed


def job_of(world: World, number: int, **more: str) -> PerTask:
    """A `df.write` under a number of its own."""
    world.fresh_process()
    given = {**RUN_OPTIONS, "ledger.topic": LEDGER, "batch.id": str(number), **more}
    options = SinkOptions.parse({name: value for name, value in given.items() if name != "offsets.group"}, "batch")
    return PerTask(Run(world.cluster, options, BATCH_WRITES))


def test_what_is_confirmed_of_one_job_is_confirmed_of_no_other(wide: World) -> None:
    """Job 1 was in the output, and its decision is lost. Job 2 has begun by its user's word, and taken the ids that
    showed it.
    """
    wide.end(wide.slot(0), commit=True)
    with pytest.raises(PipelineConflict, match="it has decided batches"):
        job_of(wide, 1).start(0)
    assert job_of(wide, 2, **{"adopt.checkpoint": "true"}).start(0) is None
    wide.end(wide.slot(0), commit=False)

    with pytest.raises(PipelineConflict, match="a coordinator knows its transactional id"):
        job_of(wide, 1).start(0)

    assert job_of(wide, 2).start(0) is None


def test_what_is_confirmed_of_one_query_is_confirmed_of_no_other(wide: World) -> None:
    wide.end(wide.slot(0), commit=True)
    assert run_of(wide, "new query", adopt__checkpoint="true").start(0, None, ()) is None
    wide.end(wide.slot(0), commit=False)

    for batch_id in (0, 1):
        with pytest.raises(PipelineConflict, match="a coordinator knows its transactional id"):
            run_of(wide).start(batch_id, None, ())

    assert run_of(wide, "new query").start(0, None, ()) is None


# ---- in the middle


def test_a_batch_that_is_left_out_in_the_middle_is_warned_of(wide: World, caplog: pytest.LogCaptureFixture) -> None:
    driver = run_of(wide)
    assert driver.start(0, None, ()) is None
    write(wide, driver, 0)
    driver = run_of(wide)

    assert driver.start(2, None, ('{"t":{"0":5},"cluster:elsewhere":{}}',)) is None
    write(wide, driver, 2)

    assert "does not have batch 1 of this query and goes on with batch 2" in caplog.text
    assert "another sink" not in caplog.text
    assert "source offsets are of cluster elsewhere" in caplog.text
    assert Ledger(wide.cluster, LEDGER, PIPELINE).look().newest.batch_id == 2  # type: ignore[union-attr]


def test_batches_without_a_gap_are_not_warned_of(wide: World, caplog: pytest.LogCaptureFixture) -> None:
    driver = run_of(wide)
    assert driver.start(0, None, ()) is None
    write(wide, driver, 0)

    assert run_of(wide).start(1, None, ()) is None
    assert "does not have" not in caplog.text
