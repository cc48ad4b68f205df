"""`register(spark)`: what driver and executors lack is one sentence before a query starts, and what was registered is
found.

The executors' Python of a case is a script that starts a real Python; Spark starts it as it starts any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_kafka_eos
from embedded_kafka.real.java import require_java
from kafka_core.errors import OptionsError, WrongInstallation
from pyspark_kafka_eos.spark.registration import _explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

ROOT = Path(__file__).parents[3]
BARE = os.path.realpath(sys.executable)
"""The Python that the environment was made from: the same version, without any of its packages."""

WITHIN_S = 900
"""A program takes some 20 s; with ten others at work on the same two cores more than 240."""

Script = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """script(workers, driver=...): the path of a program that Spark can use as its Python. `workers`: the shell's words
    in front of the arguments of a worker; `driver`: those of the Python that is asked on the driver.
    """

    def write(workers: str, driver: str = f'exec "{sys.executable}"') -> str:
        program = tmp_path / "python"
        program.write_text(f"""#!/bin/sh
if [ "$1" = - ]; then
  {driver} "$@"
fi
# Not where this test runs: Python looks there for modules.
cd /
{workers} "$@"
""")
        program.chmod(0o755)
        return str(program)

    return write


@pytest.fixture
def refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], WrongInstallation]:
    """refused(python): the error of `register` where Spark's Python is this program; nothing was registered."""
    from pyspark.sql.datasource import DataSourceRegistration

    registered: list[Any] = []

    def run(python: str) -> WrongInstallation:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        monkeypatch.setattr(DataSourceRegistration, "register", lambda _, source: registered.append(source))
        with pytest.raises(WrongInstallation) as error:
            pyspark_kafka_eos.register(spark)
        assert registered == []
        assert len(str(error.value.message).splitlines()) == 1
        return error.value

    return run


def first_on_path(directory: Path) -> str:
    return f'PYTHONPATH="{directory}:$PYTHONPATH" exec "{sys.executable}"'


def without_this_package(python: str) -> str:
    """The shell's words for a Python to which this checkout is not shown."""
    others = f"$(printf %s \"$PYTHONPATH\" | tr : '\\n' | grep -vxE '{ROOT}(/connector)?' | paste -sd : -)"
    return f'PYTHONPATH="{others}" exec "{python}"'


def test_a_package_that_is_missing_on_the_executors_is_named_with_their_python(
    script: Script, refused: Callable[[str], WrongInstallation]
) -> None:
    python = script(without_this_package(BARE))

    error = refused(python)

    assert "the Python of the executors" in error.message and BARE in error.message
    assert "No module named 'pyspark_kafka_eos'" in error.message
    assert "install the package there" in error.message
    assert "PYSPARK_PYTHON to a Python that has it" in error.message and f"it is {python}" in error.message
    assert error.facts["where"] == "executors"


def test_a_package_that_is_missing_in_the_drivers_python_is_named_before_a_job_runs(
    script: Script, refused: Callable[[str], WrongInstallation]
) -> None:
    error = refused(script("exit 3;", driver=f"cd /; {without_this_package(BARE)}"))

    assert error.facts["where"] == "driver"
    assert "the Python of the driver" in error.message and "No module named 'pyspark_kafka_eos'" in error.message


def test_another_version_on_the_executors_is_named_with_both_versions(
    script: Script, refused: Callable[[str], WrongInstallation], tmp_path: Path
) -> None:
    older = tmp_path / "older" / "pyspark_kafka_eos"
    older.mkdir(parents=True)
    for part in (ROOT / "connector" / "pyspark_kafka_eos").iterdir():
        if part.name not in ("version.py", "__pycache__"):
            (older / part.name).symlink_to(part)
    (older / "version.py").write_text('__version__ = "0.0.9"\n')

    error = refused(script(first_on_path(older.parent)))

    assert "have pyspark-kafka-eos 0.0.9" in error.message
    assert f"this driver has {pyspark_kafka_eos.__version__}" in error.message
    assert "install one version on all of them" in error.message


