"""What can be another one between two runs, two batches or two processes.

Owns: the changes, the words that a refusal has to have for each, and how each is put back.
Does not know: when a change comes, how a query is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.changes.small_spark import DF_WRITE, FOREACH, FORMAT, ZONE
from tests.changes.world import DEAD, LEDGER, OUTPUT, PIPELINE, ROWS, SOURCE, TURNS, World

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Change:
    """`words`: patterns that a refusal has to match, every one; none: there is nothing to refuse. `may_finish`: the
    refused query may have finished what was decided before. `before`: what there has to be for it, when the query is
    started first. `kind`: the heading on the page.
    """

    name: str
    kind: str
    apply: Callable[[World], None]
    words: tuple[str, ...] = ()
    before: Callable[[World], None] = lambda _: None
    may_finish: bool = True


# ---- clusters


def _another_source(records: int) -> Callable[[World], None]:
    """Records of its own are in the other cluster's topic: none, so fewer than the query has read, or more."""

    def apply(world: World) -> None:
        world.start_cluster("second")
        world.source = "second"
        if records:
            world.feed(records)

        def undo() -> None:
            world.source = "first"
            # Nobody is to read what was fed there.
            world.excused |= world.fed_on("second")

        world.undo = undo

    return apply


def _another_sink(world: World) -> None:
    world.start_cluster("second")
    world.sink = "second"
    world.outputs += [("second", OUTPUT), ("second", DEAD)]

    def undo() -> None:
        world.sink = "first"

    world.undo = undo


def _restart(world: World) -> None:
    for broker in world.clusters.values():
        broker.restart()


# ---- topics


def _anew(topic: str) -> Callable[[World], None]:
    return lambda world: world.make_anew(topic)


def _output_anew_and_forgotten(world: World) -> None:
    """The next commit leaves a partition of the new topic without its marker."""
    world.make_anew(OUTPUT)
    name = f"{PIPELINE}:{'batch' if world.scope == 'batch' else '0'}"
    world.clusters[world.sink].fault_at_marker(OUTPUT, 0, "forget", transactional_id=name, commit=True)


def _source_anew(world: World) -> None:
    world.make_anew(SOURCE)
    seen = {value for value, _, _ in world.visible() + world.deleted}
    world.excused |= set(world.fed) - seen
    world.undo = lambda: _begin_behind(world, at="earliest")


def _source_anew_and_longer(world: World) -> None:
    _source_anew(world)
    for _ in range(3):
        world.feed()


def _election(records: int) -> Callable[[World], None]:
    """An unclean one: the newest records of a partition are gone, and `records` others come behind it, of which some
    take their offsets.
    """

    def apply(world: World) -> None:
        before = world.in_source()
        world.lose_newest(SOURCE, 0)
        lost = before - world.in_source()
        if not lost:
            raise AssertionError("the election lost nothing")
        # Whether a task had read them by then is not the judge's: readers have them once or never.
        world.excused |= {value for value, _, _ in lost}
        if records:
            world.feed(records)

        def undo() -> None:
            """As the refusals say: the loss is allowed; where that makes a decided batch another one, it is given
            up.
            """
            _may_lose(world)
            world.undo = lambda: _begin_behind(world)

        world.undo = undo

    return apply


def _begin_behind(world: World, at: str = "group") -> None:
    """As the refusals say: a new checkpoint behind the decided batch, whose missing rows are given up."""
    decided = world.decided_batch()
    seen = {value for value, _, _ in world.visible()}
    world.excused |= set(list(world.fed)[: (decided + 1) * ROWS]) - seen
    world.checkpoint.begin()
    world.sink_options |= {"adopt.checkpoint": "true", "adopt.without.batch": str(decided)}
    world.source_options |= {"startingOffsets": at, "kafka.group.id": PIPELINE}


def _may_lose(world: World) -> None:
    world.source_options["failOnDataLoss"] = "false"


def _more(topic: str, count: int) -> Callable[[World], None]:
    return lambda world: world.add_partitions(topic, count)


def _settings(topic: str, **settings: str) -> Callable[[World], None]:
    return lambda world: world.set(topic, **settings)


