"""`make cluster`: troubles of three brokers, one after another, beside Java's producer; writes evidence/cluster.md.

    python -m tests.cluster [--event NAME ...] [--seconds S] [--seed 7] [--random N] [--minutes M] [--drivers] [--write]

Exit 1 where something does not hold: a row lost, doubled or out of order, a query that ended by itself, group offsets
or `verify` that say otherwise. Stalls are told, and are no failure of the run.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.changes.small_spark import FOREACH, FORMAT
from tests.cluster import page
from tests.cluster.brokers import started
from tests.cluster.stage import Row, as_json, from_file, staged
from tests.cluster.troubles import AT_RANDOM, OF_VERSIONS, RANDOM_S, TROUBLES

NEW = "4.3.1"
OLD = ("3.9.1", "3.7.2")
WAYS = ((FORMAT, "task"), (FOREACH, "batch"), (FOREACH, "task"), (FORMAT, "batch"))

WITH_SPARK = (("nothing", 20.0), ("kill", 20.0), ("roll", 0.0), ("move", 5.0), ("freeze", 38.0))
"""A Spark takes both cores, so it has a cluster of its own and the events that differ most."""

Event = tuple[str, float, int]
"""Name, seconds, seed."""


def table(names: Sequence[str], seconds: float | None, seed: int) -> list[Event]:
    """The events of these names, each with the lengths that the table has, or with the one that is given."""
    return [
        (name, each, seed)
        for name in names
        for each in (TROUBLES[name].seconds if seconds is None else (seconds,))
    ]  # fmt: skip


def drawn(count: int, seed: int) -> list[Event]:
    """So many events at random, the first ones the same for every count."""
    chance = random.Random(seed)
    return [
        (chance.choice(AT_RANDOM), round(chance.uniform(*RANDOM_S)), seed * 1_000_000 + number)
        for number in range(count)
    ]


def main(given: Sequence[str] | None = None) -> int:
    """Play, tell, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--event", nargs="*", choices=sorted(TROUBLES), default=[], help="one or several; all by default"
    )
    parser.add_argument("--seconds", type=float, help="how long the bad time lasts; the table's lengths by default")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N events at random instead")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no event begins")
    parser.add_argument("--drivers", action="store_true", help="kill drivers at random on top")
    parser.add_argument("--spark", action="store_true", help="with a real Spark, too: the events named, or else some")
    parser.add_argument("--ways", type=int, default=len(WAYS), help="how many queries run side by side")
    parser.add_argument("--old", nargs="*", default=list(OLD), help="versions from which is upgraded")
    parser.add_argument(
        "--directory", type=Path, help="where logs and checkpoints stay; removed after a run that holds"
    )
    parser.add_argument("--write", action="store_true", help="write evidence/cluster.md")
    parser.add_argument(
        "--rows", nargs="*", type=Path, default=[], metavar="FILE", help="rows.jsonl of runs that the page has too"
    )
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else ran on the machine")
    options = parser.parse_args(given)
    if options.spark and "driver" in options.event:
        parser.error("the driver of a real Spark is not killed: leave out --spark")
    # As after Ctrl-C: brokers and queries are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="cluster-run-"))
    directory.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + options.minutes * 60
    rows = []
    for row in played(options, directory, until):
        rows.append(row)
        with (directory / "rows.jsonl").open("a") as file:
            file.write(as_json(row) + "\n")
        print(page.told(row), flush=True)
    if options.write:
        page.write(merged([*(row for file in options.rows for row in from_file(file)), *rows]), options.note)
    wrong = [row for row in rows if row.problems or row.ended]
    print(f"{len(rows)} events, {len(wrong)} that do not hold" + (f"; logs: {directory}" if wrong else ""), flush=True)
    if not wrong and options.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return int(bool(wrong))


def _pair_of(row: Row) -> tuple[str, ...]:
    # An upgrade and the way back stand together.
    return tuple(sorted(row.versions.split(" -> "))) if row.event in OF_VERSIONS else ()


def merged(rows: Sequence[Row]) -> list[Row]:
    """Of each event, as it would be played again, the newest row, in the order of the table."""
    newest = {(page.again(row), row.versions): row for row in rows}
    by_name = list(TROUBLES).index
    return sorted(newest.values(), key=lambda row: (_pair_of(row), by_name(row.event), row.seconds))


def played(options: argparse.Namespace, directory: Path, until: float) -> Iterator[Row]:
    """The rows, as they come."""
    names = options.event or list(TROUBLES)
    of_versions = [name for name in OF_VERSIONS if name in names and not options.random]
    others = [name for name in names if name not in OF_VERSIONS]
    events = drawn(options.random, options.seed) if options.random else table(others, options.seconds, options.seed)
    alone = bool(options.spark and options.event)
    if not alone:
        yield from _on_one_cluster(options, directory / NEW, until, NEW, [(*event, "") for event in events])
    if options.spark:
        chosen = events if alone else [(*event, options.seed) for event in WITH_SPARK]
        apart = directory / f"{NEW}-spark"
        yield from _on_one_cluster(options, apart, until, NEW, [(*event, "") for event in chosen], with_spark=True)
    for old in options.old if of_versions else ():
        # Back is played where there was an upgrade before.
        both = [("upgrade", 0.0, options.seed, NEW), ("downgrade", 0.0, options.seed, old)]
        yield from _on_one_cluster(options, directory / old, until, old, both)


def _on_one_cluster(
    options: argparse.Namespace, directory: Path, until: float, version: str, events: Sequence[tuple[str, float, int, str]],
    *, with_spark: bool = False,
) -> Iterator[Row]:  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    ways = () if with_spark else WAYS[: options.ways]
    if time.monotonic() > until or not events:
        return
    with (
        started(version, directory / "kafka") as cluster,
        staged(cluster, directory, ways, with_spark=with_spark) as stage,
    ):
        last = None
        for event, seconds, seed, other in events:
            if last is not None:
                yield last
            if time.monotonic() > until:
                break
            last = stage.play(event, seconds, seed, drivers=options.drivers, other=other)
        if last is not None:
            # What only the end shows is told of the last event: with several before it, any of them may be the cause.
            stage.finish(last)
            yield last


if __name__ == "__main__":
    sys.exit(main())
