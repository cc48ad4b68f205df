"""What a worker keeps from task to task: frozen imports, the directories of Spark's archives."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import zipfile
import zipimport
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.spark import opening, workers

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@pytest.fixture
def import_paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What Python knows of its import paths, as it was when the test ends."""
    finders, modules = dict(sys.path_importer_cache), set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(finders)
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def an_archive(path: Path, **modules: str) -> str:
    """An archive on the import path whose first package is imported."""
    package = f"package_{path.stem.replace('-', '_').replace('.', '_')}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        for name, text in modules.items():
            archive.writestr(f"{package}/{name}.py", text)
    sys.path.insert(0, str(path))
    return package


def noting(found: list[str]) -> Callable[[str], object]:
    """Python's own reading of an archive's directory, which notes the archive."""
    read: Any = zipimport._read_directory  # type: ignore[attr-defined]

    def reading(archive: str) -> object:
        found.append(archive)
        return read(archive)

    return reading


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives whose directories were read."""
    found: list[str] = []
    monkeypatch.setattr(zipimport, "_read_directory", noting(found))
    return found


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-sql-kafka.jar"])
def test_an_archive_of_spark_is_read_once_and_can_still_be_imported_from(
    tmp_path: Path, import_paths: None, readings: list[str], name: str
) -> None:
    package = an_archive(tmp_path / name, early="said = 1", late="said = 2")
    assert importlib.import_module(f"{package}.early").said == 1
    assert readings == [str(tmp_path / name)]

    workers.make_ready()
    importlib.invalidate_caches()

    assert importlib.import_module(f"{package}.late").said == 2
    assert readings == [str(tmp_path / name)]


def test_without_it_python_reads_the_archive_again(tmp_path: Path, import_paths: None, readings: list[str]) -> None:
    package = an_archive(tmp_path / "pyspark.zip", late="said = 2")
    importlib.import_module(package)

    importlib.invalidate_caches()

    # Python 3.13 reads it when it is next needed, earlier ones at once.
    assert importlib.import_module(f"{package}.late").said == 2
    assert len(readings) > 1, "this Python reads nothing again: pyspark_kafka_eos.spark.workers need not care"


def test_a_users_archive_that_was_replaced_is_seen(tmp_path: Path, import_paths: None) -> None:
    package = an_archive(tmp_path / "users.zip", early="said = 1")
    assert importlib.import_module(f"{package}.early").said == 1

    an_archive(tmp_path / "users.zip", early="said = 1", added="said = 3")
    workers.make_ready()
    importlib.invalidate_caches()

    assert importlib.import_module(f"{package}.added").said == 3


@pytest.fixture
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has frozen nothing yet and has no connection to Spark. What is frozen here stays so, as what the
    session has frozen: thawed, it would be walked again in every later collection.
    """
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(workers, "_to_spark", [])
    monkeypatch.setattr(workers, "_freezes", 0)
    gc.freeze()


def what_stays(count: int = 20_000) -> list[list[int]]:
    """Objects that the collector has to look at, as old as what an earlier task left."""
    made: list[list[int]] = [[] for _ in range(count)]
    gc.collect()
    return made


def test_what_the_first_task_made_is_frozen_by_the_second(unfrozen: None) -> None:
    imported = what_stays()
    workers.make_ready()
    assert len(gc.get_objects(generation=2)) < 1_000

    made_at_work = what_stays()
    workers.make_ready()

    assert len(gc.get_objects(generation=2)) < 1_000
    del imported, made_at_work


def test_few_objects_are_left_to_the_collector(unfrozen: None) -> None:
    frozen = gc.get_freeze_count()
    kept = what_stays(1_000)

    workers.make_ready()

    assert gc.get_freeze_count() <= frozen
    del kept


def test_a_task_that_leaves_much_behind_every_time_is_not_kept_for_ever(unfrozen: None) -> None:
    kept = []
    for _ in range(20):
        kept.append(what_stays())
        workers.make_ready()

    # Eight times was enough for anything that is made once; the rest is the user's, and collected.
    assert len(gc.get_objects(generation=2)) > 12 * 20_000
    del kept


