"""Kafka's own command-line classes, from the jars on Maven, run against any broker.

Owns: the command line of a JVM, running a tool to its end or beside the test.
Does not know: which broker a tool talks to, what it prints.
Invariants: a tool that a test leaves running ends with the test's process.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real import NEWEST_KAFKA
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import fetch, kafka_artifacts

# Kafka's tools take 1-3 s.  A tenth of this fails on a machine that is busy with other tests; ten times as long would
# only make a broken broker slower to report.
_ENDS_WITHIN_S = 120


def java_command(main_class: str, *arguments: str, version: str = NEWEST_KAFKA) -> list[str]:
    """The words that run a class of Kafka's jars; fetches the jars at the first call."""
    java = require_java()
    jars = fetch(f"kafka-{version}", kafka_artifacts(version), java)
    return [
        str(java.executable),
        "-Xmx256m",
        # Most of a tool's life is its start.
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", f"{jars}/*"),
        main_class,
        *arguments,
    ]


def java_tool(main_class: str, *arguments: str, version: str = NEWEST_KAFKA, stdin: str = "") -> str:
    """Run a class to its end and return what it printed; an AssertionError with all its words where it failed."""
    answer = subprocess.run(
        java_command(main_class, *arguments, version=version),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_ENDS_WITHIN_S,
        check=False,
    )
    assert answer.returncode == 0, f"{main_class} {' '.join(arguments)}:\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def java_process(main_class: str, *arguments: str, log_path: Path) -> Child:
    """Run a class beside the test; what it prints is appended to `log_path`."""
    return spawn(java_command(main_class, *arguments), log_path=log_path)


def rows(table: str) -> list[dict[str, str]]:
    """The lines of a table that a tool printed, by the names in its first line; columns hold no spaces."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]] if lines else []
