"""The results of a benchmark's runs: medians, ratios, a table for people and results.json for programs.

Owns: the targets and whether they are reached.
Invariants:
- Every number in the table can be recomputed from the runs in results.json.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.catalogue import CODECS, JVM_SINKS, nearest
from benchmarks.children import ROOT

LIMIT, COUNT, READY_MADE = "limit", "count", "ready-made"
OURS, NEWEST = "exactly-once", "-newest"
BATCH_SUFFIX, TLS_SUFFIX = "-batch", "-tls"

BETTER_JVM_TARGETS = {100: 2.0, 1024: 1.3}
JVM_CPU_TARGETS = {100: 0.5, 1024: 0.9}
COMPOSITE_TARGETS = {"": 1.2, BATCH_SUFFIX: 1.35}
SCOPE_BATCH_TARGET = 0.85
SOURCE_TARGET = 3.0
BROKER_TARGET = 1.5
TLS_TARGET = 0.7


@dataclass(frozen=True)
class Run:
    """One write of one data set in one way."""

    variant: str
    value_bytes: int
    round: int
    records: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float = 0.0
    python_cpu_seconds: float = 0.0
    """Of `cpu_seconds`, which also has the JVM's."""

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.cpu_seconds / self.records * 1e6

    @property
    def broker_cpu_seconds_per_million(self) -> float:
        return self.broker_cpu_seconds / self.records * 1e6

    @property
    def python_cpu_seconds_per_million(self) -> float:
        return self.python_cpu_seconds / self.records * 1e6


@dataclass(frozen=True)
class Summary:
    """The runs of one variant and data set."""

    variant: str
    value_bytes: int
    records_per_s: float
    slowest_records_per_s: float
    fastest_records_per_s: float
    megabytes_per_s: float
    cpu_seconds_per_million: float
    broker_cpu_seconds_per_million: float
    runs: int
    least_cpu_seconds_per_million: float = 0.0
    most_cpu_seconds_per_million: float = 0.0
    python_cpu_seconds_per_million: float = 0.0


@dataclass(frozen=True)
class Ratio:
    """The ratio of two variants' medians, and its target (None: shown for information). `at_most`: the target is an
    upper bound, as of costs.
    """

    name: str
    value_bytes: int
    value: float
    target: float | None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        reached = self.value <= self.target if self.at_most else self.value >= self.target
        return f"target {'<=' if self.at_most else '>='} {self.target}: {'reached' if reached else 'MISSED'}"


def summarise(runs: Iterable[Run]) -> list[Summary]:
    """Medians over the rounds, in the order in which variants first appear."""
    groups: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.value_bytes, run.variant), []).append(run)
    summaries = []
    for (value_bytes, variant), group in groups.items():
        speeds = [run.records_per_s for run in group]
        median = statistics.median(speeds)
        summaries.append(
            Summary(
                variant=variant,
                value_bytes=value_bytes,
                records_per_s=round(median),
                slowest_records_per_s=round(min(speeds)),
                fastest_records_per_s=round(max(speeds)),
                megabytes_per_s=round(median * value_bytes / 1e6, 1),
                cpu_seconds_per_million=round(statistics.median(run.cpu_seconds_per_million for run in group), 3),
                broker_cpu_seconds_per_million=round(
                    statistics.median(run.broker_cpu_seconds_per_million for run in group), 3
                ),
                runs=len(group),
                least_cpu_seconds_per_million=round(min(run.cpu_seconds_per_million for run in group), 3),
                most_cpu_seconds_per_million=round(max(run.cpu_seconds_per_million for run in group), 3),
                python_cpu_seconds_per_million=round(
                    statistics.median(run.python_cpu_seconds_per_million for run in group), 3
                ),
            )
        )
    return summaries