def test_a_python_of_another_minor_version_on_the_executors_is_named_with_both(
    script: Script, refused: Callable[[str], WrongInstallation], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    # PySpark's own check, in the worker, is what answers.
    (other / "sitecustomize.py").write_text(
        "import collections, sys\n"
        "Version = collections.namedtuple('Version', 'major minor micro releaselevel serial')\n"
        "sys.version_info = Version(3, 99, 0, 'final', 0)\n"
    )

    error = refused(script(first_on_path(other)))

    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"the Python of the executors is 3.99 and this one is {here}" in error.message
    assert f"set PYSPARK_PYTHON to a Python {here}" in error.message


def test_executors_that_cannot_keep_compiled_kernels_are_named_unless_that_is_allowed(
    script: Script, refused: Callable[[str], WrongInstallation], spark: SparkSession, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    blocked = tmp_path / "tmp"
    blocked.mkdir()
    (blocked / f"pyspark-kafka-eos-{os.getuid()}").write_text("not a directory")
    nowhere = f"NUMBA_CACHE_DIR=/dev/null XDG_CACHE_HOME=/dev/null TMPDIR={blocked}"
    python = script(f'export {nowhere}; PYTHONPATH="{ROOT}/connector:$PYTHONPATH" exec "{sys.executable}"')

    error = refused(python)
    pyspark_kafka_eos.register(spark, require_cache=False)

    assert error.facts["where"] == "executors"
    assert "no directory for the compiled kernels is both writable and safe" in error.message
    assert "set NUMBA_CACHE_DIR" in error.message and "require_cache=False" in error.message
    assert "on the executors no directory for the compiled kernels is both writable and safe" in caplog.text


def test_a_python_that_is_not_there_is_named(refused: Callable[[str], WrongInstallation]) -> None:
    error = refused("/no/such/python")

    assert "Spark cannot run '/no/such/python' as the Python of the driver" in error.message
    assert "set PYSPARK_PYTHON" in error.message


def test_a_python_that_only_the_driver_has_is_named(
    script: Script, refused: Callable[[str], WrongInstallation]
) -> None:
    # Gone once it has answered on the driver.
    python = script("exit 3;", driver=f'rm "$0"; exec "{sys.executable}"')

    error = refused(python)

    assert f"Spark cannot run '{python}' as the Python of the executors" in error.message


def test_what_a_worker_printed_before_it_ended_is_named_and_not_what_spark_made_of_it() -> None:
    # As Spark 4.3 on YARN had it, shortened.
    text = """An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Error from python worker:
  Traceback (most recent call last):
    File "/nm/local/pyspark.zip/pyspark/daemon.py", line 129, in manager
  OSError: AF_UNIX path too long
PYTHONPATH was:
  /nm/local/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
"""

    with pytest.raises(WrongInstallation, match=r"^an executor .* \(OSError: AF_UNIX path too long\)"):
        _explain(text, None)


def test_executors_whose_python_ends_at_once_are_an_error_with_what_spark_said(
    script: Script, refused: Callable[[str], WrongInstallation]
) -> None:
    error = refused(script("exit 3;"))

    assert error.facts["where"] == "executors"
    assert "an executor could not run a Python function (" in error.message
    assert "daemon" in error.message and "\n" not in error.message


@pytest.mark.parametrize("what", [None, "spark", 3])
def test_what_is_no_session_is_refused(what: Any) -> None:
    with pytest.raises(OptionsError, match="register needs a SparkSession"):
        pyspark_kafka_eos.register(what)


PROGRAM = """
import os, sys, threading
from pyspark.sql import SparkSession

builder = SparkSession.builder.remote("local[1]") if sys.argv[1] == "connect" else SparkSession.builder.master("local[1]")
for name, value in {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": os.path.abspath("warehouse"), "spark.connect.grpc.binding.port": sys.argv[2],
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def found():
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    try:
        return "value" in spark.readStream.format("kafka_eos").options(**options).load().columns
    except Exception as error:
        return type(error).__name__

before = found()
from pyspark_kafka_eos import register
thread = threading.Thread(target=register, args=(spark,))
thread.start()
thread.join()
after = found()
register(spark)
spark.stop()
try:
    register(spark)
except Exception as error:
    stopped = type(error).__name__ + ": " + str(error)
print("RESULT", before, after, stopped)
"""


def program(directory: Path, way: str, environ: dict[str, str]) -> list[str]:
    """The words that PROGRAM prints, as started by cron: from another directory, in an environment with nothing of
    ours.
    """
    import socket

    (directory / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "JAVA_HOME": str(require_java().home)}
    kept["JDK_JAVA_OPTIONS"] = os.environ.get("JDK_JAVA_OPTIONS", "")
    ended = subprocess.run(
        [sys.executable, "program.py", way, port], cwd=directory, capture_output=True, text=True, timeout=WITHIN_S, check=False,
        env={**kept, "PYTHONPATH": f"{ROOT}:{ROOT}/connector", "SPARK_LOCAL_IP": "127.0.0.1", **environ},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    (result,) = [line for line in ended.stdout.splitlines() if line.startswith("RESULT")]
    return result.split(" ", 3)[1:]


# Not on Spark 4.0: what that has found by itself, as with this path, cannot be replaced.
@pytest.mark.long
@pytest.mark.slow
def test_a_registered_format_is_found_in_an_environment_that_was_not_activated(tmp_path: Path) -> None:
    before, after, stopped = program(tmp_path, "classic", {})

    # The python3 of the path has not what the format needs, which is why it has to be registered.
    assert before == "AnalysisException"
    assert after == "True"
    assert stopped.startswith("OptionsError: this Spark session was stopped")


def test_spark_finds_the_development_install_from_any_directory(tmp_path: Path) -> None:
    code = "import pkgutil; print('pyspark_kafka_eos' in {each.name for each in pkgutil.iter_modules()})"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == "True", "make the environment again: make clean venv"
