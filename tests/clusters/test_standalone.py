"""Spark standalone by docs/deploying.md: two workers that have no package, a driver and an executor that are killed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.embedded import EmbeddedKafka
from tests.clusters.page import block, commands
from tests.clusters.scene import EXECUTOR, PER_BATCH, Scene, eventually
from tests.pyspark_kafka_eos.spark.cluster import spark_home

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

WORKERS = 2
HEADING = "Spark standalone"
OWN = {"spark.master.rest.enabled": "false"}


class Standalone:
    """A master and two workers; `address` is the master's."""

    def __init__(self, scene: Scene, stack: contextlib.ExitStack) -> None:
        self._scene, self._stack = scene, stack
        self._environ = scene.environ(OWN, {"SPARK_HOME": str(scene.home)})
        port, ui, *of_workers = free_ports(2 + WORKERS)
        self.address = f"spark://127.0.0.1:{port}"
        master, worker = commands(block(HEADING))
        self._start("master", master.replace("7077", str(port)).replace("8080", str(ui)))
        eventually("the master", lambda: "I have been elected leader" in self._log("master"))
        for number, its_ui in enumerate(of_workers):
            command = worker.replace("spark://127.0.0.1:7077", self.address).replace("8081", str(its_ui))
            self._start(f"worker{number}", command)
        registered = "Registering worker 127.0.0.1"
        eventually("both workers", lambda: self._log("master").count(registered) == WORKERS)

    def _start(self, name: str, command: str) -> None:
        directory = self._scene.directory / name
        directory.mkdir()
        child: Child = spawn(
            ["bash", "-euc", f"exec {command}"], log_path=directory / "log", cwd=directory,
            env={**self._environ, "SPARK_WORKER_DIR": str(directory / "work")},
        )  # fmt: skip
        self._stack.callback(child.stop)

    def _log(self, name: str) -> str:
        return (self._scene.directory / name / "log").read_text(errors="replace")


@pytest.fixture
def scene(packed: Path, tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedKafka(config={"transaction.version": "2"}) as kafka:
        yield Scene(tmp_path, packed, kafka.bootstrap_servers, spark_home(tmp_path))


def test_a_job_whose_driver_and_executor_are_killed_writes_every_record_once(scene: Scene) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Standalone(scene, stack)
        environ = scene.environ(OWN)
        without = subprocess.run(
            ["python3", "-c", "import pyspark_kafka_eos"], env=environ, cwd=scene.job, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert "No module named 'pyspark_kafka_eos'" in without.stderr, "the workers' Python is to have no package"
        scene.feed()

        def submit() -> Child:
            child = scene.submit(HEADING, {"spark://127.0.0.1:7077": cluster.address}, environ, number=1)
            stack.callback(child.stop)
            return child

        first = submit()
        scene.await_records(PER_BATCH, first)
        scene.await_open_transaction(first)
        first.kill_tree()
        assert scene.committed().total() < scene.fed

        second = submit()
        scene.await_records(scene.committed().total() + PER_BATCH, second)
        scene.await_open_transaction(second)
        scene.kill_one(EXECUTOR)
        scene.await_all(second)

        assert scene.each_once()
        assert second.poll() is None, "the job survives the loss of an executor"