def _append_time(world: World) -> None:
    world.any_time = True
    world.set(OUTPUT, message_timestamp_type="LogAppendTime")


# ---- the query's own


def _option(**options: str) -> Callable[[World], None]:
    def apply(world: World) -> None:
        before = dict(world.sink_options)
        world.sink_options.update({name.replace("__", "."): value for name, value in options.items()})

        def undo() -> None:
            world.sink_options.clear()
            world.sink_options.update(before)

        world.undo = undo

    return apply


def _another_topic(world: World) -> None:
    world.create("out2", 3)
    world.outputs.append(("first", "out2"))
    _option(topic="out2")(world)


def _another_dead(world: World) -> None:
    world.create("dead2", 2)
    world.outputs.append(("first", "dead2"))
    world.any_time = True
    _option(dead__letter__topic="dead2")(world)


def _tasks(count: int) -> Callable[[World], None]:
    def apply(world: World) -> None:
        before, world.parallelism = world.parallelism, count

        def undo() -> None:
            world.parallelism = before

        world.undo = undo

    return apply


def _scope(world: World) -> None:
    world.scope = "task" if world.scope == "batch" else "batch"


def _way(way: str) -> Callable[[World], None]:
    """A stream that takes the place of jobs has a checkpoint of its own, and the other way round."""

    def apply(world: World) -> None:
        before, world.way = world.way, way
        kept = world.directory / "kept"
        if DF_WRITE in (before, way):
            world.checkpoint.copy_to(kept)
            world.checkpoint.begin()

        def undo() -> None:
            world.way = before
            if kept.exists():
                world.checkpoint.copy_from(kept)

        world.undo = undo

    return apply


# ---- the checkpoint


def _lost(world: World) -> None:
    kept = world.directory / "kept"
    world.checkpoint.copy_to(kept)
    world.checkpoint.begin()
    world.undo = lambda: world.checkpoint.copy_from(kept)


def _older(world: World) -> None:
    """As it was before the newest batch that it has begun."""
    kept = world.directory / "kept"
    world.checkpoint.copy_to(kept)
    newest = world.checkpoint.newest("offsets")
    for log, batch in (("offsets", newest), ("commits", newest)):
        (world.checkpoint.directory / log / str(batch)).unlink(missing_ok=True)
    world.undo = lambda: world.checkpoint.copy_from(kept)


def _commit_log(world: World) -> None:
    """The newest batch that was begun counts as done, as after a function of foreachBatch that returned without the
    writer.
    """
    newest = world.checkpoint.newest("offsets")
    if newest == world.checkpoint.newest("commits"):
        return
    world.checkpoint.log_commit(newest)
    if world.decided_batch() != newest:
        # Nobody has its rows any more.
        world.excused |= set(world.fed) - {value for value, _, _ in world.visible()}

    def undo() -> None:
        """As the refusal says."""
        for log, first in (("offsets", newest + 1), ("commits", newest)):
            for each in (world.checkpoint.directory / log).iterdir():
                if int(each.name) >= first:
                    each.unlink()

    world.undo = undo


def _edited(world: World) -> None:
    """The newest batch ends elsewhere."""
    kept = world.directory / "kept"
    world.checkpoint.copy_to(kept)
    newest = world.checkpoint.newest("offsets")
    end = world.checkpoint.offsets(newest)
    (number, offset) = next(iter(end[SOURCE].items()))
    end[SOURCE][number] = offset - 1
    world.checkpoint.log_offsets(newest, end)
    world.undo = lambda: world.checkpoint.copy_from(kept)


def _adopted_from_the_beginning(world: World) -> None:
    """Its user follows the refusal in the checkpoint that the refused start has begun."""
    world.checkpoint.begin()
    world.sink_options["adopt.checkpoint"] = "true"
    world.undo = lambda: _begin_behind(world)


def _adopted_at_the_end(world: World) -> None:
    """The refused start began at the latest records: its first batch is empty, and what came in between is in none."""
    world.checkpoint.begin()
    world.feed()
    world.sink_options["adopt.checkpoint"] = "true"
    world.source_options["startingOffsets"] = "latest"
    world.undo = lambda: _begin_behind(world)


