"""Brokers and a real Spark for the tests that ask for them, shared by the whole session.

Owns: starting them once and stopping them, also after failures and Ctrl-C; which kind of broker this run is about.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_ZOOKEEPER_KAFKA, LocalKafka
from embedded_kafka.real.java import require_java
from kafka_core import table
from tests.support import left_out, leftovers
from tests.support.brokers import AnyKafka
from tests.support.quick_start import flags
from tests.support.spark_session import SMALL, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes depends on what else the machine does, so no test asks.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_ADMIN_TIMEOUT_S = 30
_topics = itertools.count(1)


class MakeTopic(Protocol):
    """What the `topic` fixture gives."""

    def __call__(self, partitions: int = 4, **configs: str) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brokers",
        choices=("embedded", "real"),
        default="embedded",
        help="embedded: the broker of this package; real: Apache Kafka, which judges both sides (make parity)",
    )
    parser.addoption(
        "--shuffle-files",
        type=int,
        metavar="SEED",
        help="run the files in another order, which depends on this number alone (make test-shuffled)",
    )
    parser.addoption(
        "--from-both-ends",
        action="store_true",
        help="one of the processes takes the files from the end of their order, where those are that only compute",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Every Spark that a test starts, in whatever way, starts quickly: Java itself reads the one variable. Spark alone
    reads the other one, which leaves Apache Kafka as its users run it.
    """
    # Every machine, in whatever test, goes only where the row of its table says.
    table.checked = True
    config.pluginmanager.register(leftovers, "leftovers")
    of_java = config.getoption("--brokers") == "embedded"
    os.environ.setdefault("JDK_JAVA_OPTIONS" if of_java else "SPARK_SUBMIT_OPTS", flags())


def pytest_report_header(config: pytest.Config) -> str | None:
    """The seed to repeat this order with."""
    seed = config.option.shuffle_files
    return None if seed is None else f"order of the files: --shuffle-files {seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The same where the beginning is far away, or was not printed."""
    said = pytest_report_header(config)
    if said:
        terminalreporter.write_line(said)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who is given which file; None for what --dist says."""
    if not config.option.from_both_ends:
        return None
    from tests.support.both_ends import FromBothEnds

    return FromBothEnds(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """How the process of an xdist worker ended, where it ended too early: xdist shows the test alone, and a signal is
    half of the answer.
    """
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if error is not None and process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            print(
                f"\n{node.gateway.id} ended with {process.wait(10)} (a negative number is a signal's)",
                file=sys.__stderr__,
            )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which this run wants no test are not imported, unless they are named."""
    if collection_path in {Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args}:
        return None
    return left_out.is_left_out(collection_path, config.option.markexpr) or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that only a real Kafka can pass (its tools, its files, several brokers) are left to `--brokers real`, and
    there those that are about the embedded broker are left out. Files with the slowest tests come first, or the order
    is shuffled.
    """
    not_here = "embedded" if config.getoption("--brokers") == "real" else "real"
    left_out = [item for item in items if item.get_closest_marker(not_here)]
    config.hook.pytest_deselected(items=left_out)
    files = _by_file(item for item in items if not item.get_closest_marker(not_here))
    seed = config.option.shuffle_files
    ordered = _slow_files_first(files) if seed is None else _shuffled(files, seed)
    items[:] = itertools.chain.from_iterable(ordered)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collecting and importing leave no garbage, so the collector has nothing to look for until the first test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


_OBJECTS_PER_COLLECTION = 10_000
"""Python's own 700 cost 8 s of the CPU of `make check`, a tenth of that 7 s of it; ten times more saves nothing."""


def pytest_collection_finish() -> None:
    """What was collected lives as long as the process, half a million objects: where the collector walks them again and
    again, that is an eighth of the CPU of `make check`. Garbage goes first, or it would be kept too, with all clients
    that it holds. What a file has to have let go at its end, `leftovers` collects by itself.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])


def _by_file(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return list(files.values())


def _shuffled(files: list[list[pytest.Item]], seed: int) -> list[list[pytest.Item]]:
    """Files in an order that depends on the seed and on nothing else; the tests of a file keep theirs."""
    return random.Random(seed).sample(files, len(files))


def _slow_files_first(files: list[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """Files with Spark, then files that take long without it, then files with a broker, then the others; of each kind
    those with the most long or judged tests first. Else the order stays.

    Two or three processes share the files, and each takes the next one when it is almost done with its last: if a long
    file came last, one process would run it alone while the others have nothing left.
    """
    return sorted(files, key=_rank)


def _rank(tests_of_one_file: list[pytest.Item]) -> tuple[int, int]:
    marks = Counter(mark.name for test in tests_of_one_file for mark in test.iter_markers())
    kind = 0 if marks["spark"] else 1 if marks["processes"] or marks["slow"] else 2 if marks["kafka"] else 3
    return kind, -marks["long"] - marks["judged"]


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """A broker with transaction version 2: the embedded one, or the newest Kafka, which needs no ZooKeeper."""
    real = request.config.getoption("--brokers") == "real"
    with LocalKafka() if real else EmbeddedKafka(config={"transaction.version": "2"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_zk(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """A broker with transaction version 1: the embedded one, or the last Kafka with ZooKeeper."""
    real = request.config.getoption("--brokers") == "real"
    with LocalKafka(NEWEST_ZOOKEEPER_KAFKA) if real else EmbeddedKafka(config={"transaction.version": "1"}) as broker:
        yield broker


@pytest.fixture
def topic(kafka: AnyKafka) -> MakeTopic:
    """Makes topics with names of their own in `kafka`: topic(partitions=4, **{"max.message.bytes": "2000"})."""
    return topics_of(kafka)


@pytest.fixture
def topic_zk(kafka_zk: AnyKafka) -> MakeTopic:
    """The same in `kafka_zk`."""
    return topics_of(kafka_zk)


def topics_of(broker: AnyKafka) -> MakeTopic:
    """Makes topics in the given broker; each exists when its name is returned."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def make(partitions: int = 4, **configs: str) -> str:
        name = f"topic-{os.getpid()}-{next(_topics)}"
        # Tests write records with times long past; the broker looks for old ones 30 s after its start.
        kept = {"retention.ms": "-1", **configs}
        new = NewTopic(name, num_partitions=partitions, config=kept)
        for answer in admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S).values():
            answer.result(timeout=_ADMIN_TIMEOUT_S)
        return name

    return make


def spark_is_at_least(major: int, minor: int) -> bool:
    """Whether the pyspark that runs here is that version or a newer one."""
    import pyspark

    return tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (major, minor)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in local mode with two threads, which is what the smallest supported machine has."""
    # Read by PySpark when it starts its JVM; the JVM is the session's own, so nothing is put back.
    os.environ.update(require_java().environ())
    # Without it workers would run whatever python3 is on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **SMALL,
        "spark.app.name": "tests",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if spark_is_at_least(4, 1):
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    session = spark_session(tmp_path_factory.mktemp("spark"), settings, log_level="ERROR")
    yield session
    session.stop()
