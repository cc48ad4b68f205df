"""One job on a cluster, from its files to the proof: the page's commands, a broker of its own, kills.

Owns: the job's directory and environment, its input, its processes, what a reader of committed records finds.
Does not know: how a cluster is started.
Invariants:
- The job's files are those that `kafka-eos job init` wrote, byte by byte.
- Only processes whose working directory lies in the test's own directory are signalled.
- The input does not run out while a test waits for a kill, however quick the job is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real.java import require_java
from spark_jobs.proof import Look, read_all
from tests.clusters.page import block
from tests.support.quick_start import QUICK_START, flags

PER_BATCH = 250

AHEAD = 16 * PER_BATCH
"""What the job has before it whenever a test waits for the moment of a kill. A look at the output takes as long as
several batches, so with a quarter of it a quick job could be idle at that moment.
"""

GIVEN, WRITTEN, GROUP = "orders", "orders.clean", "clean-orders"
"""As transform.yaml names them."""

WITHIN_S = 600.0
"""For anything that a test waits for. The longest, a new driver on YARN, took some 300 s with fifteen others at
work.
"""

TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a new Python worker 10 s, by a constant. A busy machine takes longer, and the job then ends before its
first batch.
"""

EXECUTOR, MASTER_OF_APPLICATION = "CoarseGrainedExecutorBackend", "deploy.yarn.ApplicationMaster"

FILES = ("environment", "environment.tar.gz", "transform.yaml", "spark-defaults.conf", "job.py")

CLUSTERS_OWN = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.memory": "600m",
    "spark.executor.memory": "600m",
}
"""What the cluster's operator has in spark-defaults.conf. The job's command and files have nothing of it."""


