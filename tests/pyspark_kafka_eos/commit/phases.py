"""A micro-batch whose beginning, tasks, commit and abort each run in a process of their own, as with Spark's Python
sinks.

Owns: the four phases as functions of picklable values, running one in a child that may be killed at a crash point.
Does not know: what a test expects.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import ends_arrived
from tests.pyspark_kafka_eos.commit.batch_child import write_all
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.support.forks import forks

Settings = dict[str, Any]


def begin(settings: Settings) -> tuple[WritePlan | SharedPlan, ho.Handover]:
    """Before the tasks, on the driver."""
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster.shared(options.client)
    return ho.begin(cluster, options, settings["query"], settings["batch"], _lines(settings))


def tasks(settings: Settings, plan: WritePlan | SharedPlan) -> list[Seal]:
    """All tasks, on one executor."""
    if isinstance(plan, SharedPlan):
        return write_all(plan, settings)
    return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]


def finish(settings: Settings, handover: ho.Handover, seals: list[Seal]) -> CommitReport:
    """After the tasks, on the driver, in a process that knows nothing but what it is handed."""
    options = SinkOptions.parse(settings["options"])
    offsets = {TopicPartition(topic, number): at for topic, number, at in settings["offsets"]}
    return ho.finish(Cluster.shared(options.client), options, handover, seals, _lines(settings), offsets)


def give_up(settings: Settings, handover: ho.Handover, seals: list[Seal]) -> bool:
    """What follows a commit that failed."""
    options = SinkOptions.parse(settings["options"])
    return ho.give_up(options, handover, seals, "the test says so")


def _lines(settings: Settings) -> tuple[str, ...]:
    return (json.dumps(settings["offsets"]),)


@dataclass(frozen=True)
class Played:
    """How a phase ended: its exit code (-9 where it was killed), what it gave, what it raised."""

    exitcode: int
    value: Any = None
    raised: BaseException | None = None


def play(phase: Callable[..., Any], *args: Any, crash_point: str = "") -> Played:
    """Run a phase in a child process of its own and wait for its end."""
    context = forks()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(phase, args, crash_point, theirs))
    child.start()
    theirs.close()
    try:
        value, raised = ours.recv() if ours.poll(180) else (None, TimeoutError("no answer within 180 s"))
    except EOFError:
        value, raised = None, None
    child.join(10)
    if child.is_alive():
        child.kill()
        child.join()
    assert child.exitcode is not None
    return Played(child.exitcode, value, raised)


def _answer(phase: Callable[..., Any], args: tuple[Any, ...], crash_point: str, answer: Connection) -> None:
    if crash_point:
        # A phase's arguments begin with its settings.
        ends_arrived.arm(crash_point, args[0]["options"])
    try:
        answer.send((phase(*args), None))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test sees it
        answer.send((None, error))


def play_batch(settings: Settings) -> CommitReport:
    """A whole micro-batch, unharmed, one process after another."""
    begun = play(begin, settings)
    assert begun.raised is None, begun.raised
    plan, handover = begun.value
    written = play(tasks, settings, plan)
    assert written.raised is None, written.raised
    done = play(finish, settings, handover, written.value)
    assert done.raised is None, done.raised
    assert isinstance(done.value, CommitReport)
    return done.value
