"""Spark's own Kafka source and sink, which the product replaces, work on the broker as they do on Kafka."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.peer import PEER_PYTHON, jvm_sink_jars
from tests.parity.brokers import Broker
from tests.parity.clients import SPARK
from tests.parity.judge import new_topic, values_of
from tests.support.peer import peer_environ

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
JOB = Path(__file__).with_name("spark_job.py")
# It takes half a minute on two cores.
ENDS_WITHIN_S = 300
ROWS = 1_000


@pytest.mark.shows(SPARK, "Kafka sink and source in batches; a stream from topic to topic with a checkpoint")
def test_spark_writes_and_reads_in_batches_and_streams_on_from_its_checkpoint(broker: Broker, tmp_path: Path) -> None:
    if not PEER_PYTHON.exists():
        pytest.skip("there is no environment with pyspark 4.0.0: make venv-bench")
    source, target = new_topic(broker, 3), new_topic(broker, 2)
    environ = peer_environ()
    answer = subprocess.run(
        [PEER_PYTHON, JOB, broker.bootstrap_servers, jvm_sink_jars(), source, target, tmp_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-6000:]
    assert json.loads(answer.stdout.splitlines()[-1]) == {
        "batch": ROWS,
        "distinct": ROWS,
        "first run": ROWS,
        "second run": 2 * ROWS,
        "keys": 2 * ROWS,
    }
    expected = sorted(b"v%d" % number for number in range(2 * ROWS))
    assert sorted(values_of(broker, source)) == expected
    assert sorted(values_of(broker, target)) == expected
