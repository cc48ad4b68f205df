"""YARN by docs/deploying.md, in both modes: ResourceManager and NodeManagers are real, the archive has conda-pack's
layout.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from embedded_kafka.child.processes import Child
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real.maven import pyspark_jars
from tests.clusters.packed import pack_as_conda_pack
from tests.clusters.page import block
from tests.clusters.scene import EXECUTOR, FILES, MASTER_OF_APPLICATION, PER_BATCH, Scene, eventually
from tests.clusters.yarn import Yarn
from tests.pyspark_kafka_eos.spark.cluster import spark_home

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


@pytest.fixture(scope="module")
def unpacked(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job's files with an archive that has its own Python, unpacked by the page's commands."""
    directory = tmp_path_factory.mktemp("conda")
    pack_as_conda_pack(packed / "environment", directory / "environment.tar.gz", directory)
    subprocess.run(
        ["bash", "-euc", block("An archive with its own Python")], cwd=directory, check=True, env={"PATH": "/usr/bin:/bin"}
    )  # fmt: skip
    for name in FILES[2:]:
        assert (directory / name).read_bytes() == (packed / name).read_bytes()
    return directory


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    servers = Yarn(tmp_path_factory.mktemp("yarn"))
    yield servers
    servers.close()


@pytest.fixture
def scene(unpacked: Path, tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedKafka(config={"transaction.version": "2"}) as kafka:
        yield Scene(tmp_path, unpacked, kafka.bootstrap_servers, spark_home(tmp_path))


def environ_of(scene: Scene, yarn: Yarn) -> Mapping[str, str]:
    """What the operator of such a cluster has set: nothing about the package."""
    (scene.directory / "home").mkdir()
    settings = {
        # Spark is on every node already, so only the environment is shipped.
        "spark.yarn.jars": f"local:{pyspark_jars()}/*",
        "spark.yarn.stagingDir": (scene.directory / "staging").as_uri(),
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.appMasterEnv.MAX_OFFSETS_PER_TRIGGER": str(PER_BATCH),
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executor.instances": "2",
    }
    return scene.environ(settings, {"HADOOP_CONF_DIR": str(yarn.conf)})


def test_in_client_mode_a_killed_driver_executor_and_node_cost_no_record(
    scene: Scene, yarn: Yarn, unpacked: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("conda-pack", (unpacked / "environment.tar.gz").stat().st_size)
    environ = environ_of(scene, yarn)
    scene.feed()
    with contextlib.ExitStack() as stack:

        def submit() -> Child:
            child = scene.submit("Client mode", {}, environ)
            stack.callback(child.kill_tree)
            return child

        first = submit()
        scene.await_records(PER_BATCH, first)
        scene.await_open_transaction(first)
        first.kill_tree()

        second = submit()
        scene.await_records(scene.committed().total() + PER_BATCH, second)
        scene.await_open_transaction(second)
        scene.kill_one(EXECUTOR, yarn.directory)
        scene.await_records(scene.committed().total() + PER_BATCH, second)
        # One that runs an executor; what it has started goes on without it.
        node = yarn.node_of(EXECUTOR)
        yarn.kill_node(node, with_containers=False)
        eventually("the node is lost", lambda: yarn.nodes("LOST"))
        scene.await_all(second)

        assert scene.each_once()
        assert second.poll() is None
    yarn.start_node(node)


def test_in_cluster_mode_a_killed_driver_and_a_lost_node_cost_no_record(scene: Scene, yarn: Yarn) -> None:
    environ = environ_of(scene, yarn)
    scene.feed()

    child = scene.submit("Cluster mode", {}, environ)
    try:
        scene.await_records(PER_BATCH, child)
        scene.await_open_transaction(child)
        scene.kill_one(MASTER_OF_APPLICATION, yarn.directory)
        scene.await_records(scene.committed().total() + PER_BATCH, child)
        yarn.kill_node(yarn.node_of(MASTER_OF_APPLICATION), with_containers=True)
        scene.await_all(child)

        assert scene.each_once()
        application = yarn.application()
        assert (application["state"], scene.committed().total()) == ("RUNNING", scene.fed)
        stop = block("Cluster mode", {"127.0.0.1:8088": yarn.web}, number=1)
        stopped = subprocess.run(
            ["bash", "-euc", stop], env={"PATH": "/usr/bin:/bin", "APPLICATION_ID": application["id"]}, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert stopped.returncode == 0, stopped.stderr
        eventually("the application was killed", lambda: yarn.application()["state"] == "KILLED")
    finally:
        child.kill_tree()
