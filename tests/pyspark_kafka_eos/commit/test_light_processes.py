"""What a process loads that plans and commits batches. By format Spark has two of them for each query of a driver."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

_BATCHES = """
import sys
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark import sink

options = SinkOptions.parse({"kafka.bootstrap.servers": sys.argv[1], "topic": "light", "pipeline": "light"})
cluster = Cluster.shared(options.client)
admin.ensure_topic(cluster, "light", partitions=1, settings={})
for batch in range(2):
    lines = (f"offsets of batch {batch}",)
    plan, handed = handover.begin(cluster, options, "query", batch, lines)
    handover.finish(cluster, options, handed, [], lines, {}, tasks=0)
newest = Ledger(cluster, options.ledger_topic, "light").newest(settle=True)
print(newest.batch_id, *sorted({"pandas", "pyarrow"} & set(sys.modules)))
"""


def test_a_process_that_plans_and_commits_batches_does_not_load_pandas(kafka: AnyKafka) -> None:
    """One array of one value did: 20 MB and 0.2 s of CPU in each of these processes."""
    assert importlib.util.find_spec("pandas") is not None

    done = subprocess.run(
        [sys.executable, "-c", _BATCHES, kafka.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("1 pyarrow\n", 0), done.stderr[-2000:]
