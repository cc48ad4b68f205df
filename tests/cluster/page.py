"""evidence/cluster.md, made by a run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from benchmarks.children import ROOT
from tests.cluster.plan import SPARKS
from tests.cluster.stage import Row
from tests.cluster.writers import JAVA
from tests.support.made import today

PAGE = ROOT / "evidence" / "cluster.md"

_HEAD = """\
# Three brokers, and what happens to them

Written by `make cluster` (`python -m tests.cluster --write`) on {date}, on {cores} cores. Three brokers of Apache Kafka and a
controller (replication factor 3, min.insync.replicas 2, 320 MB each), every way to them behind a proxy that can be cut. Queries
of the product copy a topic to topics of their own, in micro-batches of 400 rows:
{ways}.
What Spark does is played by a stand-in. Beside them in the same minutes a Java producer with acks=all, idempotent, everything
else by default.

A stall of a query is its longest batch, from its beginning to its end over all tries; of the Java producer the longest time in which one
partition acknowledged nothing. *Ratio* is the longest of ours by Java's. *Ended* counts queries that ended by themselves and were started
again. librdkafka (read_committed) is the judge of *lost* and *doubled*; in the end the groups' offsets are the checkpoint's and
`kafka-eos verify` exits with 0. What has to hold is a ratio of at most 1.2, and nothing in the three columns behind it.

{note}"""

_WITH_SPARK = """
## With a real Spark

One Spark application reads the same source twice, by Spark's own Kafka source, and writes one copy by `format("kafka_eos")` and one by
Spark's own Kafka sink, which is at least once and is not judged.

"""

_COLUMNS = ("ratio", "ended", "lost", "doubled", "again: `python -m tests.cluster`")


def told(row: Row) -> str:
    """One line of a run's output."""
    stalls = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row.stalls.items())
    text = f"{row.event} {row.seconds:g} seed {row.seed} ({row.versions}): {stalls}; drivers killed: {row.killed}"
    return "\n".join(
        [
            text,
            *(f"  ENDED {each}" for each in (*row.ended, *row.others)),
            *(f"  WRONG {each}" for each in row.problems),
        ]
    )


def ratio(row: Row) -> float:
    """The longest stall of ours by Java's."""
    ours = [seconds for name, seconds in row.stalls.items() if name not in (JAVA, SPARKS)]
    return max(ours) / max(row.stalls[JAVA], 0.001)


def text(rows: Sequence[Row], note: str = "") -> str:
    """The whole page: a table for a stand-in's queries, one for those of a real Spark. `note`: the runner's words."""
    stand_in, real = [row for row in rows if SPARKS not in row.stalls], [row for row in rows if SPARKS in row.stalls]
    head = _HEAD.format(
        date=today(),
        cores=os.cpu_count(),
        ways=", ".join(name.replace("-", " with transaction.scope=") for name in _ways(stand_in)),
        note=f"{note}\n\n" if note else "",
    )
    tables = _table(stand_in) + (_WITH_SPARK + _table(real) if real else "")
    return head + tables + _what_fails(rows)


def _ways(rows: Sequence[Row]) -> list[str]:
    return [name for name in rows[0].stalls if name != JAVA] if rows else []


def _table(rows: Sequence[Row]) -> str:
    ways = _ways(rows)
    columns = ["event", "versions", *(f"{name}, s" for name in ways), "Java, s", *_COLUMNS]
    lines = [columns, ["---"] * len(columns), *(_cells(row, ways) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cells(row: Row, ways: Sequence[str]) -> list[str]:
    return [
        row.text,
        row.versions,
        *(f"{row.stalls[name]:.1f}" for name in ways),
        f"{row.stalls[JAVA]:.1f}",
        f"{ratio(row):.1f}",
        str(len(row.ended)),
        str(row.lost),
        str(row.doubled),
        f"`{again(row)}`",
    ]


def again(row: Row) -> str:
    """The options that play it again."""
    spark = "--spark " if SPARKS in row.stalls else ""
    seconds = f" --seconds {row.seconds:g}" if row.seconds else ""
    return f"{spark}--event {row.event}{seconds} --seed {row.seed}"


def _what_fails(rows: Sequence[Row]) -> str:
    found = [f"- {row.text}: {each}\n" for row in rows for each in (*row.ended, *row.others, *row.problems)]
    return "\n## What does not hold\n\n" + "".join(found) if found else ""


def write(rows: Sequence[Row], note: str) -> None:
    """Write the page."""
    PAGE.write_text(text(rows, note), encoding="utf-8")
