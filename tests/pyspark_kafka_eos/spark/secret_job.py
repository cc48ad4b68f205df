"""An application of its own that reads and writes Kafka with a login, with Spark's event log and everything else that
shows options.

    python -m tests.pyspark_kafka_eos.spark.secret_job <settings file, JSON>

Settings: folder; source, sink: options of the two formats; quiet: loggers that stay at INFO. The secrets are in the
file, not in the arguments.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.spark_session import spark_session

_TIMEOUT_S = 900


def main(path: Path) -> None:
    """Run two queries, by format and by foreachBatch, to their end; everything that they show goes to the standard
    output.
    """

    from embedded_kafka.real.java import require_java
    from pyspark_kafka_eos import ExactlyOnceWriter

    settings: dict[str, Any] = json.loads(path.read_text())
    folder = Path(settings["folder"])
    logging.basicConfig(level=logging.DEBUG)
    for name in settings["quiet"]:
        logging.getLogger(name).setLevel(logging.INFO)
    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    (folder / "events").mkdir()
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
    }
    spark = spark_session(folder, events, log_level="INFO")
    frame = spark.readStream.format("kafka_eos").options(**settings["source"]).load().selectExpr("value")
    frame.explain(True)
    print(repr(frame), frame)  # noqa: T201 -- the test reads it
    for name, writer in (
        (
            "format",
            frame.writeStream.format("kafka_eos").options(**settings["sink"], pipeline=f"{settings['name']}-by-format"),
        ),
        (
            "each",
            frame.writeStream.foreachBatch(
                ExactlyOnceWriter({**settings["sink"], "pipeline": f"{settings['name']}-by-each"})
            ),
        ),
    ):
        query = (
            writer.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
            .queryName(name)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_TIMEOUT_S)
        query.explain(True)
        print(query.lastProgress, query.status, query)  # noqa: T201 -- the test reads it
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
