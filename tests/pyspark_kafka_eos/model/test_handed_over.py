"""What one process of a query pickled for another one is read by the same version of this package, and refused in a
sentence by another.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark import TaskContext

from kafka_core.errors import WrongInstallation
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.commit.dataframe_write import Begun
from pyspark_kafka_eos.commit.run import Handover
from pyspark_kafka_eos.model import handed_over as handing
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, TurnsBegin, WritePlan
from pyspark_kafka_eos.spark.sink.batch_sink import BatchWriter
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
from pyspark_kafka_eos.spark.sink.tasks import FINAL, SlotMessage, read_messages, write_as_slot

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "pipeline": "p"}
SINK = SinkOptions.parse(OPTIONS)
SOURCE = SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "in"})
PLAN = WritePlan.for_batch(SINK, 7, None, transaction_timeout_ms=60_000)
SHARED = SharedPlan(
    writing=PLAN,
    identity=ProducerIdentity(1, 0),
    transaction_version=2,
    turns=TurnsBegin(TopicPartition("turns", 0), 5, b"secret"),
)
HANDOVER = Handover("query", 7, ProducerIdentity(1, 0), 1.5)
BEGUN = Begun(SINK, 7, PLAN, HANDOVER)
SENTENCE = r"^driver and executors have different versions.*is of version 9\.9\.9.*install one version"


def of_another_version(value: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The value as this process reads it where a later version has pickled it."""
    with monkeypatch.context() as later:
        later.setattr(handing, "__version__", "9.9.9")
        written = pickle.dumps(value)
    return pickle.loads(written)


@pytest.mark.parametrize("value", [SINK, SOURCE, PLAN, SHARED, HANDOVER, BEGUN], ids=lambda value: type(value).__name__)
def test_the_same_version_reads_what_was_written(value: Any) -> None:
    again = pickle.loads(pickle.dumps(value))

    assert again == value
    assert type(again) is type(value)


def test_a_version_stands_once_whatever_is_inside() -> None:
    assert pickle.dumps(BEGUN).count(handing.__version__.encode()) == 1


@pytest.mark.parametrize("plan", [PLAN, SHARED], ids=["task", "batch"])
def test_a_task_with_a_plan_of_another_version_is_refused_in_a_sentence_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, plan: Any
) -> None:
    read = of_another_version(plan, monkeypatch)
    context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
    context._partitionId, context._localProperties = 0, {}

    with pytest.raises(WrongInstallation, match=SENTENCE) as refused:
        write_as_slot(read, context, iter(()))

    assert isinstance(refused.value, FINAL)
    assert refused.value.facts == {"here": handing.__version__, "handed_over": "9.9.9"}


def test_a_write_that_another_version_began_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = BatchWriter(BEGUN, {})
    writer.begun = of_another_version(BEGUN, monkeypatch)

    for use in (lambda: writer.write(iter(())), lambda: writer.commit([])):
        with pytest.raises(WrongInstallation, match=SENTENCE):
            use()


def test_a_message_of_another_version_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a batch would be decided without that task."""
    messages = [SlotMessage(None), of_another_version(SlotMessage(None, None, HANDOVER), monkeypatch)]

    with pytest.raises(WrongInstallation, match=SENTENCE):
        read_messages(messages)


def test_a_function_of_another_version_is_refused_at_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = of_another_version(ExactlyOnceWriter(OPTIONS), monkeypatch)

    with pytest.raises(WrongInstallation, match=SENTENCE):
        _ = writer.options.pipeline


def test_nothing_of_another_version_is_interpreted() -> None:
    read = handing.read("9.9.9", b"no pickle of any version")

    with pytest.raises(WrongInstallation, match=SENTENCE):
        _ = read.anything
    assert isinstance(pickle.loads(pickle.dumps(read)), handing.OtherVersion)
