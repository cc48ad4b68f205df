"""One history: a seed, a job, what strikes it, and what a judge finds in the logs' bytes while it runs and
afterwards.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_core import runtime
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.commit.ledger.topic import PARTITIONS as LEDGER_PARTITIONS
from pyspark_kafka_eos.commit.ledger.topic import SETTINGS
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from tests.simulation import remedy
from tests.simulation.cluster import SimBroker
from tests.simulation.handed_over import HandedOver, WithWorkers
from tests.simulation.job import Job
from tests.simulation.judge import PARTITIONS, judge, judge_the_end
from tests.simulation.library import installed
from tests.simulation.network import Net
from tests.simulation.shapes import SHAPES
from tests.simulation.watch import OUTPUT, Watch
from tests.simulation.world import World

HOUR_S = 3_600.0

SAFE = {"min.insync.replicas": "2"}
"""Of the output and the ledger, with acks=all: what is acknowledged is in two of three replicas."""

MOST_STEPS = 400_000


@dataclass
class Scene:
    """What a fault can strike."""

    world: World
    net: Net
    broker: SimBroker
    job: Job
    stack: contextlib.ExitStack
    lost: set[str] = field(default_factory=set)
    """Rows whose records a fault took away: the judge may not ask for them."""

    def at_crash_points(self, reached: Callable[[str], None]) -> None:
        """Have it happen wherever a process reaches a named point, for the time of this history."""
        before = crash_points.reached
        crash_points.reached = reached
        self.stack.callback(setattr, crash_points, "reached", before)

    def at_requests(self, sent: Callable[[], None]) -> None:
        """Have it happen wherever a process sends the broker a request."""
        self.broker.tap.at_each(sent)


Faults = Callable[[Scene], None]
"""Called when the job begins: schedules what shall strike."""


@dataclass(frozen=True)
class Outcome:
    """What became of a history. `problems`: what the judge has against it, in words."""

    seed: int
    scope: str
    transaction_version: int
    trace: str
    steps: int
    seconds: float
    runs: int
    repaired: int
    fired: Mapping[str, int]
    errors: list[str]
    problems: list[str] = field(default_factory=list)
    requests: Mapping[str, int] = field(default_factory=dict)
    """API -> how many came to the broker's handlers until the job was over."""

    @property
    def command(self) -> str:
        """What plays a storm again."""
        return (
            f"python -m tests.simulation --seed {self.seed} --scope {self.scope} "
            f"--transaction-version {self.transaction_version}"
        )


def no_faults(_scene: Scene) -> None:
    """Nothing strikes."""


def play(
    seed: int,
    faults: Faults = no_faults,
    *,
    scope: str = "task",
    transaction_version: int = 2,
    batches: int = 2,
    slots: int | None = None,
    job: str = "",
    most_steps: int = MOST_STEPS,
    watched: bool = True,
) -> Outcome:
    """Play it to its end, which comes within a simulated hour, and judge. `job`: a name of `SHAPES`; `slots`: in place
    of its own.
    Not `watched`: only the end is judged. What is asked at each moment takes time that grows with the square of the
    slots.
    """
    shape = SHAPES[job]
    job_class = WithWorkers if shape.kept else HandedOver if shape.handed_over else Job
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    world = World(seed)
    net = Net(world)
    try:
        with contextlib.ExitStack() as stack, installed(world, net):
            broker = SimBroker(world, net, directory, transaction_version=transaction_version)
            broker.start()
            if not world.run(lambda: broker.ready or broker.error is not None, seconds=60) or broker.node is None:
                raise RuntimeError(f"the broker did not start: {broker.error!r}")
            broker.node.parts.topics.create(OUTPUT, PARTITIONS, SAFE)
            broker.node.parts.topics.create("src", 1)
            if shape.ledger_bytes:
                settings = SETTINGS | {"max.message.bytes": str(shape.ledger_bytes)}
                broker.node.parts.topics.create(DEFAULT_LEDGER_TOPIC, LEDGER_PARTITIONS, settings)
            query = job_class(
                world,
                {**shape.options, **({} if scope == "task" else {"transaction.scope": scope})},
                batches=batches,
                slots=slots or shape.slots,
                rows=shape.rows,
                empty=shape.empty,
                key_bytes=shape.key_bytes,
                at_once=shape.at_once,
            )
            query.start()
            scene = Scene(world, net, broker, query, stack)
            faults(scene)
            watch = Watch(scene)
            if watched:
                watch.install()
            query.operator = partial(remedy.follow, scene, watch)
            world.run(lambda: query.over, seconds=HOUR_S, steps=most_steps)
            trace, steps, seconds = world.trace, world.steps, world.now
            requests = dict(broker.faults.seen)
            problems = judge(scene, watch) if watched else judge_the_end(scene)
            broker.stop()
    finally:
        for process in world.processes:
            runtime.forget(process.number)
        shutil.rmtree(directory, ignore_errors=True)
    return Outcome(
        seed,
        scope,
        transaction_version,
        trace,
        steps,
        seconds,
        query.runs,
        query.repaired,
        dict(world.fired),
        query.errors,
        problems,
        requests,
    )
