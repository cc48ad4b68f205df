"""A pipeline's batches on the cluster in memory, in each way in which Spark calls a sink.

Owns: a run in one process (foreachBatch), a batch that one process begins and another one ends (format).
Does not know: what a test expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_core import runtime
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, PIPELINE, SOURCE, World

OPTIONS = {
    "kafka.bootstrap.servers": "memory:1",
    "pipeline": PIPELINE,
    "topic": "out",
    "ledger.topic": LEDGER,
    "transaction.margin.ms": "500",
}

Slots = Mapping[int, Mapping[int, int]]
"""Slot -> output partition -> records."""


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse(OPTIONS | {name.replace("__", "."): value for name, value in more.items()})


def seals_of(world: World, slots: Slots) -> list[Seal]:
    """Three tasks; those without rows seal as empty."""
    return [
        world.slot(slot, slots[slot]) if slot in slots else Seal(f"{PIPELINE}:{slot}", slot, None, 2)
        for slot in range(3)
    ]


def lines(batch_id: int) -> tuple[str, ...]:
    return (f"offsets of batch {batch_id}",)


def play(world: World, driver: PerTask, batch_id: int, slots: Slots) -> None:
    def write(only: frozenset[int] | None) -> list[Seal]:
        driver.plan(batch_id, only)
        return seals_of(world, slots)

    driver.process(batch_id, write, lines(batch_id), {SOURCE: batch_id + 1})


class InOneProcess:
    """foreachBatch: one process for all batches of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.driver: PerTask | None = None

    def batch(self, batch_id: int, slots: Slots) -> None:
        if self.driver is None:
            self.driver = PerTask(Run(self.world.cluster, options(), "query"))
            assert self.driver.start(batch_id, None, lines(batch_id)) is None
        play(self.world, self.driver, batch_id, slots)

    def again(self, batch_id: int) -> None:
        """A batch that is decided: its start finishes it, and nothing of it is written."""
        self.driver = PerTask(Run(self.world.cluster, options(), "query"))
        assert self.driver.start(batch_id, None, lines(batch_id)) is not None

    def restart(self) -> None:
        self.world.fresh_process()
        self.driver = None


class HandedOver:
    """By format: one process begins a batch, another ends it. `forgets`: neither keeps anything between two batches."""

    def __init__(self, world: World, *, forgets: bool = False) -> None:
        self.world = world
        self.forgets = forgets

    def batch(self, batch_id: int, slots: Slots) -> None:
        cluster = self.world.cluster
        _, handover = ho.begin(cluster, options(), "query", batch_id, lines(batch_id))
        if self.forgets:
            self.restart()
        seals = seals_of(self.world, slots)
        ho.finish(self.world.cluster, options(), handover, seals, lines(batch_id), {SOURCE: batch_id + 1})
        if self.forgets:
            self.restart()

    def again(self, batch_id: int) -> None:
        """A batch that is decided: its start finishes it, and no slot of it writes."""
        _, handover = ho.begin(self.world.cluster, options(), "query", batch_id, lines(batch_id))
        assert handover.repair == frozenset()
        ho.finish(self.world.cluster, options(), handover, [], lines(batch_id), {SOURCE: batch_id + 1})

    def restart(self) -> None:
        runtime.forget(runtime.process_id())
        self.world.fresh_process()


WAYS: dict[str, Callable[[World], InOneProcess | HandedOver]] = {
    "foreachBatch": InOneProcess,
    "format": HandedOver,
    "format, other processes": lambda world: HandedOver(world, forgets=True),
}

Way = InOneProcess | HandedOver