class Scene:
    """The job with its brokers. `directory` holds all its files and those of its cluster."""

    def __init__(self, directory: Path, packed: Path, bootstrap_servers: str, home: Path) -> None:
        self.directory, self.bootstrap_servers, self.home = directory, bootstrap_servers, home
        self.job = directory / "job"
        self.job.mkdir()
        for name in FILES:
            (self.job / name).symlink_to(packed / name)
        self._submits = 0
        self.fed = 0
        self._fed_at = 0.0
        self._producer = Producer({"bootstrap.servers": bootstrap_servers})
        self.log = self.job / "none.log"

    # ---- the job

    def feed(self) -> None:
        """Make both topics and begin to fill the one that the job reads."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 4, 1) for name in (GIVEN, WRITTEN)]).values():
            made.result()
        self._feed_to(AHEAD)

    def _feed_to(self, count: int) -> None:
        for number in range(self.fed, count):
            self._producer.produce(GIVEN, f"order {number}", str(number))
        assert self._producer.flush(60) == 0
        self.fed = max(self.fed, count)

    def _stay_ahead(self, look: Look) -> None:
        """Add to the input what the job has consumed of it. At most five times a second: the question takes time,
        too.
        """
        if time.monotonic() - self._fed_at > 0.2:
            self._fed_at = time.monotonic()
            self._feed_to(sum(look.group_offsets(GROUP, GIVEN).values()) + AHEAD)

    def environ(self, settings: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of whoever submits, or of a part of the cluster. PATH has a Python without any package."""
        conf = self.directory / "conf"
        conf.mkdir(exist_ok=True)
        lines = [f"{name} {value}\n" for name, value in {**CLUSTERS_OWN, **settings}.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        return {
            "PATH": "/usr/bin:/bin", "HOME": str(self.directory), "LANG": "C.UTF-8", "JAVA_HOME": str(require_java().home),
            "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self.directory / "tmp"),
            "MAX_OFFSETS_PER_TRIGGER": str(PER_BATCH), "JDK_JAVA_OPTIONS": flags(), **(more or {}),
        }  # fmt: skip

    @property
    def checkpoint(self) -> Path:
        """Where the job keeps its checkpoint."""
        return self.directory / "checkpoint"

    def submit(self, heading: str, changes: Mapping[str, str], environ: Mapping[str, str], number: int = 0) -> Child:
        """Run the page's command under this heading, after the page's variables."""
        exports = block(
            "Name the cluster and the brokers",
            {"/opt/spark": str(self.home), "127.0.0.1:9092": self.bootstrap_servers,
             "file:///shared/clean-orders": self.checkpoint.as_uri()},
        )  # fmt: skip
        self._submits += 1
        self.log = self.job / f"submit-{self._submits}.log"
        # The page has something start the command again; here that is done for this one reason only.
        text = (
            f"{exports}until {{\n{block(heading, changes, number)}}}; do\n"
            f"code=$?; tail --lines 60 {self.log} | grep --quiet '{TOO_SLOW}' || exit $code\ndone\n"
        )
        return spawn(["bash", "-euc", text], log_path=self.log, env=environ, cwd=self.job)

    # ---- what there is to see

    def committed(self) -> Counter[bytes]:
        """How often a reader of committed records sees each value."""
        found = read_all(self.bootstrap_servers, WRITTEN, "read_committed")
        return Counter(value or b"" for _, value in found)

    def each_once(self) -> bool:
        """Every record of the input once, and nothing else."""
        return self.committed() == Counter(f"ORDER {number}".encode() for number in range(self.fed))

    def await_records(self, count: int, child: Child | None = None) -> None:
        """Wait until so many records are committed. There is always more to do."""
        with contextlib.closing(Look(self.bootstrap_servers)) as look:

            def found() -> bool:
                self._stay_ahead(look)
                return self.committed().total() >= count

            self._await(f"{count} records", found, child)

    def await_open_transaction(self, child: Child | None = None) -> None:
        """Wait for the middle of a batch: records are written and not yet committed."""
        with contextlib.closing(Look(self.bootstrap_servers)) as look:

            def found() -> bool:
                self._stay_ahead(look)
                return look.open_offsets(WRITTEN) > 0

            self._await("an open transaction", found, child, pause_s=0.005)

    def await_all(self, child: Child | None = None) -> None:
        """Wait until the group has committed the end of the input, and no transaction is open."""
        with contextlib.closing(Look(self.bootstrap_servers)) as look:

            def done() -> bool:
                ends = look.end_offsets(GIVEN)
                return look.group_offsets(GROUP, GIVEN) == ends and look.open_offsets(WRITTEN) == 0

            self._await("the end of the input", done, child)

    def _await(self, what: str, found: Callable[[], Any], child: Child | None, pause_s: float = 0.2) -> None:
        try:
            eventually(what, found, lambda: child is None or child.poll() is None, pause_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text(errors='replace')[-6000:]}") from None

    # ---- processes

    def kill_one(self, mark: str, directory: Path | None = None) -> None:
        """SIGKILL one Java process of the cluster with this in its command line, and wait until it is gone.
        `directory`: that of the cluster, where it is not this one.
        """
        kill([min(eventually(mark, lambda: pids_in(directory or self.directory, mark)))])


def eventually(
    what: str, found: Callable[[], Any], alive: Callable[[], bool] = lambda: True, pause_s: float = 0.2
) -> Any:
    """What `found` gives as soon as it is true; an AssertionError after WITHIN_S, or when `alive` is not."""
    deadline = time.monotonic() + WITHIN_S
    while not (answer := found()):
        assert alive(), f"ended before: {what}"
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}"
        time.sleep(pause_s)
    return answer


def pids_in(directory: Path, mark: str = "") -> list[int]:
    """Living processes whose working directory is in `directory`, with `mark` in the command line."""
    return [pid for pid, where, command in _living() if where.is_relative_to(directory) and mark in command]


def kill(pids: list[int]) -> None:
    """SIGKILL them all, and wait until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(f"{pids} are gone", lambda: not {*pids} & {pid for pid, _, _ in _living()}, pause_s=0.02)


def _living() -> Iterator[tuple[int, Path, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # One that ends meanwhile, and one that nobody has collected yet, have none of both.
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                yield int(entry.name), Path(os.readlink(entry / "cwd")), command
