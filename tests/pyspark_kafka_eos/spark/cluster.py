"""A Spark application with two executor processes, seen from a test: its queries, its processes, what they wrote.

Owns: the application's process (`cluster_job`), holding and letting go its tasks, killing and freezing what belongs to
it.
Does not know: which fault is to happen when, what must come of it.
Invariants: only processes of the application itself are signalled; nothing of it survives `close`; every wait has an
end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real.java import require_java
from spark_jobs.proof import Look, read_all
from tests.support.brokers import AnyKafka
from tests.support.quick_start import QUICK_START

ROOT = Path(__file__).parents[3]
ROWS = 800
WITHIN_S = 60.0
"""For anything that a test waits for; the longest, a new executor with new Python workers, takes about 5 s."""

SETTINGS = {
    "spark.app.name": "test-cluster",
    "spark.master": "local-cluster[2,1,1024]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.executor.memory": "1g",
    # A free executor takes a task at once, wherever its rows are.
    "spark.locality.wait": "0",
    # How long Spark lets the Python workers of a stopped query go on. By default 2 s, which a test may need for itself.
    "spark.python.task.killTimeout": "20s",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    # Fixes the number of slots after a shuffle.
    "spark.sql.adaptive.enabled": "false",
}


class Application:
    """The application, in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "application.log"
        environ = {
            **require_java().environ(),
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": str(spark_home(directory)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory),
        }
        settings = {**SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            command = [
                sys.executable,
                "-m",
                "tests.pyspark_kafka_eos.spark.cluster_job",
                str(port),
                json.dumps(settings),
            ]
            self._child: Child = spawn(command, log_path=self._log, env=environ, cwd=directory)
            server.settimeout(WITHIN_S)
            try:
                self._connection, _ = server.accept()
            except TimeoutError:
                self._child.kill_tree()
                raise
        self._connection.settimeout(2 * WITHIN_S)
        self._lines = self._connection.makefile("rw")
        self._more: dict[str, str] = {}

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Have the application do something; its answer."""
        self._lines.write(json.dumps({"action": action, **arguments}) + "\n")
        self._lines.flush()
        line = self._lines.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failure": "it has ended"}
        assert "failure" not in answer, f"{answer['failure']}\n{self._log.read_text()[-3000:]}"
        return answer

    def have(self, settings: dict[str, str]) -> None:
        """See that it runs with these besides SETTINGS: it is started anew, which takes seconds, where it has
        others.
        """
        if settings != self._more:
            self.ask("restart", **settings)
            self._more = dict(settings)

    def close(self) -> None:
        """End it, and whatever it started."""
        self._lines.close()
        self._connection.close()
        try:
            self._child.wait(20_000)
        except TimeoutError:
            self._child.kill_tree()


def spark_home(directory: Path) -> Path:
    """Spark as it is installed, in a place of its own: executors of a local cluster write to SPARK_HOME/work."""
    home = directory / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


def eventually(what: str, found: Callable[[], Any]) -> Any:
    """What `found` gives as soon as it is true."""
    deadline = time.monotonic() + WITHIN_S
    while not (answer := found()):
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}"
        time.sleep(0.02)
    return answer


@dataclass(frozen=True)
class Run:
    """One run of a query. A start of a task is named `slot.n`, see `cluster_job.Script`."""

    application: Application
    directory: Path

    def held(self, *starts: str) -> str:
        """Wait until one of these starts is held; which one."""

        def found() -> str | None:
            return next((start for start in starts if Path(self.directory, f"{start}.held").exists()), None)

        return str(eventually(f"one of {starts} is held", found))

    def go(self, start: str) -> None:
        """Let it go on."""
        Path(self.directory, f"{start}.go").touch()

    def who(self, start: str) -> dict[str, int]:
        """Its stage, attempt number, task and pid."""
        facts: dict[str, int] = json.loads(Path(self.directory, f"{start}.start").read_text())
        return facts

    def attempts(self, slot: int) -> list[int]:
        """The attempt numbers that the slot's starts had, in their order."""
        return [self.who(f"{slot}.{n}")["attempt"] for n in range(len(list(self.directory.glob(f"{slot}.*.start"))))]

    def handed_over(self, *starts: str) -> None:
        """Wait until each has handed over enough to have filled the buffers on the way to its sink."""
        eventually(
            f"rows of {starts}",
            lambda: all(Path(self.directory, f"{start}.flows").exists() for start in starts),
        )

    def went_on(self, start: str) -> bool:
        """Whether it did, once it was let go."""
        return Path(self.directory, f"{start}.gone-on").exists()

    def end(self) -> dict[str, Any]:
        """Wait for the query's own end; what came of it."""
        outcome = self.application.ask("wait", timeout_s=WITHIN_S)
        assert outcome["ended"]
        return outcome


class Query:
    """A query that writes ROWS records per batch, half from each slot, slot s to partition s of `topic`."""

    def __init__(self, application: Application, kafka: AnyKafka, look: Look, topic: str, directory: Path) -> None:
        self.application = application
        self.topic = topic
        self._servers = kafka.bootstrap_servers
        self._look = look
        self._directory = directory

    def run(
        self,
        name: str = "run",
        *,
        holds: dict[str, int] | None = None,
        fails: tuple[str, ...] = (),
        shuffled: bool = False,
        scope: str = "task",
    ) -> Run:
        """Start it, or start it again under another name, with the same checkpoint."""
        directory = self._directory / name
        directory.mkdir()
        self.application.ask(
            "start",
            options={
                "kafka.bootstrap.servers": self._servers,
                "topic": self.topic,
                "pipeline": f"p-{self.topic}",
                # Small, so that records are in Kafka long before their slot is complete.
                "kafka.batch.size": "16384",
                "transaction.scope": scope,
            },
            script={"directory": str(directory), "holds": holds or {}, "fails": fails},
            checkpoint=str(self._directory / "checkpoint"),
            rows=ROWS,
            shuffled=shuffled,
        )
        return Run(self.application, directory)

    def written(self) -> dict[int, int]:
        """How many offsets each partition has, whoever can see them."""
        return self._look.end_offsets(self.topic)

    def await_records_of(self, *slots: int, beyond: int = 0) -> None:
        """Wait until Kafka has records of each of these slots."""
        eventually(f"records of slots {slots}", lambda: all(self.written()[slot] > beyond for slot in slots))

    def stage_attempt(self, stage: int) -> int:
        """The number of the stage's newest attempt: 0 where it ran once."""
        return int(self.application.ask("stage_attempt", stage=stage)["attempt"])

    def records(self, isolation: str = "read_committed") -> Counter[int]:
        """How often librdkafka shows each number."""
        found = read_all(self._servers, self.topic, isolation)
        return Counter(int((value or b"").split()[0]) for _, value in found)


def processes() -> dict[int, tuple[int, str]]:
    """pid -> parent and command line of every living process."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,command="]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in said.splitlines()]
    return {int(pid): (int(parent), command) for pid, parent, state, command in rows if "Z" not in state}


def executor_of(query: Query, worker: int) -> int:
    """The pid of the executor, of the query's own application, that a Python worker belongs to."""
    app_id = query.application.ask("app_id")["app_id"]
    living = processes()
    pid = worker
    while "CoarseGrainedExecutorBackend" not in living[pid][1]:
        pid = living[pid][0]
    assert f"--app-id {app_id} " in f"{living[pid][1]} "
    return pid


def executors_of(query: Query) -> set[int]:
    """The pids of the executors of the query's own application."""
    app_id = query.application.ask("app_id")["app_id"]
    mark = f"--app-id {app_id} "
    return {
        pid
        for pid, (_, command) in processes().items()
        if "CoarseGrainedExecutorBackend" in command and mark in f"{command} " and "bash" not in command
    }


def kill_executor_of(query: Query, run: Run, start: str) -> None:
    """SIGKILL the executor in which this start of a task runs, and wait until it is gone."""
    pid = executor_of(query, run.who(start)["pid"])
    os.kill(pid, signal.SIGKILL)
    eventually(f"executor {pid} is gone", lambda: pid not in processes())


def sinks_of(run: Run, *starts: str) -> list[int]:
    """The Python workers that write what these starts hand over: the only siblings of those that hand it over."""

    def found() -> list[int] | None:
        living = processes()
        handing = [run.who(start)["pid"] for start in starts]
        siblings = [[p for p in living if p != pid and living[p][0] == living[pid][0]] for pid in handing]
        return [each for (each,) in siblings] if all(len(each) == 1 for each in siblings) else None

    pids: list[int] = eventually("every task has one worker that hands over and one that writes", found)
    return pids


@contextlib.contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stop the processes as a machine that hangs would, and let them go on afterwards."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
        assert set(pids) <= set(processes()), "those that were frozen are to outlive all this"
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
