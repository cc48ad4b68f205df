"""Who writes while the cluster is troubled: the product's queries, Java's producer, and how long each stood still.

Owns: their processes, what they said, the longest stall of each in a span of time.
Does not know: the troubles.
Invariants:
- A query that ended by itself is known as such, and is started again as an operator would do it.
- A stall of a query is the longest time from the beginning of a batch to its end, over all of its tries. One of the
  producer is the longest time in which one partition acknowledged nothing: its records come to each every few
  milliseconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT
from benchmarks.children import Child as Application
from benchmarks.peer import PEER_PYTHON, jvm_sink_jars
from embedded_kafka.child.processes import Child, spawn
from tests.cluster.job import Plan
from tests.cluster.plan import OURS, SPARKS
from tests.parity.java import java_command

JAVA = "java"
"""The topic of Java's producer, and its name in tables."""
_A_SECOND, _JAVA_KEYS = 60, 30
_ENDS_WITHIN_MS = 150_000


@dataclass(frozen=True)
class Span:
    """A span of time, in seconds since the epoch."""

    began: float
    ended: float

    def has(self, at: float) -> bool:
        """Whether a moment is in it."""
        return self.began <= at <= self.ended


@dataclass
class Batches:
    """What a query has said of its batches. Pure: lines in, figures out."""

    begun: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    errors: list[tuple[float, str]] = field(default_factory=list)
    """When the query ended by itself, and why."""
    kills: list[float] = field(default_factory=list)
    """When its driver was killed on purpose."""

    def take(self, line: str) -> None:
        """One line of its output; what is no line of its own is skipped."""
        if not line.startswith("{"):
            return
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            self.errors.append((said["at"], said["error"]))
        else:
            self.begun.setdefault(said["batch"], said["began"])
            self.ended[said["batch"]] = said["ended"]

    def longest(self, span: Span) -> float:
        """The longest batch that ended in the span, from the end of the one before where that was interrupted."""
        found = [0.0]
        for batch, ended in self.ended.items():
            if span.has(ended):
                began, before = self.begun[batch], self.ended.get(batch - 1)
                # A try that was killed says nothing of when it began.
                interrupted = before is not None and self._interrupted(before, ended)
                found.append(ended - (before if interrupted and before is not None else began))
        return max(found)

    def _interrupted(self, since: float, until: float) -> bool:
        return any(since <= at <= until for at in (*self.kills, *(at for at, _ in self.errors)))

    def newer(self, since: float) -> int:
        """How many batches began and ended since."""
        return sum(began >= since for batch, began in self.begun.items() if batch in self.ended)


def longest_silence(acks: Iterable[tuple[float, int]], span: Span) -> float:
    """Of one partition, between two acknowledgements, the later one in the span. `acks`: (when, partition)."""
    last: dict[int, float] = {}
    longest = 0.0
    for at, partition in acks:
        if span.has(at) and partition in last:
            longest = max(longest, at - last[partition])
        last[partition] = at
    return longest


class Lines:
    """New whole lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def __iter__(self) -> Iterator[str]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                yield line.decode(errors="replace").rstrip("\n")


class Job:
    """A query that is kept running."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.batches = Batches()
        self._command = [sys.executable, "-m", "tests.cluster.job", plan.to_json()]
        self._log = Path(plan.directory) / "job.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        self._lines = Lines(self._log)
        self._child: Child | None = None
        self._said = 0

    def start(self) -> None:
        """In a process of its own."""
        self._said = len(self.batches.errors)
        self._child = spawn(self._command, log_path=self._log, cwd=ROOT)

    def kill(self) -> None:
        """SIGKILL to the driver, and a start by the operator."""
        assert self._child is not None
        self.batches.kills.append(time.time())
        self._child.kill()
        self.start()

    def look(self) -> None:
        """Take what it said; start it again where it ended by itself."""
        ended = None if self._child is None else self._child.poll()
        self._take()
        if ended is not None:
            if len(self.batches.errors) == self._said:
                self.batches.errors.append((time.time(), f"ended with {ended} and said nothing"))
            self.start()

    def _take(self) -> None:
        for line in self._lines:
            self.batches.take(line)

    def finish(self) -> int:
        """Ask it to end behind its batch, and wait for that; its exit code."""
        assert self._child is not None
        self.plan.stop.touch()
        code = self._child.wait(_ENDS_WITHIN_MS)
        self._take()
        self._child = None
        return code

    def close(self) -> None:
        """End it however it is."""
        if self._child is not None:
            self._child.kill_tree()
            self._child = None


class Spark:
    """A real Spark with two queries, which it starts again when they end."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.batches = {OURS: Batches(), SPARKS: Batches()}
        self._directory = directory / "spark"
        self._directory.mkdir(parents=True)
        self._child = Application(
            str(PEER_PYTHON),
            "tests.cluster.application",
            servers,
            "--jars",
            jvm_sink_jars(),
            log=directory / "spark.log",
        )

    def start(self) -> None:
        """Both queries."""
        self._child.ask("start", directory=str(self._directory))

    def checkpoint(self, name: str) -> Path:
        """Of a query."""
        return self._directory / name

    def look(self) -> None:
        """Take what it has done."""
        self._take(self._child.ask("check"))

    def _take(self, found: Mapping[str, Any]) -> None:
        for name, said in found.items():
            for batch in said["batches"]:
                self.batches[name].take(json.dumps(batch))
            if said["error"]:
                self.batches[name].errors.append((time.time(), said["error"]))

    def finish(self) -> None:
        """Stop both queries."""
        self._take(self._child.ask("check", more=False))
        self._child.ask("stop")

    def close(self) -> None:
        """End it."""
        self._child.close()


class JavaProducer:
    """Kafka's own VerifiableProducer with acks=all, idempotent, with the defaults of a user for all that waits."""

    def __init__(self, servers: str, directory: Path, version: str) -> None:
        settings = directory / "java.properties"
        settings.write_text("enable.idempotence=true\nretries=2147483647\n")
        self._log = directory / "java.log"
        self._log.touch()
        self._lines = Lines(self._log)
        self.acks: list[tuple[float, int]] = []
        self.errors: list[tuple[float, str]] = []
        self._child = spawn(
            java_command(
                "org.apache.kafka.tools.VerifiableProducer",
                *("--bootstrap-server", servers, "--topic", JAVA, "--acks", "-1", "--throughput", str(_A_SECOND)),
                *("--repeating-keys", str(_JAVA_KEYS), "--producer.config", str(settings)),
                version=version,
            ),
            log_path=self._log,
        )

    def look(self) -> None:
        """Take what it said."""
        for line in self._lines:
            if line.startswith("{"):
                said = json.loads(line)
                if said["name"] == "producer_send_success":
                    self.acks.append((said["timestamp"] / 1000, said["partition"]))
                elif said["name"] == "producer_send_error":
                    self.errors.append((said["timestamp"] / 1000, said["message"]))

    def longest(self, span: Span) -> float:
        """Its longest stall in the span."""
        return longest_silence(self.acks, span)

    def newer(self, since: float) -> int:
        """Acknowledgements since."""
        return sum(at >= since for at, _ in self.acks)

    def close(self) -> None:
        """End it."""
        self._child.kill()
