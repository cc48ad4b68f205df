"""A ledger that has lost its newest records (an unclean leader election), and all that must not be taken for that."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import PipelineConflict
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.lost import unnamed_commits
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.operations import ending as operations
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import RunBatch, run, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import LEDGER, following, rows_of, with_options
from tests.pyspark_kafka_eos.commit.test_dataframe_write import write as write_frame

pytestmark = pytest.mark.kafka

VERSIONS = [pytest.param("2", marks=pytest.mark.embedded), pytest.param("1", marks=pytest.mark.chaos)]
"""Transaction versions. The older one takes as long again, so it is left to `make chaos`; both on the embedded
broker.
"""

Settings = dict[str, Any]


@pytest.fixture(params=VERSIONS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.fixture(params=[run, run_batch], ids=["task", "batch"])
def run_it(request: pytest.FixtureRequest) -> RunBatch:
    """A micro-batch in either scope."""
    found: RunBatch = request.param
    return found


def ledger_of(settings: Settings) -> Ledger:
    options = SinkOptions.parse(settings["options"])
    return Ledger(Cluster.shared(options.client), options.ledger_topic, options.pipeline)


def end_of(settings: Settings) -> int:
    """Where the pipeline's partition of the ledger ends."""
    ledger = ledger_of(settings)
    return Offsets(ledger.cluster).latest([ledger.partition], READ_UNCOMMITTED)[ledger.partition]


def lose_tail(broker: EmbeddedKafka, settings: Settings, lost_from: int) -> None:
    broker.elect_leader(LEDGER, ledger_of(settings).partition.partition, lost_from=lost_from)
    assert end_of(settings) <= lost_from


def states(settings: Settings) -> Any:
    """What the coordinators say of the pipeline's ids."""
    pipeline = settings["options"]["pipeline"]
    ids = [f"{pipeline}:{name}" for name in ("driver", "batch", 0, 1, 2)]
    return Transactions(ledger_of(settings).cluster).describe(ids)


# ---- what is lost is noticed


@pytest.mark.parametrize(("run_it", "again"), [(run, 1), (run, 2), (run_batch, 1)])
def test_a_stream_is_refused_and_nothing_is_written_until_its_checkpoint_is_adopted(
    broker: EmbeddedKafka, run_it: RunBatch, again: int
) -> None:
    settings = settings_for(broker)
    run_it(settings)
    before = end_of(settings)
    run_it(following(settings))
    lose_tail(broker, settings, before)
    known = states(settings)

    with pytest.raises(PipelineConflict, match="lost a later decision"):
        run_it(following(settings, again))

    assert states(settings) == known
    both = rows_of(settings, following(settings))
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == both
    adopted = with_options(following(settings, 2), adopt_checkpoint="true")
    assert run_it(adopted)["resumed"] is False
    assert read_all(broker, settings["options"]["topic"]) == both + rows_of(following(settings, 2))
    # Once is enough.
    assert run_it(following(settings, 3))["resumed"] is False


