"""One history: a seed, a job, what strikes it, and what a judge finds in the logs' bytes afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from connector import crash_points, runtime
from tests.simulation.cluster import SimBroker
from tests.simulation.job import Job
from tests.simulation.library import installed
from tests.simulation.network import Net
from tests.simulation.world import World

OUTPUT = "out"
PARTITIONS = 2
HOUR_S = 3_600.0
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
    slots: int = 2,
    rows: int = 4,
    most_steps: int = MOST_STEPS,
) -> Outcome:
    """Play it to its end, which comes within a simulated hour, and judge."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    world = World(seed)
    net = Net(world)
    try:
        with contextlib.ExitStack() as stack, installed(world, net):
            broker = SimBroker(world, net, directory, transaction_version=transaction_version)
            broker.start()
            if (
                not world.run(lambda: broker.ready or broker.error is not None, seconds=60)
                or broker.node is None
            ):
                raise RuntimeError(f"the broker did not start: {broker.error!r}")
            broker.node.topics.create(OUTPUT, PARTITIONS)
            broker.node.topics.create("src", 1)
            job = Job(
                world,
                {} if scope == "task" else {"transaction.scope": scope},
                batches=batches,
                slots=slots,
                rows=rows,
            )
            job.start()
            scene = Scene(world, net, broker, job, stack)
            faults(scene)
            world.run(lambda: job.over, seconds=HOUR_S, steps=most_steps)
            trace, steps, seconds = world.trace, world.steps, world.now
            problems = _judge(scene)
            broker.kill()
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
        job.runs,
        job.repaired,
        dict(world.fired),
        job.errors,
        problems,
    )


def _judge(scene: Scene) -> list[str]:
    """Everything once, nothing open, and an end within the time."""
    world, job, broker = scene.world, scene.job, scene.broker
    if job.fatal is not None and not isinstance(job.fatal, tuple(job.final)):
        return [f"stopped by {type(job.fatal).__name__}: {job.fatal}"]
    if job.fatal is None and job.done_batches < job.batches:
        return [f"not finished after {world.now:.0f} s and {world.steps} steps: {job.errors[-2:]}"]
    scene.net.cut_until.clear()
    scene.net.slow = 0.0
    world.before_step = None
    broker.start()
    # What zombies have open ends by its timeout.
    world.run(lambda: broker.up, seconds=60)
    world.run(lambda: False, seconds=100)
    if not broker.up:
        return [f"the broker does not serve: {broker.error!r}"]
    found, still_open = broker.records(OUTPUT, PARTITIONS)
    foreign = found - job.expected(job.batches)
    missing = job.expected(job.done_batches) - found
    missing = Counter({row: count for row, count in missing.items() if row not in scene.lost})
    problems = []
    if foreign or missing:
        problems.append(f"twice or foreign {dict(foreign)}, missing {dict(missing)}")
    if still_open:
        problems.append(f"{still_open} records are open")
    return problems