def _adopted_by_anothers_group(world: World) -> None:
    """Another pipeline commits to the same group, and has read on."""
    world.checkpoint.begin()
    world.feed()
    world.commit_to_the_end(PIPELINE)
    world.sink_options["adopt.checkpoint"] = "true"
    world.source_options |= {"startingOffsets": "group", "kafka.group.id": PIPELINE}

    def undo() -> None:
        """By the offsets that the refusal names."""
        named = json.loads(world.newest_decision()[1])["source_offsets"][0]
        _begin_behind(world, at=named[named.index("{") :])

    world.undo = undo


# ---- versions and clocks


def _record_of_version(version: int) -> Callable[[World], None]:
    """The newest decision, as a product of that version would have written it."""

    def apply(world: World) -> None:
        key, value, partition = world.newest_decision()
        world.produce(LEDGER, key, json.dumps({**json.loads(value), "version": version}).encode(), partition)
        world.undo = lambda: world.produce(LEDGER, key, value, partition)

    return apply


def _in_new_york(world: World) -> None:
    world.conf[ZONE] = "America/New_York"
    world.shifts = (5 * HOUR_MS,)


def _in_tokyo(world: World) -> None:
    world.conf[ZONE] = "Asia/Tokyo"
    world.shifts = (5 * HOUR_MS, -9 * HOUR_MS)


def _version(world: World) -> None:
    world.version = 1 if world.version == 2 else 2
    for broker in world.clusters.values():
        broker.restart({"transaction.version": str(world.version)})


