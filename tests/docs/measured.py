"""The tables of docs/design/performance.md: what the benchmarks wrote, as text.

Owns: which figures a table has, and their aims.
Does not know: the page's words, how it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results.json"

LATENCY_AIM, LATENCY_AIM_ONE_TRANSACTION = 1.3, 1.5
"""p50 and p99 to those of Spark's own sink."""
COMMIT_AIM_MS, DRIVER_AIM_MB = 0.2, 300


def table(head: str, *rows: tuple[object, ...]) -> str:
    """A table in Markdown."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def read(name: str) -> Any:
    """What a benchmark wrote."""
    return json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))


def reached(value: float, aim: float) -> str:
    """The verdict of a figure that may not be above its aim."""
    return "**reached**" if value <= aim else "**missed**"


def throughput() -> str:
    """The medians of the benchmark's newest run, and the CPU's spread."""
    results = read(RESULTS.name)
    found = {(each["variant"], each["value_bytes"]): each for each in results["medians"]}
    sizes = sorted({size for _, size in found})
    head = " | ".join(f"{size}-byte values: k records/s; CPU s per million (JVM + Python), broker's" for size in sizes)
    rows = [
        (each["label"], *(_cell(found.get((name, size))) for size in sizes))
        for name, each in results["variants"].items()
    ]
    return table(f" | {head}", *rows)


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    cpu, python = found["cpu_seconds_per_million"], found["python_cpu_seconds_per_million"]
    least, most = found["least_cpu_seconds_per_million"], found["most_cpu_seconds_per_million"]
    return (
        f"{found['records_per_s'] / 1000:,.0f}; **{cpu:.2f}** ({cpu - python:.2f} + {python:.2f}; {least:.2f} to {most:.2f}), "
        f"{found['broker_cpu_seconds_per_million']:.2f}"
    )


def aims() -> str:
    """The ratios of the same run that have an aim, and what stands beside them to explain one."""
    results = read(RESULTS.name)
    found: dict[str, dict[int, str]] = {}
    sizes = sorted({each["value_bytes"] for each in results["medians"]})
    for each in results["ratios"]:
        # A limit stands behind the name, and differs by size.
        name, _, rest = each["name"].partition(" (")
        limit = rest.split(" ")[0]
        if each["target"] is not None:
            bound, verdict = each["verdict"].removeprefix("target ").split(": ")
            behind = f", limit {limit}" if limit else ""
            text = f"{each['value']:.2f} ({bound}{behind}) **{verdict.lower()}**"
        elif limit:
            text = f"{each['value']:.2f} (these take {limit})"
        else:
            continue
        found.setdefault(name, {})[each["value_bytes"]] = text
    rows = [(name, *(cells.get(size, "") for size in sizes)) for name, cells in found.items()]
    return table(" | ".join(["ratio of medians", *(f"{size}-byte values" for size in sizes)]), *rows)


def end_to_end() -> str:
    """The medians of benchmarks/latency.json, and the phases of a micro-batch as Spark reports them."""
    rows = []
    for each in read("latency.json")["summary"]:
        low, high = each["p50_range_ms"]
        aim = LATENCY_AIM_ONE_TRANSACTION if "batch" in each["variant"] else LATENCY_AIM
        ratios = [each["p50_ms / jvm"], each["p99_ms / jvm"]]
        phases = each["phases_ms"]
        rows.append(
            (
                each["label"],
                f"{each['p50_ms']:.0f} ({low:.0f}, {high:.0f})",
                f"{each['p99_ms']:.0f}",
                *(
                    f"{ratio:.2f}" if each["variant"] == "jvm" else f"{ratio:.2f} {reached(ratio, aim)}"
                    for ratio in ratios
                ),
                *(f"{phases[name]:.0f}" for name in ("walCommit", "addBatch", "commitOffsets", "triggerExecution")),
            )
        )
    head = " | p50 (lowest, highest) | p99 | p50 / JVM | p99 / JVM | log offsets | add batch | log commit | trigger"
    return table(head, *rows)


def tasks() -> str:
    """benchmarks/many-tasks.json, with the aims of the commit and of the driver's memory."""
    points = read("many-tasks.json")["points"]
    commit, driver = (_rise(points, "slots", name) or 0.0 for name in ("commit_ms", "driver_mb"))
    most = max(point["driver_mb"] for point in points)
    judged = {
        "commit_ms": f"**{commit:.2f}** (aim {COMMIT_AIM_MS}: {reached(commit, COMMIT_AIM_MS)})",
        "driver_mb": f"**{driver:.3f}** (aim: below {DRIVER_AIM_MB} MB, {reached(most, DRIVER_AIM_MB)})",
    }
    return _curve(points, "slots", "slots", _SCALED, judged)


