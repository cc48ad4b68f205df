"""The ways of writing and reading that `python -m benchmarks` compares.

Owns: the list, each way's options.
Does not know: how a way is carried out (`application`, `replayer`), the order of the runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeVar

from benchmarks.peer import PEER_SPARK

T = TypeVar("T")

# So many that a run takes half a second or more, warm, on two cores. A run writes them several times.
RECORDS = {100: 2_000_000, 1024: 400_000}

# The best of nine settings tried for each size (linger 5-100 ms, batches 64 KB-1 MB, buffers 32-128 MB, with and
# without lz4), which differed by 10 % among each other.
_ROOMY = {"kafka.buffer.memory": "134217728", "kafka.max.request.size": "4194304"}
TUNED_JVM = {
    100: {"kafka.linger.ms": "100", "kafka.batch.size": "524288", **_ROOMY},
    1024: {"kafka.linger.ms": "5", "kafka.batch.size": "131072", **_ROOMY},
}


def nearest(by_size: Mapping[int, T], value_bytes: int) -> T:
    """What the size nearest to this one has."""
    return by_size[min(by_size, key=lambda size: abs(size - value_bytes))]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way of writing, or with `reads` of reading, in one of the applications, with these options by size of value,
    and with `tls` by the listener that asks for it. `words`: the values are words, which a codec makes smaller; else
    random bytes.
    """

    name: str
    label: str
    application: str
    way: str
    options: dict[int, dict[str, str]] = dataclasses.field(default_factory=dict)
    reads: bool = False
    tls: bool = False
    words: bool = False

    def options_for(self, value_bytes: int) -> dict[str, str]:
        """The options of the size nearest to this one."""
        return nearest(self.options, value_bytes) if self.options else {}


PEER, NEWEST, LIMIT = f"pyspark {PEER_SPARK}", "newest pyspark", "no Spark"
NEWEST_EMBEDDED, LIMIT_EMBEDDED = "newest pyspark, embedded broker", "no Spark, embedded broker"
ON_EMBEDDED = (NEWEST_EMBEDDED, LIMIT_EMBEDDED)

SCOPE_BATCH = {100: {"transaction.scope": "batch"}}

JVM_SINKS = ("jvm-default", "jvm-tuned")
CODECS = ("lz4", "zstd")


def _compressed() -> Iterator[Variant]:
    for codec in CODECS:
        codec_only = {"kafka.compression.type": codec}
        tuned = {size: options | codec_only for size, options in TUNED_JVM.items()}
        ours = {100: codec_only}
        yield Variant(f"jvm-tuned-{codec}", f"{codec}: Spark's JVM Kafka sink, tuned", PEER, "jvm", tuned, words=True)
        yield Variant(f"exactly-once-{codec}", f"{codec}: ours, exactly once", PEER, "exactly-once", ours, words=True)
        yield Variant(
            f"exactly-once-newest-{codec}",
            f"{codec}: newest pyspark: ours, exactly once",
            NEWEST,
            "exactly-once",
            ours,
            words=True,
        )


VARIANTS = (
    Variant("jvm-default", "Spark's JVM Kafka sink, defaults", PEER, "jvm"),
    Variant("jvm-tuned", "Spark's JVM Kafka sink, tuned", PEER, "jvm", TUNED_JVM),
    Variant("row-by-row", "confluent-kafka, row by row", PEER, "row-by-row"),
    Variant("at-least-once", "ours without transactions", PEER, "at-least-once"),
    Variant("exactly-once", "ours, exactly once", PEER, "exactly-once"),
    Variant("exactly-once-batch", "ours, exactly once, scope=batch", PEER, "exactly-once", SCOPE_BATCH),
    Variant("jvm-tuned-tls", "TLS: Spark's JVM Kafka sink, tuned", PEER, "jvm", TUNED_JVM, tls=True),
    Variant("exactly-once-tls", "TLS: ours, exactly once", PEER, "exactly-once", tls=True),
    Variant("limit", "ready-made batches (the limit)", LIMIT, "replay"),
    Variant("count", "Spark to Python, nothing written", PEER, "count"),
    Variant("ready-made", "Spark to Python, ready-made batches instead", PEER, "ready-made"),
    Variant("at-least-once-newest", "newest pyspark: ours without transactions", NEWEST, "at-least-once"),
    Variant("exactly-once-newest", "newest pyspark: ours, exactly once", NEWEST, "exactly-once"),
    Variant("exactly-once-newest-batch", "newest pyspark: ours, scope=batch", NEWEST, "exactly-once", SCOPE_BATCH),
    Variant("count-newest", "newest pyspark: to Python, nothing written", NEWEST, "count"),
    Variant("ready-made-newest", "newest pyspark: to Python, ready-made batches instead", NEWEST, "ready-made"),
    Variant("exactly-once-newest-tls", "TLS: newest pyspark: ours, exactly once", NEWEST, "exactly-once", tls=True),
    *_compressed(),
    Variant("limit-embedded", "embedded broker: ready-made batches", LIMIT_EMBEDDED, "replay"),
    Variant("exactly-once-embedded", "embedded broker: newest pyspark, ours", NEWEST_EMBEDDED, "exactly-once"),
    Variant(
        "exactly-once-embedded-batch",
        "embedded broker: newest pyspark, ours, scope=batch",
        NEWEST_EMBEDDED,
        "exactly-once",
        SCOPE_BATCH,
    ),
    Variant("source-jvm", "Spark's JVM Kafka source, to nowhere", PEER, "kafka", reads=True),
    Variant("source-ours", "our source, to nowhere", PEER, "kafka_eos", reads=True),
    Variant("source-ours-newest", "newest pyspark: our source, to nowhere", NEWEST, "kafka_eos", reads=True),
)
