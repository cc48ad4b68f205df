"""A pipeline that lives for long: forgotten markers, slots without rows, a thousand neighbours in its partition of the
ledger, restarts.

Owns: what strikes between two batches and within one, for as long as the job lives.
Does not know: what a judge asks (`judge`); one history is one seed.

Nothing that strikes here loses anything, and all of it is daily business. So the query may end with an error that tells
nobody to act, and is then started again; a refusal is a defect.
"""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pyarrow as pa

from kafka_core import runtime
from kafka_core.errors import DecisionBroken, NondeterministicPlan
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import append
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.records import BATCH_OVERHEAD_BYTES, RecordColumns, SectionWriter, frame
from tests.simulation.circumstances import forget_marker
from tests.simulation.play import Outcome, Scene, play
from tests.simulation.watch import OUTPUT

NEIGHBOURS = 1_000
"""Pipelines beside this one in its partition of the ledger. A start reads the newest 500 offsets first, so one round of
their notes puts everything of this pipeline out of its sight.
"""

FORGOTTEN, RESTARTS, ROUNDS = 0.25, 0.1, 0.2
"""Of so many batches a marker is forgotten, and behind so many the driver is killed or the neighbours have their round.
Behind a forgotten marker they have one always, and half of the drivers are killed after that.
"""

STEPS_A_BATCH = 4_000
"""The most that a batch may take on the average. Measured: 400 to 700."""

REFUSALS = {DecisionBroken, NondeterministicPlan}
"""Beside those that end every history: here no person may be asked for anything."""


def long_life(scene: Scene) -> None:
    """Strikes as long as the job is not over."""
    job, chance = scene.job, Random(scene.world.seed)
    job.final |= REFUSALS
    finished, forgotten = job._finished, False

    def batch_is_done(batch: int, report: object) -> None:
        nonlocal forgotten
        finished(batch, report)
        if job.over:
            return
        if forgotten or chance.random() < ROUNDS:
            scene.world.spawn(scene.world.process("neighbours"), lambda: _round(scene), "neighbours")
        if chance.random() < (0.5 if forgotten else RESTARTS):
            # Anywhere in the next batches: one takes some 0.02 s.
            driver = job.driver
            scene.world.schedule(chance.uniform(0.01, 0.1), lambda: scene.world.kill(driver))
        forgotten = chance.random() < FORGOTTEN
        if forgotten:
            # In the next batch, where it has records there.
            forget_marker(scene, chance.choice((OUTPUT, OUTPUT, DEFAULT_LEDGER_TOPIC)), commit=True)

    job._finished = batch_is_done  # type: ignore[method-assign]


def _round(scene: Scene) -> None:
    """Each neighbour has ended a batch: one note of each, in the partition of the job's own decisions."""
    options = SinkOptions.parse(scene.job.options)
    cluster = Cluster.shared(options.client)
    where = Ledger(cluster, options.ledger_topic, options.pipeline).partition
    note = json.dumps(
        {"version": 1, "note": "ended", "query_id": "q", "batch_id": 1, "decided_ms": 1, "repaired": 0}
    ).encode()
    keys = pa.array([f"neighbour-{number}/ended".encode() for number in range(NEIGHBOURS)], pa.binary())
    columns = RecordColumns(keys, pa.array([note] * NEIGHBOURS, pa.binary()), None, None, num_rows=NEIGHBOURS)
    limit = NEIGHBOURS * (len(note) + 64) + BATCH_OVERHEAD_BYTES
    writer = SectionWriter(1, limit, explicit_timestamps=False, digest_seeds=None)
    sections = list(writer.append(columns, np.zeros(NEIGHBOURS, dtype=np.int32), int(runtime.time() * 1000)))
    for section in (*sections, *writer.flush()):
        batch = frame(
            section, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH, base_sequence=NO_SEQUENCE, transactional=False,
            compression="gzip",
        )  # fmt: skip
        append(cluster, where, batch, what="the neighbours' notes", grant="WRITE")
    scene.world.fired["neighbours"] += 1


def live(
    batches: int,
    seed: int = 0,
    *,
    scope: str = "task",
    transaction_version: int = 2,
    handed_over: bool = False,
) -> Outcome:
    """A life of so many batches, judged at its end."""
    return play(
        seed,
        long_life,
        scope=scope,
        transaction_version=transaction_version,
        batches=batches,
        job="long life, handed over" if handed_over else "long life",
        most_steps=STEPS_A_BATCH * batches,
        watched=False,
    )