def all_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Every ratio whose two sides were run."""
    return [
        *sink_ratios(summaries),
        *composite_ratios(summaries),
        *at_once_ratios(summaries),
        *source_ratios(summaries),
        *tls_ratios(summaries),
        *codec_ratios(summaries),
        *broker_ratios(summaries),
    ]


def _by_size(summaries: Sequence[Summary]) -> Iterator[tuple[int, dict[str, Summary]]]:
    for size in dict.fromkeys(each.value_bytes for each in summaries):
        yield size, {each.variant: each for each in summaries if each.value_bytes == size}


def sink_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Ours, on either pyspark, over the better of Spark's own sinks, in records per second and in CPU; scope=batch over
    scope=task.
    """
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        sinks = [by_name[name] for name in JVM_SINKS if name in by_name]
        for name in (OURS, OURS + NEWEST):
            ours, together = by_name.get(name), by_name.get(name + BATCH_SUFFIX)
            for each in (ours, together) if sinks else ():
                if each is None:
                    continue
                fastest = max(sink.records_per_s for sink in sinks)
                thriftiest = min(sink.cpu_seconds_per_million for sink in sinks)
                speed = each.records_per_s / fastest
                cost = each.cpu_seconds_per_million / thriftiest
                judged = each is ours
                found += [
                    Ratio(
                        f"{each.variant} / the better JVM sink",
                        size,
                        speed,
                        nearest(BETTER_JVM_TARGETS, size) if judged else None,
                    ),
                    Ratio(
                        f"CPU: {each.variant} / the better JVM sink",
                        size,
                        cost,
                        nearest(JVM_CPU_TARGETS, size) if judged else None,
                        at_most=True,
                    ),
                ]
            if ours is not None and together is not None:
                found.append(
                    Ratio(
                        f"{together.variant} / {ours.variant}",
                        size,
                        together.records_per_s / ours.records_per_s,
                        SCOPE_BATCH_TARGET,
                    )
                )
    return found


def composite_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """The Spark side's CPU over the composite limit: Spark's hand-over to Python, nothing written, and ready-made
    batches.
    """
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        for version in ("", NEWEST):
            parts = [by_name.get(COUNT + version), by_name.get(LIMIT)]
            limit = sum(each.cpu_seconds_per_million for each in parts if each is not None)
            if None not in parts:
                found += _costs_over("the composite limit", limit, size, by_name, version, judged=True)
    return found


def at_once_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """The Spark side's CPU over that of tasks which drop their rows and send ready-made batches: the two parts of the
    composite limit at the same time, on the same cores and caches. Shown for information.
    """
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        for version in ("", NEWEST):
            both = by_name.get(READY_MADE + version)
            if both is not None:
                limit = both.cpu_seconds_per_million
                found += _costs_over("both parts at once", limit, size, by_name, version, judged=False)
    return found


def _costs_over(
    what: str, limit: float, size: int, by_name: Mapping[str, Summary], version: str, *, judged: bool
) -> Iterator[Ratio]:
    """Ours with either scope over `limit`, in CPU seconds per million, which stands behind the name."""
    for scope, target in COMPOSITE_TARGETS.items():
        ours = by_name.get(OURS + version + scope)
        if ours is not None:
            name = f"CPU: {ours.variant} / {what} ({limit:.2f} s per million)"
            value = ours.cpu_seconds_per_million / limit
            yield Ratio(name, size, value, target if judged else None, at_most=True)


def codec_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Ours over Spark's own sink where both compress, in records per second and in CPU."""
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        for codec in CODECS:
            peer = by_name.get(f"jvm-tuned-{codec}")
            for name in (f"{OURS}-{codec}", f"{OURS}{NEWEST}-{codec}"):
                ours = by_name.get(name)
                if ours is None or peer is None:
                    continue
                cost = ours.cpu_seconds_per_million / peer.cpu_seconds_per_million
                found += [
                    Ratio(f"{name} / the JVM sink", size, ours.records_per_s / peer.records_per_s, None),
                    Ratio(f"CPU: {name} / the JVM sink", size, cost, None),
                ]
    return found


