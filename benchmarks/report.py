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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT

BETTER_JVM_TARGET = 1.5
LIMIT_TARGET = 0.7
SOURCE_TARGET = 1.5
BROKER_TARGET = 1.5
SCOPE_BATCH_TARGET = 0.5
SCOPE_BATCH_JVM_TARGET = 1.0
BATCH_SUFFIX = "-batch"
TLS_TARGET = 0.7
TLS_SUFFIX = "-tls"
"""The suffix that a variant with scope=batch adds to the name of the one with scope=task."""


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

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.cpu_seconds / self.records * 1e6

    @property
    def broker_cpu_seconds_per_million(self) -> float:
        return self.broker_cpu_seconds / self.records * 1e6


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


@dataclass(frozen=True)
class Ratio:
    """The ratio of two variants' medians, and its target (None: shown for information)."""

    name: str
    value_bytes: int
    value: float
    target: float | None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return f"target {self.target}: {'reached' if self.value >= self.target else 'MISSED'}"


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
                cpu_seconds_per_million=round(
                    statistics.median(run.cpu_seconds_per_million for run in group), 3
                ),
                broker_cpu_seconds_per_million=round(
                    statistics.median(run.broker_cpu_seconds_per_million for run in group), 3
                ),
                runs=len(group),
            )
        )
    return summaries


def ratios(
    summaries: Sequence[Summary], jvm: Sequence[str], exactly_once: str, limit: str, newest: str
) -> list[Ratio]:
    """The two that have a target, and the CPU of both sides, for each size of value that has the variants."""
    found: list[Ratio] = []
    for size in dict.fromkeys(each.value_bytes for each in summaries):
        by_name = {each.variant: each for each in summaries if each.value_bytes == size}
        if exactly_once not in by_name:
            continue
        ours = by_name[exactly_once]
        sinks = [by_name[name] for name in jvm if name in by_name]
        together = by_name.get(exactly_once + BATCH_SUFFIX)
        if together is not None:
            value = together.records_per_s / ours.records_per_s
            found.append(Ratio("scope=batch / scope=task", size, value, SCOPE_BATCH_TARGET))
            if sinks:
                best = max(sinks, key=lambda each: each.records_per_s)
                value = together.records_per_s / best.records_per_s
                found.append(Ratio("scope=batch / the better JVM sink", size, value, SCOPE_BATCH_JVM_TARGET))
        if sinks:
            best = max(sinks, key=lambda each: each.records_per_s)
            thriftiest = min(each.cpu_seconds_per_million for each in sinks)
            found += [
                Ratio(
                    "exactly once / the better JVM sink",
                    size,
                    ours.records_per_s / best.records_per_s,
                    BETTER_JVM_TARGET,
                ),
                Ratio(
                    "CPU: the better JVM sink / exactly once",
                    size,
                    thriftiest / ours.cpu_seconds_per_million,
                    None,
                ),
            ]
        if limit in by_name:
            top = by_name[limit].records_per_s
            found.append(Ratio("exactly once / the limit", size, ours.records_per_s / top, LIMIT_TARGET))
            if newest in by_name:
                value = by_name[newest].records_per_s / top
                found.append(Ratio("exactly once on the newest pyspark / the limit", size, value, None))
    return found


def source_ratios(summaries: Sequence[Summary], jvm: str, ours: Sequence[str]) -> list[Ratio]:
    """Our source over Spark's, in records per second and the other way round in CPU; the first of ours has the target."""
    found: list[Ratio] = []
    by_name = {(each.variant, each.value_bytes): each for each in summaries}
    for size in dict.fromkeys(each.value_bytes for each in summaries):
        peer = by_name.get((jvm, size))
        for name in ours:
            mine = by_name.get((name, size))
            if peer is None or mine is None:
                continue
            target = SOURCE_TARGET if name == ours[0] else None
            found += [
                Ratio(f"{name} / the JVM source", size, mine.records_per_s / peer.records_per_s, target),
                Ratio(f"CPU: the JVM source / {name}", size,
                      peer.cpu_seconds_per_million / mine.cpu_seconds_per_million, None),
            ]  # fmt: skip
    return found


def tls_ratios(summaries: Sequence[Summary], jvm: str) -> list[Ratio]:
    """Each way with TLS over itself without, in records per second, and over Spark's own sink `jvm` with TLS; ours have the target."""
    found: list[Ratio] = []
    by_name = {(each.variant, each.value_bytes): each for each in summaries}
    for (name, size), secured in by_name.items():
        plain = by_name.get((name.removesuffix(TLS_SUFFIX), size))
        if not name.endswith(TLS_SUFFIX) or plain is None:
            continue
        ours = plain.variant != jvm
        # The aim is for values of 1 KB.
        target = TLS_TARGET if ours and size >= 1000 else None
        found.append(
            Ratio(
                f"{plain.variant}: with TLS / without",
                size,
                secured.records_per_s / plain.records_per_s,
                target,
            )
        )
        peer = by_name.get((jvm + TLS_SUFFIX, size))
        if ours and peer is not None:
            found.append(
                Ratio(
                    f"TLS: {plain.variant} / the JVM sink",
                    size,
                    secured.records_per_s / peer.records_per_s,
                    None,
                )
            )
    return found


def broker_ratios(summaries: Sequence[Summary], kafka: str, embedded: str) -> list[Ratio]:
    """The embedded broker over Apache Kafka, with ready-made batches."""
    by_name = {(each.variant, each.value_bytes): each for each in summaries}
    return [
        Ratio(
            "ready-made batches: the embedded broker / Kafka",
            size,
            mine.records_per_s / by_name[kafka, size].records_per_s,
            BROKER_TARGET,
        )
        for (name, size), mine in by_name.items()
        if name == embedded and (kafka, size) in by_name
    ]


def print_report(summaries: Sequence[Summary], found: Sequence[Ratio], labels: Mapping[str, str]) -> None:
    """The table and the verdicts."""
    width = max(len(label) for label in labels.values())
    for size in dict.fromkeys(each.value_bytes for each in summaries):
        print(f"\nvalues of {size} bytes")
        print(
            f"  {'':{width}}  records/s   slowest   fastest    MB/s   CPU s per million: Spark side   broker"
        )
        for each in summaries:
            if each.value_bytes == size:
                print(
                    f"  {labels[each.variant]:{width}} {each.records_per_s:>10,.0f} {each.slowest_records_per_s:>9,.0f}"
                    f" {each.fastest_records_per_s:>9,.0f} {each.megabytes_per_s:>7.1f} {each.cpu_seconds_per_million:>20.2f}"
                    f" {each.broker_cpu_seconds_per_million:>16.2f}"
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
        "ratios": [
            {**asdict(ratio), "value": round(ratio.value, 3), "verdict": ratio.verdict} for ratio in found
        ],
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
