"""Which process `kill worker` may strike."""

from __future__ import annotations

from tests.soak.workers import forks_of_the_daemon

JAVA = (1, "/usr/lib/jvm/bin/java -cp ... org.apache.spark.deploy.SparkSubmit")
DAEMON = "python -m pyspark.daemon pyspark.worker"


def test_a_worker_is_a_fork_of_the_daemon() -> None:
    assert forks_of_the_daemon({10: JAVA, 20: (10, DAEMON), 21: (20, DAEMON), 22: (20, DAEMON)}) in (
        [21, 22],
        [22, 21],
    )


def test_a_worker_may_have_a_lower_number_than_its_daemon() -> None:
    assert forks_of_the_daemon({10: JAVA, 32_000: (10, DAEMON), 30: (32_000, DAEMON)}) == [30]


def test_a_daemon_without_workers_is_left_alone() -> None:
    assert forks_of_the_daemon({10: JAVA, 20: (10, DAEMON)}) == []


def test_a_process_of_another_kind_is_no_worker() -> None:
    assert forks_of_the_daemon({10: JAVA, 20: (10, "python -m kafka_eos pyspark"), 21: (20, "sh")}) == []