def source_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Our source over Spark's, in records per second and in CPU."""
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        peer = by_name.get("source-jvm")
        for name in ("source-ours", "source-ours-newest"):
            mine = by_name.get(name)
            if peer is None or mine is None:
                continue
            cost = mine.cpu_seconds_per_million / peer.cpu_seconds_per_million
            found += [
                Ratio(f"{name} / the JVM source", size, mine.records_per_s / peer.records_per_s, SOURCE_TARGET),
                Ratio(f"CPU: {name} / the JVM source", size, cost, None),
            ]
    return found


def tls_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Each way with TLS over itself without, in records per second, and over Spark's own sink with TLS; ours have the
    target.
    """
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        peer = by_name.get("jvm-tuned" + TLS_SUFFIX)
        for name, secured in by_name.items():
            plain = by_name.get(name.removesuffix(TLS_SUFFIX))
            if not name.endswith(TLS_SUFFIX) or plain is None:
                continue
            ours = plain.variant not in JVM_SINKS
            # The aim is for values of 1 KB.
            target = TLS_TARGET if ours and size >= 1000 else None
            value = secured.records_per_s / plain.records_per_s
            found.append(Ratio(f"{plain.variant}: with TLS / without", size, value, target))
            if ours and peer is not None:
                value = secured.records_per_s / peer.records_per_s
                found.append(Ratio(f"TLS: {plain.variant} / the JVM sink", size, value, None))
    return found


def broker_ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """The embedded broker over Apache Kafka, with ready-made batches."""
    found: list[Ratio] = []
    for size, by_name in _by_size(summaries):
        mine, kafka = by_name.get("limit-embedded"), by_name.get(LIMIT)
        if mine is not None and kafka is not None:
            name = "ready-made batches: the embedded broker / Kafka"
            found.append(Ratio(name, size, mine.records_per_s / kafka.records_per_s, BROKER_TARGET))
    return found


def print_report(summaries: Sequence[Summary], found: Sequence[Ratio], labels: Mapping[str, str]) -> None:
    """The table and the verdicts."""
    width = max(len(label) for label in labels.values())
    for size in dict.fromkeys(each.value_bytes for each in summaries):
        print(f"\nvalues of {size} bytes")
        print(
            f"  {'':{width}}  records/s   slowest   fastest    MB/s   CPU s per million: Spark side (least - most)   its Python   broker"
        )
        for each in summaries:
            if each.value_bytes == size:
                print(
                    f"  {labels[each.variant]:{width}} {each.records_per_s:>10,.0f} {each.slowest_records_per_s:>9,.0f}"
                    f" {each.fastest_records_per_s:>9,.0f} {each.megabytes_per_s:>7.1f} {each.cpu_seconds_per_million:>20.2f}"
                    f" ({each.least_cpu_seconds_per_million:.2f} - {each.most_cpu_seconds_per_million:.2f})"
                    f" {each.python_cpu_seconds_per_million:>14.2f} {each.broker_cpu_seconds_per_million:>8.2f}"
                )
        for ratio in found:
            if ratio.value_bytes == size:
                print(f"  {ratio.name}: {ratio.value:.2f}  {ratio.verdict}".rstrip())
    print(flush=True)


def write_results(
    path: Path,
    *,
    arguments: Mapping[str, Any],
    versions: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    warm_up: Mapping[str, Mapping[str, Any]],
    runs: Sequence[Run],
    summaries: Sequence[Summary],
    found: Sequence[Ratio],
    commit_latency: Sequence[Mapping[str, float]],
) -> None:
    """All measurements, and the machine they were made on, as JSON."""
    body = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "connector", "benchmarks")),
        "machine": machine(),
        "versions": versions,
        "arguments": arguments,
        "variants": variants,
        "warm_up": warm_up,
        "ratios": [{**asdict(ratio), "value": round(ratio.value, 3), "verdict": ratio.verdict} for ratio in found],
        "medians": [asdict(each) for each in summaries],
        "commit_latency": list(commit_latency),
        "runs": [asdict(run) for run in runs],
    }
    path.write_text(json.dumps(body, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Cores, processor, memory and kernel of this machine."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line),
            model,
        )
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": [round(each, 2) for each in os.getloadavg()],
    }


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