def _rest(days: int) -> Callable[[World], None]:
    def apply(world: World) -> None:
        for _ in range(4):
            world.clusters[world.sink].advance(days * DAY_MS // 4)

    return apply


def _clock(seconds: int) -> Callable[[World], None]:
    def apply(world: World) -> None:
        world.many.clock_offset_ns += seconds * 10**9

    return apply


_GONE = ("source no longer has", "adopt.without.batch=1")
"""Where the broker aborted a part of a decided batch whose rows are gone."""

CHANGES = (
    Change("nothing", "none", lambda _: None),
    # ---- clusters
    Change("source: another cluster, fewer records", "cluster", _another_source(0), ("cluster",)),
    Change("source: another cluster, more records", "cluster", _another_source(40), ("cluster",)),
    Change("sink: another cluster", "cluster", _another_sink, ("cluster",)),
    Change("brokers started again", "cluster", _restart),
    # ---- topics recreated
    Change("source topic recreated", "topic id", _source_anew, (SOURCE, "recreated|created again|another topic|ends at|id")),
    Change("source topic recreated, with more records", "topic id", _source_anew_and_longer, (SOURCE, "recreated")),
    Change("source topic recreated, with more records, and records may be lost", "topic id", _source_anew_and_longer, _GONE, before=_may_lose),
    Change("output topic recreated", "topic id", _anew(OUTPUT), (OUTPUT,)),
    Change("output topic recreated, and a marker forgotten", "topic id", _output_anew_and_forgotten, (OUTPUT,)),
    Change("ledger topic recreated", "topic id", _anew(LEDGER), (LEDGER,)),
    Change("turns topic recreated", "topic id", _anew(TURNS), (TURNS,)),
    Change("dead letter topic recreated", "topic id", _anew(DEAD), (DEAD,)),
    # ---- partitions
    Change("source: more partitions", "partitions", _more(SOURCE, 5)),
    Change("output: more partitions", "partitions", _more(OUTPUT, 7)),
    Change("ledger: more partitions", "partitions", _more(LEDGER, 17)),
    Change("turns: more partitions", "partitions", _more(TURNS, 17)),
    Change("dead letters: more partitions", "partitions", _more(DEAD, 5)),
    # ---- settings of topics
    Change("output: compacted", "settings", _settings(OUTPUT, cleanup_policy="compact")),
    Change("output: times of the broker", "settings", _append_time),
    Change("output: another compression", "settings", _settings(OUTPUT, compression_type="gzip")),
    Change("output: records of 10 bytes at most", "settings", _settings(OUTPUT, max_message_bytes="10"), (OUTPUT, "max.message.bytes|larger|allows")),
    Change("output: larger records allowed", "settings", _settings(OUTPUT, max_message_bytes="100000")),
    Change("ledger: deleted by age", "settings", _settings(LEDGER, cleanup_policy="delete"), (LEDGER, "cleanup.policy")),
    Change("ledger: records of 1,500 bytes at most", "settings", _settings(LEDGER, max_message_bytes="1500")),
    Change("ledger: records of 100 bytes at most", "settings", _settings(LEDGER, max_message_bytes="100"), (LEDGER, "max.message.bytes")),
    Change("turns: compacted", "settings", _settings(TURNS, cleanup_policy="compact")),
    Change("turns: records of 100 bytes at most", "settings", _settings(TURNS, max_message_bytes="100"), (TURNS, "max.message.bytes|larger|allows")),
    # ---- records that are gone
    Change("source: the newest records lost in an election", "records", _election(0), (SOURCE, "epoch|election|ends at|lost")),
    Change("source: the newest records lost in an election, and more came", "records", _election(40), (SOURCE, "epoch|election|ends at|lost")),
    Change("source: the newest records lost in an election, and records may be lost", "records", _election(0), _GONE, before=_may_lose),
    Change("source: the newest records lost in an election, more came, and records may be lost", "records", _election(40), _GONE, before=_may_lose),
    Change("output: all records deleted", "records", lambda world: world.delete_records(OUTPUT), ("deleted|gone|retention",)),
    Change("turns: all records deleted", "records", lambda world: world.delete_records(TURNS)),
    # ---- the query's settings
    Change("fewer tasks", "query", _tasks(2), ("split|slots", "cores|parallelism|partitions")),
    Change("more tasks", "query", _tasks(5), ("split|slots", "cores|parallelism|partitions")),
    Change("another scope", "query", _scope),
    Change("another pipeline name", "query", _option(pipeline="invoices"), ("orders", "invoices")),
    Change("another topic", "query", _another_topic, ("out", "out2")),
    Change("another dead letter topic", "query", _another_dead),
    Change("another ledger topic", "query", _option(ledger__topic="ledger2"), ("ledger2",)),
    Change("another group", "query", _option(offsets__group="elsewhere")),
    Change("another compression of the client", "query", _option(kafka__compression__type="gzip")),
    Change("another batch size", "query", _option(kafka__batch__size="2048")),
    Change("another transaction timeout", "query", _option(kafka__transaction__timeout__ms="120000")),
    # ---- ways of writing
    Change("now by format", "way", _way(FORMAT), ("batch write|df.write|streaming|another query",)),
    Change("now by foreachBatch", "way", _way(FOREACH), ("batch write|df.write|streaming|another query",)),
    Change("now by df.write", "way", _way(DF_WRITE), ("streaming query",)),
    # ---- the checkpoint
    Change("checkpoint lost", "checkpoint", _lost, ("checkpoint",)),
    Change("checkpoint older by a batch", "checkpoint", _older, ("checkpoint",)),
    Change("checkpoint lost, another adopted from the beginning", "checkpoint", _adopted_from_the_beginning, ("begins elsewhere", "instead of", "new, empty")),
    Change("checkpoint lost, another adopted from the end", "checkpoint", _adopted_at_the_end, ("begins elsewhere", "instead of", "new, empty")),
    Change("checkpoint lost, another adopted by a group that another pipeline has", "checkpoint", _adopted_by_anothers_group, ("begins elsewhere", "instead of", "startingOffsets=")),
    Change("commit log moved on", "checkpoint", _commit_log, ("batch 1", "begins batch 2", "adopt.without.batch=1")),
    Change("checkpoint edited", "checkpoint", _edited, ("checkpoint|offset log",)),
    # ---- versions
    Change("another transaction version", "version", _version),
    Change("a decision of format version 0", "version", _record_of_version(0), ("version",)),
    Change("a decision of format version 99", "version", _record_of_version(99), ("version",)),
    # ---- clocks
    Change("another time zone of the session", "clock", _in_tokyo, before=_in_new_york),
    Change("8 days of rest", "clock", _rest(8)),
    Change("the driver's clock an hour back", "clock", _clock(-3600)),
    Change("the driver's clock a day ahead", "clock", _clock(86400), ("clock",)),
)  # fmt: skip

__all__ = ["CHANGES", "Change", "json"]