def test_a_write_is_refused_and_nothing_is_written_until_it_is_adopted(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    options = settings["options"]
    write_frame(options, [["first"]])
    before = end_of(settings)
    write_frame(options, [["second"]])
    lose_tail(broker, settings, before)
    known = states(settings)

    with pytest.raises(PipelineConflict, match="lost a later decision"):
        write_frame(options, [["second"]])

    assert states(settings) == known
    assert read_all(broker, options["topic"], "read_uncommitted") == Counter(["first", "second"])
    adopted = with_options(settings, adopt_checkpoint="true")["options"]
    assert write_frame(adopted, [["third"]])["records"] == 1
    assert write_frame(options, [["fourth"]])["records"] == 1
    assert read_all(broker, options["topic"]) == Counter(["first", "second", "third", "fourth"])


# ---- what is no loss


def with_rows(settings: Settings, batch: int, slots: int) -> Settings:
    """A batch of so many slots with one row each; below none it is three empty ones."""
    rows = [[f"batch {batch} slot {slot}"] for slot in range(slots)]
    return {**settings, "batch": batch, "rows": rows or [[], [], []]}


@pytest.mark.parametrize(
    ("slots", "scopes"),
    [
        ((3, 1, 3), (run, run, run)),
        ((2, 0, 2), (run, run, run)),
        ((1, 4, 2), (run, run_batch, run)),
        ((0, 3, 0), (run_batch, run, run_batch)),
        ((2, 0, 2), (run_batch, run_batch, run_batch)),
    ],
)
def test_other_numbers_of_slots_and_other_scopes_raise_no_alarm(
    broker: EmbeddedKafka, slots: tuple[int, ...], scopes: tuple[RunBatch, ...]
) -> None:
    settings = settings_for(broker)
    written = [with_rows(settings, batch, count) for batch, count in enumerate(slots)]
    for run_one, batch in zip(scopes, written, strict=True):
        # Each is a start of its own, and begun again: as a run that was killed before Spark's commit log had the batch.
        assert run_one(batch)["resumed"] is False
        assert run_one(batch)["resumed"] is True

    assert read_all(broker, settings["options"]["topic"]) == rows_of(*written)


def test_a_repair_raises_no_alarm(broker: EmbeddedKafka) -> None:
    settings = settings_for(broker)
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    name = f"{settings['options']['pipeline']}:1"
    Transactions(ledger_of(settings).cluster).init_producer_id(name, 60_000)
    assert run(settings)["repaired"] == 1

    assert run(settings)["resumed"] is True
    assert run(following(settings))["resumed"] is False
    assert run_batch(following(settings, 2))["resumed"] is False


def test_a_mended_marker_raises_no_alarm(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    settings = settings_for(broker)
    name = f"{settings['options']['pipeline']}:{'batch' if run_it is run_batch else '1'}"
    topic = settings["options"]["topic"]
    fault = broker.fault_at_marker(topic, None, "forget", transactional_id=name, commit=True)
    run_it(settings)
    assert fault.fired == 1

    assert run_it(settings)["resumed"] is True
    assert run_it(following(settings))["resumed"] is False
    assert read_all(broker, topic) == rows_of(settings, following(settings))


@pytest.mark.parametrize(
    ("point", "operation"),
    [
        ("before-end", "commit"),
        ("before-end", "abort"),
        ("before-end", "fence"),
        ("before-decision", "fence"),
        ("before-return", "fence"),
    ],
)
def test_what_an_operator_does_raises_no_alarm(broker: EmbeddedKafka, point: str, operation: str) -> None:
    settings = settings_for(broker)
    assert run_child(settings, point).exitcode == -signal.SIGKILL
    ledger = ledger_of(settings)
    act: dict[str, Callable[[], Any]] = {
        "commit": lambda: operations.commit(ledger.cluster, ledger),
        "abort": lambda: operations.abort(ledger.cluster, ledger, ledger.pipeline),
        "fence": lambda: operations.fence(ledger.cluster, ledger, ledger.pipeline),
    }
    act[operation]()

    assert run(settings)["resumed"] is (point != "before-decision")
    assert run(following(settings))["resumed"] is False
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + rows_of(following(settings))


def test_an_epoch_that_starts_again_under_another_producer_id_raises_no_alarm() -> None:
    """At 32767 the coordinator gives the id another producer at epoch 0, which no decision can name."""

    def seen(epoch: int, shown: ProducerIdentity) -> list[str]:
        seal = Seal("p:0", 0, ProducerIdentity(7, epoch), 1, records=1)
        decision = Decision("p", "q", 4, (seal,), earlier=())
        return unnamed_commits(LedgerView(newest=decision), {"p:0": shown})

    assert seen(32_766, ProducerIdentity(7, 32_766)) == []
    assert seen(32_766, ProducerIdentity(8, 0)) == []
    assert seen(32_761, ProducerIdentity(8, 0)) == []
    assert seen(100, ProducerIdentity(8, 0)) == ["p:0"]
    assert seen(100, ProducerIdentity(7, 101)) == ["p:0"]
