"""`make matrix`: the supported versions together, each pair at least once; writes evidence/version-matrix.md.

    .venv/bin/python -m tests.matrix [--write] [--rows 0 3 5]

Owns: an environment for each row with the locked packages and the built wheel, the brokers, the judge, the table.
Does not know: what is run (`job`), which rows there are (`rows`).
Invariants:
- The wheel is tested: the directory that a row runs in has no `connector/`.
- librdkafka of the environment that runs this reads the output, in every row.
- A Python that this machine does not have is a row that says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.real import LocalKafka
from tests.matrix.expected import PARTITIONS, TOPICS
from tests.matrix.rows import IMPOSSIBLE, LOCKS, Row, rows
from tests.support.committed import committed
from tests.support.made import today
from tests.support.wheel import NOT_SOURCES, ROOT, SOURCES
from tools.release import built

PAGE = ROOT / "evidence" / "version-matrix.md"
NOT_YET = "not run yet"
NOT_HAD = "not run: this Python was not there"
_ROW_S = 900.0
_READ_S = 60.0
_INSTALL = ("--quiet", "--disable-pip-version-check")


class Failed(Exception):
    """A row did not do what it has to; the text has the end of its output."""


@dataclass(frozen=True)
class Outcome:
    """How a row ended: the exact versions where it was run, the seconds of its applications, the day, the reason
    where it failed.
    """

    row: Row
    python: str = ""
    pyspark: str = ""
    seconds: float = 0.0
    day: str = field(default_factory=today)
    why: str = ""
    had: bool = True

    @property
    def said(self) -> str:
        """The last cell of its line."""
        if not self.had:
            return self.why
        return (
            f"failed: {self.why.splitlines()[0]}"
            if self.why
            else f"every record once, {self.seconds:.0f} s, {self.day}"
        )


def interpreter(version: str) -> Path | None:
    """A Python of this minor version, from the search path or pyenv; None where the machine has none."""
    homes = Path(os.environ.get("PYENV_ROOT", Path("~/.pyenv").expanduser())) / "versions"
    found = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    found += [home / "bin" / "python" for home in sorted(homes.glob(f"{version}.*"))]
    # A shim of pyenv is on the path also for versions that it does not start; Debian's Python may be unable to make
    # environments.
    works = (
        each
        for each in found
        if not subprocess.run([each, "-c", "import ensurepip"], capture_output=True, check=False).returncode
    )
    return next(works, None)


def environment(row: Row, directory: Path, wheel: Path) -> Path | None:
    """The Python of a new environment for this row; None where the machine has no such Python."""
    found = interpreter(row.python)
    if found is None:
        return None
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([found, "-m", "venv", directory], check=True, env=environ)
    python = directory / "bin" / "python"
    lock = ROOT / "requirements" / f"{LOCKS[row.pyspark]}.txt"
    for arguments in (["--use-pep517", "--require-hashes", "-r", lock], ["--no-deps", wheel]):
        subprocess.run([python, "-m", "pip", "install", *_INSTALL, *arguments], check=True, env=environ)
    return python


def run(row: Row, python: Path, tests: Path, scratch: Path) -> Outcome:
    """Run one row and judge its output; Failed where a record is missing or there twice."""
    folder = scratch / "work"
    folder.mkdir()
    with LocalKafka(row.kafka) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS])
        for each in made.values():
            each.result(_READ_S)
        settings = {
            "folder": str(folder), "servers": kafka.bootstrap_servers, "topics": {name: name for name in TOPICS}, "mode": row.mode,
        }  # fmt: skip
        document = _run_job(python, tests, settings)
        for name, count in TOPICS.items():
            read = committed({"bootstrap.servers": kafka.bootstrap_servers}, name, PARTITIONS, _READ_S)
            found = Counter(int(value) for value in read)
            if found != dict.fromkeys(range(count), 1):
                raise Failed(f"{name}: {len(found)} of {count} numbers, {sum(found.values()) - len(found)} too many")
    if "site-packages" not in document["package"]:
        raise Failed(f"the sources were tested, not the wheel: {document['package']}")
    return Outcome(row, document["python"], document["pyspark"], sum(document["seconds"].values()))


def _run_job(python: Path, tests: Path, settings: dict[str, object]) -> dict[str, Any]:
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME")
    }
    environ["PATH"] = f"{python.parent}{os.pathsep}{environ['PATH']}"
    job = subprocess.Popen(
        [python, "-m", "tests.matrix.job", json.dumps(settings)],
        cwd=tests, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = job.communicate(timeout=_ROW_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"it did not end in {_ROW_S:.0f} s") from None
    finally:
        _end(job)
    if job.returncode:
        raise Failed(f"exit code {job.returncode}\n{output[-8000:]}")
    document: dict[str, Any] = json.loads(output.splitlines()[-1])
    return document


def _end(job: subprocess.Popen[str]) -> None:
    """It ends its own applications when it is interrupted, which have sessions of their own."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if job.poll() is None:
            os.killpg(job.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(10)


def lines_of(page: str) -> dict[Row, str]:
    """The page's line of each row."""
    found: dict[Row, str] = {}
    for line in page.splitlines():
        if line.startswith("| 3."):
            python, pyspark, kafka, mode, _ = (cell.strip() for cell in line.strip("|").split("|"))
            found[Row(_minor(python), _minor(pyspark), kafka, mode)] = line
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def table(outcomes: Sequence[Outcome], before: str = "") -> str:
    """The page. A row that was not run now keeps the line that it has in the page `before`."""
    line_of = {row: f"| {row.python} | {row.pyspark} | {row.kafka} | {row.mode} | {NOT_YET} |" for row in rows()}
    line_of |= {row: line for row, line in lines_of(before).items() if row in line_of}
    line_of |= {
        each.row: f"| {each.python or each.row.python} | {each.pyspark or each.row.pyspark} | {each.row.kafka} "
        f"| {each.row.mode} | {each.said} |"
        for each in outcomes
    }
    lines = [
        "# Versions run together",
        "",
        "Written by `make matrix`, which `make nightly` contains; any two versions that can be had together share a row.",
        "In each row: the built wheel, the sink by format killed after its decision and started again, `foreachBatch` (killed on",
        "classic, started anew on Connect), `df.write`, the batch source, a stream from Kafka to Kafka, the ledger as a DataFrame.",
        "Another client (librdkafka) reads the output: every number once.",
        "",
        "| Python | pyspark | Apache Kafka | Spark | seen |",
        "|---|---|---|---|---|",
        *line_of.values(),
        "",
        *[f"Python {python} with pyspark {pyspark}: {why}." for (python, pyspark), why in IMPOSSIBLE.items()],
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the rows; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--rows", nargs="+", type=int, help="only these, by number from 0 on, in this order")
    arguments = parser.parse_args()
    # An environment that is half made and a broker are left behind by nothing but SIGKILL.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = rows() if arguments.rows is None else [rows()[number] for number in arguments.rows]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch, ThreadPoolExecutor(1) as ahead:
        sources, tests = Path(scratch, "sources"), Path(scratch, "tests")
        shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        wheel = built("wheel", sources, Path(scratch))
        shutil.copytree(sources, tests, ignore=shutil.ignore_patterns(SOURCES, "build", "*.egg-info"))

        def prepared(number: int) -> Path | None:
            return environment(chosen[number], Path(scratch, f"environment-{number}"), wheel)

        # The next environment is made while a row waits for its brokers and Sparks.
        following = ahead.submit(prepared, 0)
        for number, row in enumerate(chosen):
            began = time.monotonic()
            work = Path(scratch, f"row-{number}")
            work.mkdir()
            current = following
            if number + 1 < len(chosen):
                following = ahead.submit(prepared, number + 1)
            try:
                python = current.result()
                if python is None:
                    outcome = Outcome(row, had=False, why=NOT_HAD)
                else:
                    outcome = run(row, python, tests, work)
            except (Failed, subprocess.CalledProcessError) as error:
                outcome = Outcome(row, why=str(error))
            outcomes.append(outcome)
            if arguments.write:
                # After each row: what an interrupted run has seen stays.
                PAGE.write_text(table(outcomes, PAGE.read_text() if PAGE.exists() else ""))
            print(f"{row}: {outcome.said} ({time.monotonic() - began:.0f} s with all)", flush=True)
            if outcome.why and outcome.had:
                print(outcome.why, flush=True)
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(Path(scratch, f"environment-{number}"), ignore_errors=True)
    return 1 if any(each.why and each.had for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
