"""The figures of docs/sizing.md, computed from the code's constants and from a benchmark's results.

    python -m tests.docs.figures      writes them into the page, and those of `measured` into docs/design/performance.md

Owns: the example's assumptions, the formulas.
Does not know: the pages' words, what was measured beside throughput (`measured`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.reading.fetcher import FETCH_BYTES
from pyspark_kafka_eos.client.writing.appending import one_record
from pyspark_kafka_eos.client.writing.delivery import BUFFER_BYTES
from pyspark_kafka_eos.model import Decision, RoutedTopic, Seal, SealedPartition
from pyspark_kafka_eos.model.write_settings import WriteSettings
from pyspark_kafka_eos.options import LONGEST_TRANSACTION_MS
from pyspark_kafka_eos.options.sink import DEFAULT_MARGIN_MS
from pyspark_kafka_eos.records import pack
from pyspark_kafka_eos.slot.routing import SECTIONS_BYTES, SMALLEST_SECTION_BYTES
from pyspark_kafka_eos.slot.turn_sender import MOST_HELD_BYTES
from tests.docs.measured import MEASURED, RESULTS, ROOT, table

PAGE = ROOT / "docs" / "sizing.md"
PERFORMANCE = ROOT / "docs" / "design" / "performance.md"

RATE, VALUE_BYTES, SOURCES, OUTPUTS, TRIGGER_S = 50_000, 1024, 24, 24, 10
BUSY = 0.5
"""The share of a core that may be busy in the example: the rest is for bursts and for catching up."""
OUTAGE_S = 300
MIB = 1024 * 1024


def median(variant: str, value_bytes: int = VALUE_BYTES) -> dict[str, Any]:
    """A variant's medians of the benchmark's newest run."""
    (found,) = (
        each
        for each in json.loads(RESULTS.read_text(encoding="utf-8"))["medians"]
        if (each["variant"], each["value_bytes"]) == (variant, value_bytes)
    )
    return dict(found)


# ---- each block of the page


def cores() -> str:
    """CPU of the example."""
    rows = []
    for label, variant in (
        ("transaction.scope=task", "exactly-once-newest"),
        ("transaction.scope=batch", "exactly-once-newest-batch"),
    ):
        found = median(variant)
        spark, brokers = found["cpu_seconds_per_million"], found["broker_cpu_seconds_per_million"]
        used = RATE / 1e6
        rows.append((f"`{label}`", spark, brokers, f"{used * spark / BUSY:.2f}", f"{used * brokers / BUSY:.2f}"))
    head = (
        f"{VALUE_BYTES}-byte values | Spark: CPU s per million | brokers: CPU s per million | "
        f"Spark: cores for {RATE:,}/s at {BUSY:.0%} | brokers: cores"
    )
    return table(head, *rows)


def longest_batch_s() -> float:
    """What the outage and the margin leave of the longest timeout."""
    return LONGEST_TRANSACTION_MS / 1000 - DEFAULT_MARGIN_MS / 1000 - OUTAGE_S


def timeout() -> str:
    """The bound of a batch in the example."""
    writes = median("exactly-once-newest")["records_per_s"]
    most = longest_batch_s() * writes
    catching_up = OUTAGE_S * RATE / writes
    return table(
        "of the example | value",
        ("`kafka.transaction.timeout.ms`, its highest default", f"{LONGEST_TRANSACTION_MS:,}"),
        ("`transaction.margin.ms`, default", f"{DEFAULT_MARGIN_MS:,}"),
        ("longest outage, assumed", f"{OUTAGE_S} s"),
        ("longest batch", f"{longest_batch_s():.0f} s"),
        ("records/s that the query writes, measured on two cores", f"{writes:,}"),
        ("`maxOffsetsPerTrigger`, at most", f"{math.floor(most / 1e6) * 1_000_000:,}"),
        (
            f"without it: the batch after an outage of {OUTAGE_S} s",
            f"{OUTAGE_S * RATE:,} records, {catching_up:.0f} s",
        ),
        (f"one batch of {TRIGGER_S} s", f"{TRIGGER_S * RATE:,} records, {TRIGGER_S * RATE / writes:.1f} s"),
    )


def section_bytes(partitions: int) -> int:
    """The most that one output partition's section takes."""
    share = max(SMALLEST_SECTION_BYTES, SECTIONS_BYTES // partitions)
    return min(WriteSettings.batch_bytes, share)


def memory_bytes(partitions: int) -> dict[str, int]:
    """What a task holds at most, by purpose."""
    return {
        "sections that are being filled": partitions * section_bytes(partitions),
        "batches that are not acknowledged": BUFFER_BYTES + section_bytes(partitions),
        "source: two fetched answers and their columns": 2 * FETCH_BYTES + 2 * FETCH_BYTES,
        "`transaction.scope=batch`: batches that wait for a turn": MOST_HELD_BYTES,
    }


def memory() -> str:
    """A task's memory for several numbers of output partitions."""
    counts = (OUTPUTS, 64, 1000)
    found = [memory_bytes(count) for count in counts]
    rows: list[tuple[object, ...]] = [(name, *(f"{each[name] / MIB:.1f} MiB" for each in found)) for name in found[0]]
    rows.append(("together", *(f"{sum(each.values()) / MIB:.1f} MiB" for each in found)))
    return table(" | ".join(["a task holds at most", *(f"{count} output partitions" for count in counts)]), *rows)


def decision(tasks: int, partitions_per_task: int) -> Decision:
    """A decision as the example's batches make it."""
    per_part = RATE * TRIGGER_S // tasks // partitions_per_task
    parts = tuple(
        SealedPartition("orders.clean", number, 1_000_000_007 + 7919 * number, per_part - 1, per_part, _number(number))
        for number in range(partitions_per_task)
    )
    routed = RoutedTopic("orders.clean", "0d7c2f5e-8a41-4d0b-b6c3-52f9a7e1b834", OUTPUTS)
    seals = tuple(
        Seal(
            f"clean-orders:{slot}", slot, ProducerIdentity(4_000_000 + 17 * slot, 1200 + slot), 2,
            records=per_part * partitions_per_task, bytes=per_part * partitions_per_task * VALUE_BYTES, digest=_number(slot + 1),
            opened_ms=1_795_000_000_000 + 13 * slot, topics=(routed,),
            partitions=tuple(
                replace(part, first_offset=part.first_offset + slot * per_part, digest=_number(slot * 1009 + part.partition))
                for part in parts
            ),
        )
        for slot in range(tasks)
    )  # fmt: skip
    offsets = json.dumps({"orders": {str(number): 2_000_000_011 + 104_729 * number for number in range(SOURCES)}})
    return Decision(
        "clean-orders", "6b9a1f52-0c1d-4b62-9d55-3f1c8a7d1e11", 123_456, seals, (offsets,), 1_795_000_009_000, "0.1.0",
        earlier=(),
    )  # fmt: skip


def _number(seed: int) -> int:
    # A digest does not compress; these do not either.
    return (seed + 1) * 0x9E3779B97F4A7C15 % 2**64


def decision_bytes(made: Decision) -> tuple[int, int]:
    """The record's value, and the batch that is written to the ledger topic."""
    value = made.to_bytes()
    packed = pack(
        one_record(made.pipeline.encode(), value),
        transactional=True,
        compression="gzip",
        max_batch_bytes=None,
    )
    return len(value), len(packed)


def ledger() -> str:
    """The size of a decision for several batches."""
    rows = []
    for tasks, parts in ((4, 4), (SOURCES, OUTPUTS), (200, OUTPUTS), (200, 200)):
        value, written = decision_bytes(decision(tasks, parts))
        a_day = written * 24 * 3600 // TRIGGER_S
        rows.append(
            (
                f"{tasks} × {parts}",
                f"{value:,}",
                f"{written:,}",
                f"{written / (tasks * parts):.0f}",
                f"{a_day / MIB:,.0f} MiB",
            )
        )
    head = (
        "tasks × output partitions of each | bytes of the record | written, compressed | for each task and partition | "
        f"a day, one batch each {TRIGGER_S} s, before compaction"
    )
    return table(head, *rows)


def latency() -> str:
    """The part of the latency that is known."""
    writes = median("exactly-once-newest")["records_per_s"]
    rows = [
        (f"{seconds} s", f"{seconds / 2:g} s", f"{seconds * RATE:,}", f"{seconds * RATE / writes:.2f} s")
        for seconds in (1, TRIGGER_S, 60)
    ]
    return table(
        f"trigger | wait in the mean | records of a batch at {RATE:,}/s | their writing, at {writes:,}/s",
        *rows,
    )


BLOCKS = {"cores": cores, "timeout": timeout, "memory": memory, "ledger": ledger, "latency": latency}
PAGES: dict[Path, dict[str, Callable[[], str]]] = {PAGE: BLOCKS, PERFORMANCE: MEASURED}


def marks(page: Path, name: str) -> tuple[str, str]:
    """The lines around a block."""
    return (
        f"<!-- {page.stem} {name}: made by python -m tests.docs.figures -->",
        f"<!-- end of {page.stem} {name} -->",
    )


def current(page: Path, name: str) -> str:
    """What stands in the block now."""
    begin, end = marks(page, name)
    return page.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()


def main() -> None:
    """Write all blocks into the pages."""
    for page, blocks in PAGES.items():
        text = page.read_text(encoding="utf-8")
        for name, made in blocks.items():
            begin, end = marks(page, name)
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n{made()}\n{end}{after}"
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
