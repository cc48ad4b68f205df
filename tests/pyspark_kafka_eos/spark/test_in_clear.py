"""Every secret, given to the format by its text, is looked for in plans, the pages of Spark's UI, its REST API and the
event log, for reads and writes of batches and streams; with a server of Spark Connect in its log, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pyspark_kafka_eos.spark.in_clear_job import PLANTED, SHOWN

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.kafka, pytest.mark.embedded]

WITHIN_S = 1200


SHOWN_BY_SPARK = [
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
    "kafka.sasl.oauthbearer.assertion.private.key.pem",
    "kafka.sasl.oauthbearer.config",
    "kafka.ssl.key.pem",
    "kafka.ssl.keystore.key",
]


def played(folder: Path, *more: str) -> dict[str, str]:
    """What each query was told; asserts that none of what was kept or printed has the secret."""
    words = [sys.executable, "-m", "tests.pyspark_kafka_eos.spark.in_clear_job", str(folder), *more]
    done = subprocess.run(words, capture_output=True, timeout=WITHIN_S, env={**os.environ}, check=False)

    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    told: dict[str, str] = json.loads((folder / "told.json").read_text())
    files = [each for each in folder.rglob("*") if each.is_file()]
    # What is looked through is there, and shows options.
    for part in ("plans", "pages", "events"):
        shows = (SHOWN.encode() in each.read_bytes() for each in files if part in each.relative_to(folder).parts)
        assert any(shows), part
    assert [each for each in files if PLANTED.encode() in each.read_bytes()] == []
    assert PLANTED.encode() not in done.stdout + done.stderr
    # Some queries were refused, some failed, some finished.
    shown = sorted({name.split()[0] for name, text in told.items() if "Spark shows the options of a format" in text})
    assert shown == SHOWN_BY_SPARK
    assert "LoginRefused" in told["kafka.sasl.password writeStream"]
    assert all(told[f"kafka.sasl.jaas.config {way}"] == "" for way in ("read", "write", "writeStream"))
    return told


def test_a_secret_by_its_text_is_shown_nowhere(tmp_path: Path) -> None:
    played(tmp_path)


def test_a_server_of_spark_connect_shows_none_either(tmp_path: Path) -> None:
    """Its tab and its events have the statements that clients send, each with all options."""
    pytest.importorskip("grpc", reason="Spark Connect's client is not installed")

    told = played(tmp_path, "connect")

    assert {name.split()[1] for name in told} == {"read", "readStream", "write", "writeStream", "foreachBatch"}
    pages = [each.read_text() for each in (tmp_path / "pages").iterdir()]
    assert any("data_source" in page and SHOWN in page for page in pages)
    events = "".join(each.read_text() for each in (tmp_path / "events").rglob("events_*"))
    assert "SparkListenerConnectOperationStarted" in events and "SparkListenerConnectOperationFailed" in events
    assert "SparkConnectServer" in (tmp_path / "log" / "server").read_text()
