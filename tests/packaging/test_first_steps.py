"""The README's first lines, as printed: in a fresh environment, with the wheel, outside the repository.

What differs from a user's machine: the port and the checkpoint's path are free ones; pip takes this package from a
directory with the wheel, and the packages that it requires are those of the environment that runs this (linked, without
this package); the shell waits for the broker's line after it has started the broker, as a person does.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wheel import link_packages

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MOST_COMMANDS = 6
WITHIN_S = 900.0
"""As the other jobs of these tests: with ten others at work on the same cores, Spark alone takes minutes."""

MOST_CPU_S = 150.0
"""Of all commands together, which does not depend on what else the machine does. A user has five minutes, with
downloads.
"""

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def required(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this environment, without this one."""
    linked = tmp_path_factory.mktemp("packages")
    link_packages(linked)
    return linked


def test_the_first_lines_are_few_and_begin_with_nothing() -> None:
    (commands,) = blocks("sh")

    assert len(commands.splitlines()) <= MOST_COMMANDS
    assert commands.startswith("python3 -m venv ")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def leftovers() -> Iterator[list[Path]]:
    """Files with the process ids of what a shell left running."""
    files: list[Path] = []
    yield files
    for file in files:
        if file.exists():
            os.kill(int(file.read_text()), signal.SIGTERM)


@pytest.mark.spark
@pytest.mark.long
def test_the_first_lines_run_as_printed_and_every_order_is_there_once(
    wheel: Path, required: Path, tmp_path: Path, port: int, leftovers: list[Path]
) -> None:
    (commands,), (program, *_) = blocks("sh"), blocks("python")
    changes = {"127.0.0.1:9092": f"127.0.0.1:{port}", "/tmp/clean-orders": str(tmp_path / "checkpoint")}
    lines = commands.splitlines()
    for old, new in changes.items():
        lines, program = [line.replace(old, new) for line in lines], program.replace(old, new)
    (tmp_path / "stream.py").write_text(program)
    # The Python that a user's `python3` is.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    leftovers.append(tmp_path / "broker.pid")
    script = ["set -eu"]
    for line in lines:
        script.append(f"echo '$ {line.replace(chr(39), chr(34))}'")
        if line.endswith("&"):
            script += [
                f"{line.removesuffix('&')} --port {port} >broker.log 2>&1 &",
                "echo $! >broker.pid",
                f"until grep -q ':{port}' broker.log; do kill -0 $!; sleep 0.2; done",
            ]
        else:
            script.append(line)
        if "-m venv" in line:
            script.append(f"echo '{required}' >\"$(echo eos/lib/python*/site-packages)/required.pth\"")
    environ = {
        "PATH": f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "SPARK_LOCAL_IP": "127.0.0.1", **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    ended = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )  # fmt: skip

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert ended.returncode == 0, printed
    assert "100 records, 100 different ones" in ended.stdout, printed
    assert "batches match the ledger" in ended.stdout, printed
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MOST_CPU_S
    # What ran was the wheel: neither this repository nor another installation.
    place = next((tmp_path / "eos" / "lib").glob("python*/site-packages/pyspark_kafka_eos/__init__.py"))
    assert place.is_file()
