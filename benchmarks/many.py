"""What a pipeline costs among many on one cluster and one ledger, and a query among many in one Spark driver.

    .venv/bin/python -m benchmarks.many [--pipelines 1,10,100,1000] [--queries 1,10,50,100] [--format-queries 1,10,30] [--json many.json]

Owns: the brokers, the tables, the slopes.
Does not know: how a point is measured (`many_pipelines`, `many_queries`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import many_pipelines, many_queries
from benchmarks.peer import logs_in_memory
from benchmarks.slots import slope
from embedded_kafka.real import NEWEST_KAFKA, LocalKafka


def table(points: Sequence[Any], over: str) -> str:
    """One row for each point, and the slopes: what each further one of `over` adds."""
    names = [each.name for each in fields(points[0])]
    rows = [names, ["---"] * len(names)]
    rows += [[_cell(getattr(point, name)) for name in names] for point in points]
    slopes = {name: slope(points, over, name) for name in names if isinstance(getattr(points[0], name), int | float)}
    rows.append(
        [
            "each further one",
            *(f"{each:.3g}" if (each := slopes.get(name)) is not None else "" for name in names[1:]),
        ]
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else f"{value:,}"


@contextlib.contextmanager
def _broker(version: str) -> Iterator[LocalKafka]:
    """A fresh one, with its log in memory where there is room."""
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-data-", dir=logs_in_memory()) as data,
        LocalKafka(version, data_dir=Path(data, "kafka")) as broker,
    ):
        yield broker


def main() -> int:
    """Measure and print."""
    arguments = parse()
    found: dict[str, Any] = {
        "kafka": arguments.kafka, "pyspark": pyspark.__version__, "python": platform.python_version(),
        "rounds": arguments.rounds, "batches": arguments.batches, "trigger_ms": arguments.trigger_ms,
    }  # fmt: skip
    if arguments.pipelines:
        points = []
        with _broker(arguments.kafka) as broker:
            for point in many_pipelines.measure(broker, arguments.pipelines, arguments.rounds):
                print(point, flush=True)
                points.append(point)
        print(table(points, "pipelines"), flush=True)
        found["pipelines"] = [asdict(each) for each in points]
    for form, counts in zip(many_queries.FORMS, (arguments.queries, arguments.format_queries), strict=True):
        lines = []
        for count in counts:
            with _broker(arguments.kafka) as broker:
                line = many_queries.measure(broker, form, count, arguments.batches, arguments.trigger_ms)
            print(line, flush=True)
            lines.append(line)
        if lines:
            print(table(lines, "queries"), flush=True)
            found.setdefault("queries", []).extend(asdict(each) for each in lines)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    """The command line."""

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",") if each]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", type=numbers, default=[1, 10, 100, 1_000], help="beside the measured one")
    parser.add_argument("--rounds", type=int, default=3, help="batches of all pipelines that one batch follows (3)")
    parser.add_argument("--queries", type=numbers, default=[1, 10, 50, 100], help="by foreachBatch")
    parser.add_argument(
        "--format-queries",
        type=numbers,
        default=[1, 10, 30],
        help="by format; each takes 250 MB of the driver's machine",
    )
    parser.add_argument("--batches", type=int, default=8, help="of each query that count (8)")
    parser.add_argument("--trigger-ms", type=int, default=2_000, help="between two batches of a query (2,000)")
    parser.add_argument("--kafka", default=NEWEST_KAFKA)
    parser.add_argument("--json", type=Path, help="also write the points there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
