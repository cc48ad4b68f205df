"""An application that gives a format every secret by its text, and keeps what Spark shows of it.

    python -m tests.pyspark_kafka_eos.spark.in_clear_job <folder> [connect]

Into the folder: `told.json`, what each query was told; `pages/`, what the UI and the REST API answered; `events/`, the
event log; `plans`, what explain and the frames printed; with `connect`, where a server of Spark Connect of its own runs
the queries, `log/server`, what that server logged.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.spark_session import spark_session

PLANTED = "PLANTED-hunter2"
SHOWN = "SHOWN-in-every-plan"
"""A value that is no secret."""
_USER = "u"
_LOGIN = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
_STRANGER = {"kafka.sasl.password": {"kafka.sasl.username": "stranger"}}
"""The broker refuses this login, as it takes the one by JAAS: queries fail, and queries finish. The other names are
refused, some for being shown and some for having no effect with PLAIN.
"""
_PAGES_AT_MOST = 150
_WITHIN_S = 20


def secrets() -> dict[str, str]:
    """Every name that has a secret -> the planted one, in the form that the name asks for."""
    from pyspark_kafka_eos.options.login.security import SECRET_NAMES

    forms = {
        "sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{_USER}" password="{PLANTED}";',
        "sasl.oauthbearer.config": f"tenant=t-1 key={PLANTED}",
    }
    return {f"kafka.{name}": forms.get(name, PLANTED) for name in sorted(SECRET_NAMES)}


def ways(spark: Any, folder: Path) -> dict[str, Callable[[dict[str, str]], Any]]:
    """What may have options by format."""

    def frame() -> Any:
        return spark.range(3).selectExpr("cast(id as string) as value")

    def rows() -> Any:
        return spark.readStream.format("rate").load().selectExpr("cast(value as string) as value").writeStream

    def end(writing: Any, options: dict[str, str]) -> None:
        where = str(folder / f"checkpoint-{options['kafka.client.id']}")
        query = writing.option("checkpointLocation", where).trigger(availableNow=True).start()
        with contextlib.suppress(Exception):
            query.explain(True)
        query.awaitTermination(120)

    def by_function(options: dict[str, str]) -> None:
        given = {**options, "topic": "t", "pipeline": "p"}

        def write(batch: Any, number: int) -> None:
            from pyspark_kafka_eos import ExactlyOnceWriter

            ExactlyOnceWriter(given)(batch, number)

        end(rows().foreachBatch(write), options)

    return {
        "read": lambda options: spark.read.format("kafka_eos").options(subscribe="t", **options).load().collect(),
        "readStream": lambda options: end(
            spark.readStream.format("kafka_eos").options(subscribe="t", **options).load().writeStream.format("noop"),
            options,
        ),
        "write": lambda options: frame().write.format("kafka_eos").options(topic="t", **options).mode("append").save(),
        "writeStream": lambda options: end(
            rows().format("kafka_eos").options(topic="t", pipeline="p", **options), options
        ),
        "foreachBatch": by_function,
    }


def _pages(url: str) -> dict[str, bytes]:
    """What the UI and the REST API show, by address."""
    found: dict[str, bytes] = {}
    ahead = [
        url,
        f"{url}/environment/",
        f"{url}/SQL/",
        f"{url}/StreamingQuery/",
        f"{url}/connect/",
        f"{url}/api/v1/applications",
    ]
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


def _show(spark: Any, folder: Path, kafka: dict[str, str]) -> None:
    """Queries that are not refused: what is looked through does show options."""
    from pyspark_kafka_eos import ExactlyOnceWriter

    options = {**kafka, "kafka.client.id": SHOWN, "kafka.sasl.username": _USER, "kafka.sasl.password": PLANTED}
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    rows.write.format("kafka_eos").options(topic="in", **options).mode("append").save()
    read = spark.read.format("kafka_eos").options(subscribe="in", **options).load()
    read.explain(True)
    assert read.count() == 3
    stream = spark.readStream.format("kafka_eos").options(subscribe="in", startingOffsets="earliest", **options).load()
    stream.explain(True)
    for name in ("format", "function"):
        sink = {**options, "topic": "out", "pipeline": name, "checkpointLocation": str(folder / f"checkpoint-{name}")}
        writing = stream.selectExpr("value").writeStream.option("checkpointLocation", sink["checkpointLocation"])
        writing = (
            writing.foreachBatch(ExactlyOnceWriter(sink))
            if name == "function"
            else writing.format("kafka_eos").options(**sink)
        )
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        query.explain(True)


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    from confluent_kafka.admin import AdminClient, NewTopic

    from embedded_kafka import EmbeddedKafka, Security

    security = Security("SASL_PLAINTEXT", ("PLAIN",), {_USER: PLANTED})
    with EmbeddedKafka(security=security) as kafka:
        admin = AdminClient({**kafka.client_settings(_USER), "log_level": 0})
        for made in admin.create_topics([NewTopic(name, 1) for name in ("in", "out", "t")]).values():
            made.result(_WITHIN_S)
        yield kafka.bootstrap_servers


@contextlib.contextmanager
def _classic(folder: Path, settings: dict[str, str]) -> Iterator[tuple[Any, str]]:
    spark = spark_session(folder, settings)
    yield spark, spark.sparkContext.uiWebUrl
    spark.stop()


@contextlib.contextmanager
def _connected(folder: Path, settings: dict[str, str]) -> Iterator[tuple[Any, str]]:
    """A client of a server that runs in a process of its own, as start-connect-server.sh starts it."""
    import pyspark
    from pyspark.sql import SparkSession

    from embedded_kafka.child.ports import free_ports

    port, ui = free_ports(2)
    settings = {
        **settings, "spark.ui.port": str(ui), "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }  # fmt: skip
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--master", "local[2]", "--driver-memory", "1g"]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    (folder / "log").mkdir()
    with (folder / "log" / "server").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            _await(f"http://127.0.0.1:{ui}/connect/", server)
            spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
            yield spark, f"http://127.0.0.1:{ui}"
            spark.stop()
        finally:
            server.terminate()
            server.wait(60)


def _await(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=_WITHIN_S).read()
            return
        assert server.poll() is None and time.monotonic() < deadline, "the server did not start"
        time.sleep(0.2)


def main(folder: Path, *, connect: bool) -> None:
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
    told: dict[str, str] = {}
    printed = io.StringIO()
    with _broker() as servers, (_connected if connect else _classic)(folder, settings) as (spark, url):
        kafka = {"kafka.bootstrap.servers": servers, **_LOGIN}
        register(spark)
        with contextlib.redirect_stdout(printed):
            for number, (name, value) in enumerate(secrets().items()):
                for way, act in ways(spark, folder).items():
                    try:
                        more = {"kafka.client.id": f"{number}-{way}", name: value, **_STRANGER.get(name, {})}
                        act({**kafka, **more})
                        told[f"{name} {way}"] = ""
                    except Exception as error:  # noqa: BLE001 -- what a user would see
                        told[f"{name} {way}"] = str(error)
            _show(spark, folder, kafka)
        for number, page in enumerate(_pages(url).values()):
            (folder / "pages" / str(number)).write_bytes(page)
    (folder / "plans").write_text(printed.getvalue())
    (folder / "told.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), connect="connect" in sys.argv[2:])
