"""A run that waits at a named point of its commit until the test has done its part: what changes in mid-run.

Owns: the child process, word that it has reached the point, its release and its end.
Does not know: what the test does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import ends_arrived
from tests.pyspark_kafka_eos.commit.child import Finished, arrow_batches, run
from tests.support.forks import forks

_WAIT_S = 60.0
"""How long either side waits for the other; a run that gets no word says so and ends, rather than hang the tests."""

_REACHED = "reached"


@dataclass
class Held:
    """A run that waits at its point."""

    process: BaseProcess
    pipe: Connection

    def release(self) -> Finished:
        """Let the run go on, and wait for its end."""
        self.pipe.send("go on")
        report = self.pipe.recv() if self.pipe.poll(_WAIT_S) else {"error": f"no end within {_WAIT_S} s"}
        self.process.join(10)
        assert self.process.exitcode is not None
        return Finished(self.process.exitcode, report)


@contextmanager
def held_at(
    point: str, settings: dict[str, Any], run_batch: Callable[[dict[str, Any]], dict[str, Any]] = run
) -> Iterator[Held]:
    """Start a micro-batch and return when it has reached `point` (`name` or `name:k`, as for a crash), where it waits.

    Nothing of it is left when the block ends, whether it was released or not. `run_batch` is a module's function.
    """
    context = forks()
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_held, args=(run_batch, settings, point, theirs))
    process.start()
    theirs.close()
    try:
        said = ours.recv() if ours.poll(_WAIT_S) else f"nothing within {_WAIT_S} s"
        assert said == _REACHED, f"the run did not reach {point}: {said}"
        yield Held(process, ours)
    finally:
        process.kill()
        process.join()
        ours.close()


def run_as_the_writer_does(settings: dict[str, Any]) -> dict[str, Any]:
    """The same micro-batch by `PerTask.process`, which does a batch again that got too old before its decision."""
    options = SinkOptions.parse(settings["options"])
    driver = PerTask(Run(Cluster.shared(options.client), options, settings["query"]))
    batch_id = settings["batch"]

    def write(only: frozenset[int] | None = None) -> list[Seal]:
        plan = driver.plan(batch_id, only)
        return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]

    report = driver.start(batch_id, write) or driver.process(batch_id, write, (), {})
    return {"batch": report.batch_id, "repaired": report.repaired, "redone": report.redone}


def _run_held(
    run_batch: Callable[[dict[str, Any]], dict[str, Any]],
    settings: dict[str, Any],
    point: str,
    pipe: Connection,
) -> None:
    def hold() -> None:
        pipe.send(_REACHED)
        if not pipe.poll(_WAIT_S):
            raise TimeoutError(f"nobody released {point} within {_WAIT_S} s")
        pipe.recv()

    ends_arrived.arm(point, settings["options"], hold)
    try:
        pipe.send(run_batch(settings))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test sees it
        pipe.send({"error": f"{type(error).__name__}: {error}"})
