"""The number of tasks comes from Spark: a batch of which a task's seal is missing is not decided."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_core.errors import IllegalMove
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.model import ClientSettings, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.sink.sink import open_writer
from pyspark_kafka_eos.spark.sink.tasks import SlotMessage
from tests.pyspark_kafka_eos.commit.batch_child import write_all
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.handover.test_handover import decided, settings_in
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def written(settings: dict[str, Any], plan: WritePlan | SharedPlan) -> list[Seal]:
    if isinstance(plan, SharedPlan):
        return write_all(plan, settings)
    return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_without_the_seal_of_the_highest_slot_nothing_is_decided(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        plan, handover = ho.begin(cluster, options, "query-1", 0, ("{}",))
        seals = written(settings, plan)

        with pytest.raises(IllegalMove) as refusal:
            ho.finish(cluster, options, handover, seals[:2], ("{}",), {}, tasks=3)

        assert refusal.value.facts["slots"] == 3
        assert decided(broker, settings) is None
        assert ho.give_up(options, handover, seals[:2], "a seal is missing")
        assert read_all(broker, settings["options"]["topic"]).total() == 0
        # With every seal the same batch goes through.
        plan, handover = ho.begin(cluster, options, "query-1", 0, ("{}",))
        ho.finish(cluster, options, handover, written(settings, plan), ("{}",), {}, tasks=3)
        assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    finally:
        cluster.close()


def test_a_task_without_a_message_is_missing_by_format(broker: AnyKafka) -> None:
    options = {**settings_for(broker)["options"], "delivery.guarantee": "at-least-once"}
    del options["pipeline"]
    writer = open_writer(options, value_schema(), overwrite=False, planning=False)
    handover = ho.Handover("query-1", 0, None, 0.0)
    messages = [SlotMessage(Seal("p:0", 0, None, 0), handover=handover), None]

    with pytest.raises(IllegalMove) as refusal:
        writer.commit(messages, 0)

    assert (refusal.value.facts["slots"], refusal.value.facts["sealed"]) == (2, 1)
    writer.commit(messages[:1], 0)


def value_schema() -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("value", StringType())])
