"""`python -m tools.screenshots docs/images`: pictures of the command line, of a real run on the embedded broker.

Owns: the runs that are shown, the pictures' form.
Does not know: how a command works; it calls them as a user does.
Invariants: nothing shown is made up; a picture needs nothing from the network.
"""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.cli.tables import render
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot

_WIDTH = 132
"""Columns. A table of transactions needs them; wider pictures are hard to read in a README."""

_FONTS = re.compile(r"@font-face\s*\{[^}]*\}")
_PORT = 9092


class _Killed(Exception):
    """Stands for a driver that dies between the decision and the ends."""


def main(directory: Path) -> None:
    """Write doctor.svg, ledger.svg, verify.svg and transactions.svg into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        EmbeddedKafka() as kafka,
        closing(Cluster.shared(_options(kafka.bootstrap_servers, "any", "any").client)),
    ):
        _run_pipelines(kafka.bootstrap_servers)
        for name, words in {
            "doctor": ["doctor", "flights", "-o", "topic=flights.enriched"],
            "ledger": ["ledger"],
            "verify": ["verify", "--last", "2"],
            "transactions": ["transactions", "list"],
            "explain": ["transactions", "explain", "orders"],
        }.items():
            (directory / f"{name}.svg").write_text(_picture(words, kafka.bootstrap_servers))


def _picture(words: list[str], servers: str) -> str:
    asked = CliRunner().invoke(app, [*words, "--json", "-b", servers])
    # The port is another one each time: the usual one makes a picture that does not change for nothing.
    text = asked.stdout.replace(servers, f"127.0.0.1:{_PORT}")
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ kafka-eos {' '.join(words)}", style="bold"))
    console.print(render(json.loads(text)))
    picture = console.export_svg(title="kafka-eos")
    # Fonts would be fetched by whoever looks at it; any monospaced one does.
    return "\n".join(line.rstrip() for line in _FONTS.sub("", picture).splitlines()) + "\n"


def _run_pipelines(servers: str) -> None:
    """Two batches of `flights`, a third that is being written; one of `orders` whose driver died after the decision."""
    flights = _options(servers, "flights", "flights.enriched")
    cluster = Cluster.shared(flights.client)
    for topic in ("flights", "flights.enriched", "orders.paid"):
        admin.create_topic(cluster, topic, partitions=3, settings={"retention.ms": "-1"})
    driver = PerTask(Run(cluster, flights, "5d0c3e1a-7f1b-4c52-9a64-1f5f6a0d6f11"))
    driver.start(0)
    for batch_id in (0, 1):
        offsets = {TopicPartition("flights", number): 2500 * (batch_id + 1) for number in range(2)}
        read = {"flights": {str(where.partition): offset for where, offset in offsets.items()}}
        write = partial(_write, driver, batch_id)
        driver.process(batch_id, write, (json.dumps(read),), offsets)
    _write(driver, 2)
    orders = PerTask(Run(cluster, _options(servers, "orders", "orders.paid"), "c9b1b0de-52a7-4a0e-8a55-0a1b6a7d8e22"))
    orders.start(0)
    crash_points.arm("before-end", 1, _die)
    try:
        orders.process(0, partial(_write, orders, 0), ('{"orders":{"0":1200}}',), {})
    except _Killed:
        return
    raise AssertionError("the driver was to die before it ended any slot")


def _die() -> None:
    raise _Killed


def _options(servers: str, pipeline: str, topic: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": servers, "pipeline": pipeline, "topic": topic})


def _write(driver: PerTask, batch_id: int, _only: frozenset[int] | None = None) -> list[Seal]:
    plan = driver.plan(batch_id)
    values = [f'{{"batch":{batch_id},"row":{row}}}' for row in range(2500)]
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})
    return [write_slot(plan, slot, [rows]) for slot in range(2)]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