def test_what_runs_one_task_only_freezes_nothing(unfrozen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    frozen = gc.get_freeze_count()
    kept = what_stays()

    workers.make_ready()

    assert gc.get_freeze_count() <= frozen
    del kept


@pytest.mark.spark
@pytest.mark.versions
def test_a_worker_that_is_used_again_reads_no_archive_of_spark(spark: SparkSession) -> None:
    rows = spark.range(0, 2, 1, 2)
    used: Counter[int] = Counter()
    again: list[Row] = []
    # Other tests may have left idle workers in the session, and which ones Spark takes is its own choice.
    for _ in range(_JOBS):
        found = rows.mapInArrow(_ready, "worker int, readings int").collect()
        # First come what tasks import when they first run, and the readings of that.
        again += [row for row in found if used[row.worker] >= 2]
        used.update(row.worker for row in found)
        if again:
            break

    assert again, f"Spark used no worker three times in {_JOBS} jobs: {used}"
    assert [row.readings for row in again] == [0] * len(again)


_JOBS = 50


def _ready(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row: the worker, and how often an archive was read in it since its last task."""
    # The module is the one thing that stays in a worker, whatever way this function came to it.
    kept: Any = zipimport
    if not hasattr(kept, "readings"):
        kept.readings = []
        kept._read_directory = noting(kept.readings)
    workers.make_ready()
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict(
        {
            "worker": pa.array([os.getpid()], pa.int32()),
            "readings": pa.array([len(kept.readings)], pa.int32()),
        }
    )
    kept.readings.clear()


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Spark's end and the worker's, in a worker that has run no task yet."""
    monkeypatch.setattr(workers, "_to_spark", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
    with spark, worker:
        yield spark, worker
    if workers._after_a_collection in gc.callbacks:
        gc.callbacks.remove(workers._after_a_collection)
    for each in workers._to_spark or ():
        each.close()


def answer_often(spark: socket.socket, worker: socket.socket) -> None:
    """What makes Linux take the worker's end for an interactive one."""
    for _ in range(64):
        spark.sendall(b"a command")
        worker.recv(100)
        worker.sendall(b"what it gave")
        spark.recv(100)


def at_once(end: socket.socket) -> bool:
    """Whether this end acknowledges what it receives as soon as it is read."""
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


linux = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux alone has this setting")


@linux
def test_between_two_tasks_the_connection_to_spark_stops_waiting_with_acknowledgements(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, worker = connection
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    before = len(os.listdir("/proc/self/fd"))
    workers.make_ready()
    # Of the other files no descriptor is left.
    assert len(os.listdir("/proc/self/fd")) == before + len(workers._to_spark or ())
    answer_often(spark, worker)
    assert not at_once(worker), "this Linux delays nothing: pyspark_kafka_eos.spark.workers need not care"

    # PySpark's own call between two tasks.
    gc.collect()

    assert at_once(worker)
    assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@linux
def test_a_worker_that_runs_one_task_only_keeps_no_connection(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)

    workers.make_ready()

    assert workers._to_spark is None
    assert workers._after_a_collection not in gc.callbacks


@linux
@pytest.mark.parametrize(("word", "on"), [("false", False), (" FALSE ", False), ("true", True), ("", True)])
def test_a_worker_that_is_told_so_keeps_nothing_and_touches_no_connection(
    connection: tuple[socket.socket, socket.socket],
    unfrozen: None,
    tmp_path: Path,
    import_paths: None,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    on: bool,
) -> None:
    monkeypatch.setattr(workers, "_to_spark", None)
    monkeypatch.setenv(workers.SWITCH, word)
    importlib.import_module(an_archive(tmp_path / "pyspark.zip"))
    archives = [path for path in sys.path_importer_cache if path == str(tmp_path / "pyspark.zip")]
    assert len(archives) == 1
    stays, descriptors = what_stays(), set(os.listdir("/proc/self/fd"))

    workers.make_ready()

    assert workers._freezes == int(on), len(stays)
    assert (workers._after_a_collection in gc.callbacks) is on
    assert (len(set(os.listdir("/proc/self/fd")) - descriptors) > 0) is on
    assert (archives[0] in sys.path_importer_cache) is not on


@linux
def test_a_connection_that_has_ended_harms_no_collection(
    connection: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, worker = connection
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    workers.make_ready()
    for end in (spark, worker):
        end.shutdown(socket.SHUT_RDWR)

    workers._after_a_collection("stop", {"generation": 2})


@linux
@pytest.mark.spark
@pytest.mark.versions
def test_a_worker_of_spark_has_its_one_connection_watched_where_it_is_tcp(spark: SparkSession) -> None:
    rows = spark.range(0, 2, 1, 2).mapInArrow(_watched, "watched int, unix boolean")

    found = {(row.watched, row.unix) for row in rows.collect()}

    assert found in ({(1, False)}, {(0, True)})


def _watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row: how many connections are watched, and whether Spark uses Unix sockets."""
    workers.make_ready()
    for _ in batches:
        pass
    unix = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true"
    yield pa.RecordBatch.from_pydict(
        {"watched": pa.array([len(workers._to_spark or ())], pa.int32()), "unix": pa.array([unix])}
    )


@pytest.mark.parametrize("planning", [True, False])
def test_a_worker_of_the_driver_is_made_ready_for_its_next_micro_batch(
    monkeypatch: pytest.MonkeyPatch, planning: bool
) -> None:
    """By format Spark plans and commits each batch in a worker of its own: on 4.0.0 each read 17 archives' directories
    and collected garbage over all imports every time, 270 ms of CPU.
    """
    made: list[bool] = []
    monkeypatch.setattr(opening, "make_ready", lambda: made.append(True))

    with pytest.raises(OptionsError):
        opening.stream_writer({"no.such": "option"}, StructType(), overwrite=False, planning=planning)

    assert made == [True]
