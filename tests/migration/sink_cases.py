"""What is put to both sinks: jobs that both run, and mistakes that both refuse; what differs on purpose.

Owns: the cases, their rows, the tables of differences with their reasons.
Does not know: Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ROWS = 12
"""Each file of a stream and each batch has this many rows, numbered in the column `n`; enough that keys spread over all
partitions."""

PARTITIONS = 3
"""Of both topics of every case."""

ROW_TIME_MS = 1_700_000_000_000
"""What a timestamp column says."""

# What a job of today gives its producer and ours takes; the last three have no effect here. REFUSED_HERE has what it
# does not take.
_PRODUCER = {
    "kafka.acks": "all", "kafka.compression.type": "lz4", "kafka.batch.size": "32768",
    "kafka.enable.idempotence": "true", "kafka.max.in.flight.requests.per.connection": "5",
    "kafka.request.timeout.ms": "20000", "kafka.delivery.timeout.ms": "60000", "kafka.max.request.size": "2000000",
    "kafka.client.id": "migrating", "kafka.max.block.ms": "30000",
    "kafka.linger.ms": "5", "kafka.retries": "5", "kafka.buffer.memory": "33554432",
}  # fmt: skip

# How long the JVM's producer looks for a topic that is not there; a minute by default.
_SOON = {"kafka.max.block.ms": "4000"}

_HEADERS = (
    "array(struct('a' as key, cast(string(n) as binary) as value), struct('a' as key, cast(null as binary) as value), "
    "struct('b' as key, cast('' as binary) as value)) as headers"
)
_KEY = "concat('key ', n) as key"
_VALUE = "concat('value ', n) as value"


@dataclass(frozen=True)
class SinkCase:
    """`columns`: expressions over `n`. In them and in `options` {topic} and {other} are the two topics of the case and
    format; an option that is None is left out. `save_mode`: of df.write, or the stream's output mode; "" leaves it to
    Spark.
    `placed`: which partition a row goes to is told by the row. `runs`: how often the stream is run on its checkpoint,
    one more file each time. `says`: what Spark's sink says of it, so that it is that mistake.
    """

    name: str
    mode: Literal["batch", "stream"]
    columns: tuple[str, ...] = (_VALUE,)
    options: Mapping[str, str | None] = field(default_factory=lambda: {"topic": "{topic}"})
    save_mode: str = "append"
    placed: bool = False
    runs: int = 1
    says: str = ""

    def as_json(self, topics: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """For the job. `topics`: format -> role -> name."""
        return {
            "name": self.name,
            "mode": self.mode,
            "columns": self.columns,
            "options": dict(self.options),
            "save_mode": self.save_mode,
            "runs": self.runs,
            "topics": topics,
        }


JOBS = (
    SinkCase("value-only", "batch"),
    SinkCase("key-and-value", "batch", (_KEY, _VALUE), placed=True),
    SinkCase("binary", "batch", ("cast(concat('k', n) as binary) as key", "cast(string(n) as binary) as value"), placed=True),
    SinkCase("null-keys-and-values", "batch", (
        "if(n % 3 = 0, null, concat('key ', n)) as key", "if(n % 4 = 0, null, concat('value ', n)) as value")),
    SinkCase("more-columns", "batch", ("n as extra", _KEY, _VALUE, "n as timestamps"), placed=True),
    SinkCase("topic-column", "batch", (_KEY, _VALUE, "if(n % 2 = 0, '{topic}', '{other}') as topic"), {}, placed=True),
    SinkCase("topic-option-over-the-column", "batch", (_KEY, _VALUE, "'{other}' as topic"), placed=True),
    SinkCase("partition-column", "batch", (_KEY, _VALUE, "cast(n % 3 as int) as partition"), placed=True),
    SinkCase("partition-column-with-nulls", "batch", (
        _KEY, _VALUE, "cast(if(n % 2 = 0, 1, null) as int) as partition"), placed=True),
    SinkCase("headers", "batch", (_KEY, _VALUE, _HEADERS), {"topic": "{topic}", "includeHeaders": "true"}, placed=True),
    SinkCase("headers-without-the-option", "batch", (_KEY, _VALUE, _HEADERS), placed=True),
    SinkCase("null-headers", "batch", (
        _KEY, _VALUE, "if(n > 5, array(struct('a' as key, cast(string(n) as binary) as value)), null) as headers"), placed=True),
    SinkCase("no-rows", "batch", ("explode(cast(array() as array<string>)) as value",)),
    SinkCase("producer-settings", "batch", (_KEY, _VALUE), {"topic": "{topic}", **_PRODUCER}, placed=True),
    SinkCase("option-names-in-any-case", "batch", (_KEY, _VALUE), {"TOPIC": "{topic}", "INCLUDEHEADERS": "TRUE"},
             placed=True),
    SinkCase("timestamp-column", "batch", (_KEY, _VALUE, f"timestamp_millis({ROW_TIME_MS}) as timestamp"), placed=True),
    SinkCase("stream-value-only", "stream"),
    SinkCase("stream-restarted", "stream", (_KEY, _VALUE), placed=True, runs=3),
    SinkCase("stream-all-columns", "stream", (
        _KEY, _VALUE, _HEADERS, "if(n % 2 = 0, '{topic}', '{other}') as topic", "cast(n % 3 as int) as partition"),
        {"includeHeaders": "true", **_PRODUCER}, placed=True),
)  # fmt: skip

MISTAKES = (
    SinkCase("no-value", "batch", (_KEY,), says="value"),
    SinkCase("value-is-a-number", "batch", ("n as value",), says="value"),
    SinkCase("key-is-a-number", "batch", (_VALUE, "n as key"), says="key"),
    SinkCase("headers-are-a-map", "batch", (_VALUE, "map('a', 'b') as headers"), says="headers"),
    SinkCase("partition-is-a-long", "batch", (_VALUE, "cast(1 as bigint) as partition"), says="partition"),
    SinkCase("topic-is-a-number", "batch", (_VALUE, "1 as topic"), {}, says="topic"),
    SinkCase("no-topic", "batch", options={}, says="topic"),
    SinkCase("null-topic-in-a-row", "batch", (_VALUE, "if(n = 7, null, '{topic}') as topic"), {}, says="null topic"),
    SinkCase("no-such-partition", "batch", (_VALUE, "if(n = 7, 99, 0) as partition"), {"topic": "{topic}", **_SOON}),
    SinkCase("record-too-large", "batch", ("repeat('x', if(n = 7, 3000000, 1)) as value",)),
    SinkCase("overwrite", "batch", save_mode="overwrite", says="Overwrite"),
    SinkCase("ignore", "batch", save_mode="ignore", says="Ignore"),
    SinkCase("no-servers", "batch", options={"topic": "{topic}", "kafka.bootstrap.servers": None},
             says="bootstrap.servers"),
    SinkCase("own-serializer", "batch", options={"topic": "{topic}", "kafka.key.serializer": "x"}, says="key.serializer"),
    SinkCase("a-setting-that-cannot-be-read", "batch", options={"topic": "{topic}", "kafka.max.request.size": "much"},
             says="max.request.size"),
    SinkCase("stream-no-value", "stream", (_KEY,), says="value"),
    SinkCase("stream-no-topic", "stream", options={}, says="topic"),
    SinkCase("stream-null-topic-in-a-row", "stream", (_VALUE, "if(n = 7, null, '{topic}') as topic"), {},
             says="null topic"),
)  # fmt: skip
"""What both refuse."""

REFUSED_HERE = (
    SinkCase("unknown-topic", "batch", options={"topic": "{topic}-never", **_SOON}),
    SinkCase("stream-unknown-topic", "stream", options={"topic": "{topic}-never", **_SOON}),
    SinkCase("unknown-option", "batch", options={"topic": "{topic}", "topics": "x"}),
    SinkCase("unknown-setting", "batch", options={"topic": "{topic}", "kafka.lingerms": "5"}),
    SinkCase("acks-1", "batch", options={"topic": "{topic}", "kafka.acks": "1"}),
    SinkCase("include-headers-false", "batch", options={"topic": "{topic}", "includeHeaders": "false"}),
    SinkCase("save-mode-left-out", "batch", save_mode=""),
    SinkCase("stream-output-mode-update", "stream", save_mode="update"),
)  # fmt: skip
"""What Spark's sink takes and ours does not, on purpose: `WHY_REFUSED`."""

