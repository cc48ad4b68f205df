"""`connector/embedded_kafka/README.md`, as printed: in a fresh environment that has the wheel, the three packages that
the page names and pytest, outside the repository.

What differs from a user's machine: the port is a free one; pip takes the wheel from a directory, and the other packages
are those of the environment that runs this (linked).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from embedded_kafka.wire.server import APIS
from tests.support.wheel import environment

README = Path(__file__).parents[2] / "connector" / "embedded_kafka" / "README.md"
NAMED = ("kafka-python", "crc32c", "kazoo")
OF_PYTEST = (
    "pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "exceptiongroup",
    "tomli",
    "typing_extensions",
)
"""pytest and what it requires; the last three on older Pythons only."""


def blocks() -> list[tuple[str, str]]:
    """The page's blocks of code in their order: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture
def bin_directory(wheel: Path, tmp_path: Path) -> Path:
    """The commands of an environment with pytest and what the page's first command installs, but for this package."""
    python = environment(tmp_path / "bare", wheel, only=[*NAMED, *filter(installed, OF_PYTEST)])
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "pyspark-kafka-eos"], check=True)
    return python.parent


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.long
def test_the_page_runs_as_printed_with_three_packages_and_without_the_connectors(
    wheel: Path, bin_directory: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    environ = {
        "PATH": f"{bin_directory}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheel.parent), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip

    def run(command: str) -> str:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout

    printed = {}
    for language, text in blocks():
        if language == "python":
            name = re.findall(r"\A# (\S+\.py)\n", text)[0]
            (tmp_path / name).write_text(text, encoding="utf-8")
            if name == "test_rights.py":
                assert "1 passed" in run(f"python -m pytest -q {name}")
            continue
        for command in text.splitlines():
            if not command.endswith("&"):
                printed[command] = run(command)
                continue
            log = tmp_path / "broker.log"
            with log.open("wb") as file:
                words = command.removesuffix("&").replace("9092", str(port)).split()
                broker = subprocess.Popen(
                    [bin_directory / words[0], *words[1:]], cwd=tmp_path, env=environ, stdout=file
                )
            try:
                run(f"until grep -q bootstrap_servers {log}; do kill -0 {broker.pid}; sleep 0.1; done")
                ready = json.loads(log.read_text(encoding="utf-8"))
                with socket.create_connection(("127.0.0.1", port)):
                    pass
            finally:
                os.kill(broker.pid, signal.SIGTERM)
                assert broker.wait(30) == 0
            assert ready["bootstrap_servers"] == f"127.0.0.1:{port}"
            assert (tmp_path / "kafka-data" / "meta.json").is_file()

    assert printed["python hello.py"] == "b'order 1'\n"
    assert "4 passed" in printed["python -m pytest -q test_orders.py"]
    assert (
        run(
            'python -c \'import importlib.util as i; print([n for n in ("numba", "pyarrow", "numpy", "pydantic") if i.find_spec(n)])\''
        )
        == "[]\n"
    )


def test_the_page_has_every_api_of_the_broker_and_no_other() -> None:
    (table,) = re.findall(
        r"^## What it does\n(.*?)^[^|\n]", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    others = {"DeleteRecords", "StandardAuthorizer"} - set(APIS)
    named = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b|\bProduce\b|\bFetch\b|\bMetadata\b|\bHeartbeat\b", table)) - others

    assert named == set(APIS)


def test_the_page_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 170
