"""A repository that has folders named as rooms of ours: its pytest, its spark-submit and its notebook work with the
wheel installed.

A repository's own modules come first on the path, in the driver and in Spark's workers. So a module of ours that were
imported by a common name would be the repository's.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from embedded_kafka.real.java import require_java
from tests.support.wheel import environment

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.long]

OWN = ("connector", "model", "client", "broker", "records", "options", "commit", "machines", "testing")
"""Folders of the repository; the first ones are those of the issue that asked for this."""

ITS_TESTS = """
import connector.mine, model.mine, client.mine

def test_of_its_own():
    assert [each.OWN for each in (connector.mine, model.mine, client.mine)] == ["connector", "model", "client"]

def test_with_a_broker(embedded_kafka):
    assert embedded_kafka.bootstrap_servers
"""

ITS_JOB = """
import connector.mine, model.mine, client.mine
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from embedded_kafka import EmbeddedKafka

def own(rows):
    # In a worker: the same folders come first there.
    import connector.mine, model.mine, client.mine
    return rows

spark = SparkSession.builder.master("local[2]").getOrCreate()
with EmbeddedKafka() as kafka:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("numbers", 2)])["numbers"].result(60)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value").mapInPandas(own, "value STRING")
    rows.write.format("kafka_eos").options(**servers, topic="numbers", pipeline="numbers").mode("append").save()
    read = spark.read.format("kafka_eos").options(**servers, subscribe="numbers").load()
    print("seen:", read.select("value").distinct().count(), connector.mine.OWN)
spark.stop()
"""

ITS_NOTEBOOK = """
import nbformat, sys
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(open("job.py").read())]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
print("".join(output.get("text", "") for output in notebook.cells[0].outputs))
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    return environment(tmp_path_factory.mktemp("foreign") / "environment", wheel)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Somebody's repository, with a package of each of these names."""
    root = tmp_path / "repository"
    for name in OWN:
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text("")
        (root / name / "mine.py").write_text(f"OWN = {name!r}\n")
    (root / "tests").mkdir()
    (root / "tests" / "test_mine.py").write_text(ITS_TESTS)
    (root / "conftest.py").write_text("")
    (root / "job.py").write_text(ITS_JOB)
    (root / "notebook.py").write_text(ITS_NOTEBOOK)
    return root


def run(python: Path, repository: Path, program: str | Path, *words: str) -> str:
    """What a program prints that is started in the repository, with that environment's Python first on the PATH."""
    environ = {
        "JAVA_HOME": require_java().environ()["JAVA_HOME"], "PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(repository.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The codec is compiled once for all of these tests.
        "NUMBA_CACHE_DIR": str(python.parents[2] / "compiled"),
        "IPYTHONDIR": str(repository.parent / "ipython"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell",
    }  # fmt: skip
    ended = subprocess.run(
        [program, *words], cwd=repository, env=environ, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def test_its_tests_run_and_may_use_the_fixture(installed: Path, repository: Path) -> None:
    assert "2 passed" in run(installed, repository, installed, "-m", "pytest", "-p", "no:cacheprovider", "-q")


@pytest.mark.spark
def test_its_job_runs_by_spark_submit(installed: Path, repository: Path) -> None:
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    submit = run(installed, repository, installed, "-c", "import pyspark; print(pyspark.__path__[0])").strip()
    assert "seen: 100 connector" in run(installed, repository, Path(submit, "bin", "spark-submit"), *settings, "job.py")


@pytest.mark.spark
def test_its_notebook_runs(installed: Path, repository: Path) -> None:
    assert "seen: 100 connector" in run(installed, repository, installed, "notebook.py")


def test_the_folders_are_those_that_packages_of_ours_are_named_after(installed: Path) -> None:
    """The wheel has three packages at its top, none of a common name."""
    code = "import importlib.util, json; print(json.dumps([n for n in %r if importlib.util.find_spec(n)]))"
    assert json.loads(run(installed, installed.parent, installed, "-c", code % (OWN,))) == []