def partitions() -> str:
    """benchmarks/many-partitions.json."""
    points = read("many-partitions.json")["points"]
    return _curve(points, "places", "partitions of one slot", _SCALED)


_SCALED = {
    "begin_ms": "begin, ms",
    "commit_ms": "commit, ms",
    "visible_ms": "until every marker is written, ms",
    "decision_bytes": "decision, bytes of JSON",
    "restart_ms": "a new run begins, ms",
    "found_open_ms": "it finds the slots open, ms",
    "verify_ms": "verify, ms",
    "driver_mb": "driver, MB",
}


def pipelines() -> str:
    """benchmarks/many.json: pipelines that share a cluster and a ledger."""
    points = read("many.json")["pipelines"]
    columns = {
        "begin_ms": "begin",
        "commit_ms": "commit",
        "after_all_begin_ms": "after all: begin",
        "after_all_commit_ms": "after all: commit",
        "restart_ms": "a new run begins",
        "newest_ms": "the newest decision is read",
        "doctor_ms": "doctor",
        "verify_ms": "verify",
        "driver_mb": "driver, MB",
        "broker_mb": "broker, MB",
        "ledger_kb": "ledger, kB",
    }
    return _curve(points, "pipelines", "other pipelines", columns)


def queries() -> str:
    """benchmarks/many.json: queries in one driver, by foreachBatch and by format."""
    columns = {
        "batches_per_s": "batches/s",
        "trigger_ms": "trigger, ms",
        "trigger_p99_ms": "its p99",
        "commit_ms": "commit, ms",
        "driver_mb": "driver's Python, MB",
        "driver_threads": "its threads",
        "jvm_mb": "JVM, MB",
        "jvm_heap_mb": "after collection, MB",
        "jvm_threads": "its threads",
        "task_workers": "Python of tasks: processes",
        "task_workers_mb": "MB",
        "planners": "Python that plans and commits: processes",
        "planners_mb": "MB",
        "broker_connections": "connections to the broker",
    }
    parts = []
    for form in ("foreachBatch", "format"):
        points = [each for each in read("many.json")["queries"] if each["form"] == form]
        parts.append(_curve(points, "queries", f"queries by {form}", columns))
    return "\n\n".join(parts)


def _curve(
    points: Sequence[Mapping[str, Any]],
    over: str,
    label: str,
    columns: Mapping[str, str],
    judged: Mapping[str, str] | None = None,
) -> str:
    """A row for each point, and what each further one adds. `judged`: in place of that, where there is an aim."""
    rows: list[tuple[object, ...]] = [
        (f"{point[over]:,}", *(_number(point[name]) for name in columns)) for point in points
    ]
    slopes = {name: _slope(_rise(points, over, name)) for name in columns} | dict(judged or {})
    return table(" | ".join([label, *columns.values()]), *rows, ("each further one", *slopes.values()))


def _rise(points: Sequence[Mapping[str, Any]], over: str, name: str) -> float | None:
    """What each further one adds, from the first to the last point that has the figure; None without two of them."""
    there = [point for point in points if point[name] is not None]
    if len(there) < 2:
        return None
    first, last = there[0], there[-1]
    return float((last[name] - first[name]) / (last[over] - first[over]))


def _slope(value: float | None) -> str:
    """Where less is measured with more of them, the broker's warming is what is seen."""
    if value is None:
        return ""
    return "none" if value <= 0 else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


MEASURED = {
    "throughput": throughput,
    "aims": aims,
    "latency": end_to_end,
    "tasks": tasks,
    "partitions": partitions,
    "pipelines": pipelines,
    "queries": queries,
}
"""Block of the page -> its table."""
