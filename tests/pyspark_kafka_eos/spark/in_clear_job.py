"""An application that gives a format every secret by its text, and keeps what Spark shows of it.

    python -m tests.pyspark_kafka_eos.spark.in_clear_job <folder>

Into the folder: `told.json`, what each query was told; `pages/`, what the UI and the REST API answered; `events/`, the
event log; `plans`, what explain and the frames printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.spark_session import spark_session

PLANTED = "PLANTED-hunter2"
SHOWN = "SHOWN-in-every-plan"
"""A value that is no secret."""
_KAFKA = {
    "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN", "kafka.default.api.timeout.ms": "3000",
}  # fmt: skip
_PAGES_AT_MOST = 150
_WITHIN_S = 20


def secrets() -> dict[str, str]:
    """Every name that has a secret -> the planted one, in the form that the name asks for."""
    from pyspark_kafka_eos.options.login.security import SECRET_NAMES

    forms = {
        "sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{PLANTED}";',
        "sasl.oauthbearer.config": f"tenant=t-1 key={PLANTED}",
    }
    return {f"kafka.{name}": forms.get(name, PLANTED) for name in sorted(SECRET_NAMES)}


def ways(spark: Any, folder: Path) -> dict[str, Callable[[dict[str, str]], Any]]:
    """What may have options by format."""

    def frame() -> Any:
        return spark.range(3).selectExpr("cast(id as string) as value")

    def stream(options: dict[str, str]) -> None:
        rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
        query = (
            rows.writeStream.format("kafka_eos").options(topic="t", pipeline="p", **options)
            .option("checkpointLocation", str(folder / f"checkpoint-{len(os.listdir(folder))}-{options['kafka.client.id']}"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        with contextlib.suppress(Exception):
            query.explain(True)
        query.awaitTermination(120)

    return {
        "read": lambda options: spark.read.format("kafka_eos").options(subscribe="t", **options).load().collect(),
        "readStream": lambda options: spark.readStream.format("kafka_eos").options(subscribe="t", **options).load(),
        "write": lambda options: frame().write.format("kafka_eos").options(topic="t", **options).mode("append").save(),
        "writeStream": stream,
    }


def _pages(url: str) -> dict[str, bytes]:
    """What the UI and the REST API show, by address."""
    found: dict[str, bytes] = {}
    ahead = [url, f"{url}/environment/", f"{url}/SQL/", f"{url}/StreamingQuery/", f"{url}/api/v1/applications"]
    while ahead and len(found) < _PAGES_AT_MOST:
        address = ahead.pop(0)
        if address in found:
            continue
        with contextlib.suppress(OSError):
            found[address] = urllib.request.urlopen(address, timeout=_WITHIN_S).read()
            text = found[address].decode(errors="replace")
            if address.endswith("/applications"):
                (each,) = json.loads(text)
                base = f"{address}/{each['id']}"
                ahead += [
                    f"{base}/sql?details=true&planDescription=true&length=10000",
                    f"{base}/environment",
                    f"{base}/jobs",
                ]
            links = re.findall(r'href="(/[^"#]+)"', text)
            ahead += [
                url + link.replace("&amp;", "&") for link in links if "/static/" not in link and "kill" not in link
            ]
    return found


def _show(spark: Any, folder: Path) -> None:
    """Queries that are not refused: what is looked through does show options."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from embedded_kafka import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for made in admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)]).values():
            made.result(_WITHIN_S)
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.client.id": SHOWN}
        rows = spark.range(3).selectExpr("cast(id as string) as value")
        rows.write.format("kafka_eos").options(topic="in", **options).mode("append").save()
        read = spark.read.format("kafka_eos").options(subscribe="in", **options).load()
        read.explain(True)
        assert read.count() == 3
        stream = (
            spark.readStream.format("kafka_eos").options(subscribe="in", startingOffsets="earliest", **options).load()
        )
        stream.explain(True)
        query = (
            stream.selectExpr("value").writeStream.format("kafka_eos").options(topic="out", pipeline="shown", **options)
            .option("checkpointLocation", str(folder / "checkpoint-shown")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        query.explain(True)


def main(folder: Path) -> None:
    """All names in all ways."""
    from embedded_kafka.real.java import require_java
    from pyspark_kafka_eos import register

    os.environ.update(require_java().environ())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    (folder / "events").mkdir()
    (folder / "pages").mkdir()
    settings = {
        "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false", "spark.sql.ui.explainMode": "extended", "spark.eventLog.dir": f"file://{folder / 'events'}",
    }  # fmt: skip
    spark = spark_session(folder, settings)
    register(spark)
    told: dict[str, str] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, (name, value) in enumerate(secrets().items()):
            for way, act in ways(spark, folder).items():
                try:
                    act({**_KAFKA, "kafka.client.id": f"{number}-{way}", name: value})
                    told[f"{name} {way}"] = ""
                except Exception as error:  # noqa: BLE001 -- what a user would see
                    told[f"{name} {way}"] = str(error)
        _show(spark, folder)
    for number, page in enumerate(_pages(spark.sparkContext.uiWebUrl).values()):
        (folder / "pages" / str(number)).write_bytes(page)
    (folder / "plans").write_text(printed.getvalue())
    (folder / "told.json").write_text(json.dumps(told, indent=1))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
