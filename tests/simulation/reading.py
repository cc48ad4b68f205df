"""Who reads while the job writes: a query of the product's source over the output, and `kafka-eos verify` again and
again, each in a process of its own.

Owns: what Spark does with a source (a planned batch is logged, and read again by the next run), what the two may say.
Does not know: what strikes meanwhile, how the job is judged.
Invariants:
- The job is not over before the reader is, which has to see every row.
- What a reader may not say is in `Reading.wrong`; an error that the next try needs nobody for is none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.operations.audit import Verdict
from pyspark_kafka_eos.operations.proving import prove_newest
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.spark.offset_json import OffsetJson
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from tests.simulation.cluster import ADDRESS
from tests.simulation.play import Scene
from tests.simulation.watch import OUTPUT

_AGAIN_S = 0.01
"""Between two plannings, two proofs, two looks whether the reader is done."""


@dataclass(frozen=True)
class _Limit:
    """As pyspark's ReadMaxRows (4.2 and later). A batch of the job has more offsets, so it is planned in several."""

    max_rows: int = 4


@dataclass
class Reading:
    """What a reader was told. `batches`: of the job, that are written; `tries`: how often it planned, or proved."""

    batches: int = 0
    tries: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    over: bool = False


def beside(scene: Scene, read: Callable[[Scene, Reading], None]) -> Reading:
    """Have `read` run in a process of its own from now on. The job waits for it behind its last batch."""
    reading, job = Reading(), scene.job
    finished = job._finished

    def wait(batch: int, report: object) -> None:
        reading.batches = batch + 1
        while reading.batches == job.batches and not reading.over:
            runtime.sleep(_AGAIN_S)
        finished(batch, report)

    def run() -> None:
        try:
            read(scene, reading)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the judge is told
            reading.wrong.append(f"{type(error).__name__}: {error}")
        reading.over = True

    job._finished = wait  # type: ignore[method-assign]
    scene.world.spawn(scene.world.process("reader"), run, "reader")
    return reading


def query(scene: Scene, reading: Reading) -> None:
    """A query over the output, which is started again where it ends, until it has every row. Wrong: a row that is
    missing, comes twice, or before an earlier one of its partition.
    """
    options = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": ADDRESS,
            "subscribe": OUTPUT,
            "startingOffsets": "earliest",
        }
    )
    expected, found = scene.job.expected(scene.job.batches), Counter[str]()
    logged: list[tuple[OffsetJson, OffsetJson]] = []
    read_up_to: dict[TopicPartition, int] = {}

    def read(reader: KafkaStreamReader, start: OffsetJson, end: OffsetJson) -> Counter[str]:
        rows, up_to = Counter[str](), dict(read_up_to)
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                for row in batch.to_pylist():
                    where = TopicPartition(row["topic"], row["partition"])
                    if row["offset"] < up_to.get(where, 0):
                        reading.wrong.append(f"offset {row['offset']} of {where} comes behind {up_to[where] - 1}")
                    up_to[where] = row["offset"] + 1
                    rows[row["value"].decode()] += 1
        read_up_to.update(up_to)
        return rows

    def run() -> None:
        reader = KafkaStreamReader(options)
        if logged:
            # The batch that the run before had logged and not done.
            start, end = logged.pop()
            logged.append((start, end))
            found.update(read(reader, start, end))
            logged[-1] = (end, end)
        at = logged[-1][1] if logged else reader.initialOffset()
        while found.total() < expected.total():
            reading.tries += 1
            end = reader.latestOffset(at, _Limit())
            if end == at:
                runtime.sleep(_AGAIN_S)
                continue
            logged[:] = [(at, end)]
            found.update(read(reader, at, end))
            logged[:] = [(end, end)]
            at = end

    while found.total() < expected.total():
        try:
            run()
        except BrokerUnavailable as error:
            reading.errors.append(f"{type(error).__name__}: {error}")
            runtime.sleep(_AGAIN_S)
    if found != expected:
        reading.wrong.append(f"missing {expected - found}, too many {found - expected}")


def verify(scene: Scene, reading: Reading) -> None:
    """Proofs, one behind the other, the last one behind the last batch. Wrong: any word against a batch that is
    written; of one that is being written, anything but that it is open or there; a batch that nobody decided.
    """
    options = SinkOptions.parse(scene.job.options)
    pipeline, ledger = str(options.pipeline), options.ledger_topic
    proven = 0
    while proven < scene.job.batches:
        written = reading.batches
        reading.tries += 1
        try:
            proof, _ = prove_newest(Cluster.shared(options.client), ledger, pipeline, 5, [OUTPUT], lambda *_: None)
        except BrokerUnavailable as error:
            reading.errors.append(f"{type(error).__name__}: {error}")
            runtime.sleep(_AGAIN_S)
            continue
        for decision, findings in proof.batches:
            allowed = {Verdict.MATCHES} | (set() if decision.batch_id < written else {Verdict.OPEN})
            reading.wrong += [
                f"batch {decision.batch_id} {each.verdict.value}: {each.reason}"
                for each in findings
                if each.verdict not in allowed
            ]
        there = {decision.batch_id for decision, _ in proof.batches}
        reading.wrong += [f"nothing is said of batch {batch}" for batch in range(written) if batch not in there]
        reading.wrong += [f"a commit that nobody decided: {each}" for each in proof.undecided]
        proven = written
        runtime.sleep(_AGAIN_S)
