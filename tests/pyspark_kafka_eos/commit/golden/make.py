"""Makes the golden ledger records of one version: run with that version's code on the path.

    PYTHONPATH=<a checkout of that version> python tests/pyspark_kafka_eos/commit/golden/make.py <output folder> <name of the version>

Owns: which histories are kept, and the form of the files: JSON with the ledger's records as text and as the raw bytes of their
batch, in base64.
Does not know: what a newer version makes of them (`test_golden`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.dataframe_write import begin, commit
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import decode, scan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import batch_child
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run

ROWS = [[f"{slot} {row} " + "x" * 60 for row in range(40)] if slot != 1 else [] for slot in range(3)]
"""Three slots, of which the second is empty."""


class Killed(BaseException):
    """Stops the run in the middle, as a kill would."""


def settings_for(broker: EmbeddedKafka, name: str) -> dict[str, Any]:
    return {
        "options": {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"golden-{name}",
            "topic": f"golden-{name}-output",
            # Small, so that a slot writes to several partitions.
            "kafka.batch.size": "1024",
        },
        "query": "6d9fdd2f-golden",
        "batch": 0,
        "rows": ROWS,
        "offsets": [["golden-source", 0, 17]],
    }


def stopped_at(point: str, act: Any) -> None:
    """Run until a named point."""

    def stop() -> None:
        raise Killed

    crash_points.arm(point, 1, stop)
    with contextlib.suppress(Killed):
        act()


def abort(broker: EmbeddedKafka, name: str) -> None:
    cluster = Cluster(SinkOptions.parse(settings_for(broker, "task")["options"]).client)
    Transactions(cluster).init_producer_id(name, 60_000)
    cluster.close()


def write_batch(settings: dict[str, Any]) -> None:
    """df.write under a batch id."""
    options = SinkOptions.parse({**settings["options"], "batch.id": "0"}, "batch")
    begun = begin(options)
    assert begun.plan is not None
    seals = [write_slot(begun.plan, slot, arrow_batches(rows)) for slot, rows in enumerate(settings["rows"])]  # type: ignore[arg-type]
    commit(begun, seals)


def records_of(broker: EmbeddedKafka, settings: dict[str, Any]) -> list[dict[str, str]]:
    """What stands under the pipeline's key, in order."""
    from pyspark_kafka_eos.client.reading.log_reader import read_raw

    options = SinkOptions.parse(settings["options"])
    cluster = Cluster(options.client)
    driver = PerTask(Run(cluster, options, settings["query"]))
    where = driver.run.ledger.partition
    found = []
    offset = 0
    while True:
        read = read_raw(cluster, where, offset)
        batches = list(scan(bytes(read.records)))
        for info, data in batches:
            offset = info.last_offset + 1
            if info.control:
                continue
            rows = decode((info, data))
            for key, value in zip(rows.key.to_pylist(), rows.value.to_pylist(), strict=True):
                if key == options.pipeline.encode():
                    found.append({"value": value.decode(), "batch": text_of(bytes(data))})
        if not batches:
            cluster.close()
            return found


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def make(version: str) -> dict[str, Any]:
    """All histories on one transaction version."""
    made: dict[str, Any] = {"rows": ROWS}
    with EmbeddedKafka(in_process=True, config={"transaction.version": version}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        names = ["task", "repaired", "batch", "write"]
        topics = [NewTopic(f"golden-{name}-output", num_partitions=2) for name in names]
        for answer in admin.create_topics([*topics, NewTopic("golden-source", num_partitions=1)]).values():
            answer.result()

        task = settings_for(broker, "task")
        run(task)
        made["task"] = records_of(broker, task)

        repaired = settings_for(broker, "repaired")
        stopped_at("before-end", lambda: run(repaired))
        abort(broker, "golden-repaired.2")
        run(repaired)
        made["repaired"] = records_of(broker, repaired)

        batch = settings_for(broker, "batch")
        batch_child.run_batch(batch)
        made["batch"] = records_of(broker, batch)

        write = settings_for(broker, "write")
        write_batch(write)
        made["write"] = records_of(broker, write)
    return made


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    for version in ("1", "2"):
        path = folder / f"{name}-transaction-version-{version}.json"
        path.write_text(json.dumps(make(version), indent=1) + "\n")
    # Clients have threads.
    os._exit(0)


if __name__ == "__main__":
    main()
