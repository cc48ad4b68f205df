"""The embedded broker alone: in an environment that has kafka-python, crc32c and kazoo, and nothing of Spark or the
connector's libraries.

What starting it costs there: docs/design/embedded-broker.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.wheel import environment

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.long]

REQUIRED = ("kafka-python", "crc32c", "kazoo")

EVERY_MODULE = """
import importlib, json, pkgutil, sys
import embedded_kafka, kafka_core
failed = {}
for package in (embedded_kafka, kafka_core):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        # pytest alone imports its plugin, and a `__main__` runs.
        if each.name == "embedded_kafka.pytest_plugin" or each.name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            failed[each.name] = str(error)
print(json.dumps(failed))
"""

A_TRANSACTION = """
import json, os, sys
from embedded_kafka import EmbeddedKafka
began = os.times()
with EmbeddedKafka() as kafka:
    after = os.times()
    from kafka import KafkaConsumer, KafkaProducer
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t")
    producer.init_transactions()
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.send("topic", value).get(timeout=60)
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()
    consumer = KafkaConsumer(
        "topic", bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    seen = []
    while not seen:
        seen += [record.value.decode() for records in consumer.poll(timeout_ms=1000).values() for record in records]
    consumer.close()
loaded = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps({"seen": seen, "loaded": sorted(name for name in loaded if not name.startswith("_")),
    "cpu_s": sum(after[:4]) - sum(began[:4])}))
"""


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has what the broker requires."""
    return environment(tmp_path_factory.mktemp("bare") / "environment", wheel, only=REQUIRED)


def said(python: Path, code: str, directory: Path) -> Any:
    environ = {"PATH": os.environ["PATH"], "HOME": str(directory), "TMPDIR": str(directory)}
    ended = subprocess.run(
        [python, "-W", "ignore", "-c", code], cwd=directory, env=environ, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


def test_every_module_of_the_broker_can_be_imported(bare: Path, tmp_path: Path) -> None:
    # Compressed batches need pyarrow; its module is loaded when the first one comes.
    assert set(said(bare, EVERY_MODULE, tmp_path)) == {"kafka_core.compression"}


def test_a_transaction_runs_through_a_client_of_kafka_python_and_nothing_else_is_loaded(
    bare: Path, tmp_path: Path
) -> None:
    found = said(bare, A_TRANSACTION, tmp_path)

    assert found["seen"] == ["committed"]
    assert set(found["loaded"]) <= {"crc32c", "embedded_kafka", "kafka", "kafka_core", "kazoo"}
