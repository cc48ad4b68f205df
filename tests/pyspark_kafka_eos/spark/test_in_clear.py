"""Every secret, given to the format by its text, is looked for in plans, the pages of Spark's UI, its REST API and the
event log, for reads and writes of batches and streams.
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


def test_a_secret_by_its_text_is_shown_nowhere(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.pyspark_kafka_eos.spark.in_clear_job", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, timeout=WITHIN_S, env={**os.environ}, check=False)

    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    shown = sorted({name.split()[0] for name, text in told.items() if "Spark shows the options of a format" in text})
    assert shown == [
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
        "kafka.sasl.oauthbearer.assertion.private.key.pem",
        "kafka.sasl.oauthbearer.config",
        "kafka.ssl.key.pem",
        "kafka.ssl.keystore.key",
    ]
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    # What is looked through is there, and shows options.
    for part in ("plans", "pages", "events"):
        shows = (SHOWN.encode() in each.read_bytes() for each in files if part in each.relative_to(tmp_path).parts)
        assert any(shows), part
    assert [each for each in files if PLANTED.encode() in each.read_bytes()] == []
    assert PLANTED not in "".join(told.values())