WHY_REFUSED = {
    "unknown-topic": ("does not exist", "Spark's producer has a misspelt topic created, where the broker allows it"),
    "stream-unknown-topic": ("does not exist", "the same"),
    "unknown-option": ("topics", "Spark ignores what it does not know; a misspelt option would change what is written"),
    "unknown-setting": ("did you mean kafka.linger.ms", "the same, for Kafka's own settings"),
    "acks-1": ("acks", "a transaction is only safe with acks=all"),
    "include-headers-false": ("includeHeaders", "Spark's sink writes the headers column whatever it says, so it misleads"),
    "save-mode-left-out": ("Append", "Spark itself allows a Python sink only append and overwrite, and begins with neither"),
    "stream-output-mode-update": ("update", "Spark itself does not let a Python sink be run in the output mode update"),
}  # fmt: skip
"""Case -> what our refusal says, why it is one."""

TAKEN_HERE = (SinkCase("names-in-capitals", "batch", ("concat('key ', n) as KEY", "concat('value ', n) as Value")),)
"""What ours takes and Spark's sink does not, on purpose: it looks for its columns with their case, Spark elsewhere does
not.
"""

DIFFERENCES: dict[str, dict[str, str]] = {
    "no-such-partition": {
        "class": "Kafka's producer waits whether the partition comes (TimeoutException); ours names the row"
    },
    "ignore": {"class": "Spark itself refuses the mode for a Python sink, with an AnalysisException of its own"},
    "no-servers": {"class": "the JVM's tasks fail with a bare SparkException; ours is refused before there are tasks"},
    "stream-no-value": {"class": "of a JVM stream only the text remains, in StreamingQueryException"},
    "stream-no-topic": {"class": "of a JVM stream only the text remains, in StreamingQueryException"},
    "timestamp-column": {"times": "Spark's sink drops a timestamp column; ours gives the records that time"},
}
"""Case -> part of the outcome -> why it is not that of Spark's sink."""
