"""A file of tests that leaves something open fails, and says what; one that closes what it opens passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
FILES = {
    "conftest.py": """
import socket, threading
import pytest
from tests.support import leftovers

leftovers.ENDS_WITHIN_S = 0.3

@pytest.fixture(scope="session")
def of_the_session():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener
""",
    "test_thread.py": """
import threading

def wait_for_ever():
    threading.Event().wait()

def test_that_starts_a_thread():
    threading.Thread(target=wait_for_ever, name="left-behind", daemon=True).start()
""",
    "test_socket.py": """
import socket
kept = []

def test_that_opens_a_socket():
    kept.append(socket.create_server(("127.0.0.1", 0)))
""",
    "test_child.py": """
import subprocess, sys
kept = []

def test_that_starts_a_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "input('left by its parent')"], stdin=subprocess.PIPE))
""",
    # It ends with its input, which is the test run's.
    "test_orphan.py": """
import os, subprocess, sys
reading, kept = os.pipe()
child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()  # left by a child'], start_new_session=True)"

def test_whose_child_starts_another_and_ends():
    subprocess.run([sys.executable, "-c", child], stdin=reading, check=True)
""",
    "test_tidy.py": """
import logging, socket, subprocess, sys, threading

def test_that_closes_all(of_the_session):
    with socket.create_server(("127.0.0.1", 0)):
        pass
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_whose_thread_ends_in_a_moment():
    threading.Timer(0.05, print).start()

def test_whose_socket_nobody_holds():
    loop = []
    loop.append((loop, socket.socketpair()))

kept = socket.socket()

def test_whose_connection_failed():
    assert kept.connect_ex(("127.0.0.1", 1)) != 0

def fail_with_a_socket_open():
    pair = socket.socketpair()
    raise ValueError

def test_that_logs_a_failure(caplog):
    try:
        fail_with_a_socket_open()
    except ValueError:
        logging.exception("it failed")
""",
    "test_failing.py": """
import socket
kept = []

def test_that_fails_with_a_socket_open():
    kept.append(socket.create_server(("127.0.0.1", 0)))
    assert False
""",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of these files."""
    directory = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (directory / name).write_text(text)
    alone = [
        "-p",
        "tests.support.leftovers",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(directory),
    ]
    command = [sys.executable, "-m", "pytest", "-rA", *alone, str(directory)]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def complaint(run: str, file: str) -> str:
    """The part of the output that is about what a file left, "" where nothing is."""
    found = re.search(rf"^{file} leaves open what it has opened:\n(?:  .*\n)+", run, re.MULTILINE)
    return found.group() if found else ""


@pytest.mark.parametrize(
    ("file", "what", "test"),
    [
        ("test_thread.py", "thread 'left-behind'", "test_that_starts_a_thread"),
        ("test_socket.py", r"socket \('127.0.0.1', \d+\) that listens", "test_that_opens_a_socket"),
        ("test_child.py", r"process \d+: .*input\('left by its parent'\)", "test_that_starts_a_child"),
        ("test_orphan.py", r"process \d+: .*# left by a child", "test_whose_child_starts_another_and_ends"),
    ],
)
def test_what_a_file_leaves_open_fails_it_and_is_named_with_the_test_that_opened_it(
    run: str, file: str, what: str, test: str
) -> None:
    (line,) = re.findall("  - .*", complaint(run, file))

    assert re.match(f"  - {what}", line)
    assert f"{file}::{test} (call)" in line
    assert f"ERROR {file}::{test}" in run


@pytest.mark.parametrize("file", ["test_thread.py", "test_socket.py"])
def test_the_line_that_opened_it_is_named(run: str, file: str) -> None:
    opening = next(
        number
        for number, line in enumerate(FILES[file].splitlines(), 1)
        if "create_server" in line or ".start()" in line
    )

    assert f"{file}:{opening} in test_that" in complaint(run, file)


def test_a_file_that_closes_all_passes_and_what_the_session_opened_is_not_its_own(run: str) -> None:
    assert complaint(run, "test_tidy.py") == ""
    assert "ERROR test_tidy.py" not in run and "FAILED test_tidy.py" not in run
    assert run.count("PASSED test_tidy.py") == 5


def test_a_failed_test_is_not_blamed_for_what_its_traceback_keeps_alive(run: str) -> None:
    assert "FAILED test_failing.py" in run
    assert complaint(run, "test_failing.py") == ""
