"""A streaming query over numbered rows that writes through `format("kafka_eos")`: run to its end, one file a
micro-batch.

Owns: the input (file k holds the numbers from k * rows on), starting the query and waiting for its end.
Does not know: what a test expects of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from pyspark_kafka_eos import ExactlyOnceWriter

_STARTS = 5

SLOTS = 2
"""Tasks of every micro-batch."""


def write_input(folder: Path, batches: int, rows: int) -> None:
    """Files 0 to `batches`, each a micro-batch; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(batches):
        path = folder / f"{batch:06}.txt"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_text("\n".join(str(number) for number in range(batch * rows, (batch + 1) * rows)))
            # Spark takes files by their times, and those of one millisecond in any order.
            os.utime(part, (1_700_000_000 + batch,) * 2)
            part.rename(path)


def numbers(spark: Any, folder: Path) -> Any:
    """The input as a stream of a string column `value`, in SLOTS partitions that depend on the values only."""
    lines = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .option("pathGlobFilter", "*.txt")
        .load(str(folder))
    )
    return lines.where(sf.length("value") > 0).repartition(SLOTS, "value")


def run_sink(
    spark: Any,
    folder: Path,
    options: Mapping[str, Any],
    shape: Callable[[Any], Any] = lambda frame: frame,
    *,
    batches: int = 1,
    rows: int = 10,
    output_mode: str = "append",
    way: str = "format",
    name: str = "kafka_eos",
    checkpoint: bool = True,
    location: str = "",
    timeout_s: float = 300.0,
) -> str:
    """Run the query over `batches` files in `folder`/input to their end; what Spark says of its failure, "" where it
    did not fail. The checkpoint is at `location`, by default `folder`/checkpoint; `way`: format (`name`) or
    foreachBatch, whose writer is given `location` as checkpointLocation unless `options` name another one.
    """
    write_input(folder / "input", batches, rows)
    location = location or str(folder / "checkpoint")
    writer = shape(numbers(spark, folder / "input")).writeStream.outputMode(output_mode).trigger(availableNow=True)
    if checkpoint:
        writer = writer.option("checkpointLocation", location)
    if way == "foreachBatch":
        writer = writer.foreachBatch(ExactlyOnceWriter({"checkpointLocation": location, **options}))
    else:
        writer = writer.format(name)
        for option, value in options.items():
            writer = writer.option(option, value)
    try:
        query = _start(writer)
    except Exception as error:  # noqa: BLE001 -- its class differs between classic and Connect
        return str(error)
    try:
        assert query.awaitTermination(timeout_s), "the query does not end"
    except StreamingQueryException as error:
        return str(error)
    finally:
        query.stop()
    return ""


def _start(writer: Any) -> Any:
    """Start the query. Spark gives a new Python worker 10 s to answer, which it does not on a machine that does much
    else.
    """
    for _ in range(_STARTS):
        try:
            return writer.start()
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    return writer.start()
