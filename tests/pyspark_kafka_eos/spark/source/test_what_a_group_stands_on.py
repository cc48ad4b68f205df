"""Where a query begins by name (`startingOffsets=group`, offsets pasted from a checkpoint): in the log that these
offsets are of.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DataLoss, OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.group_offsets import commit_group_offsets
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.model import GroupOffset
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from pyspark_kafka_eos.spark.source.source_group import group_offsets
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another id is believed at once: these topics are other ones for good."""
    monkeypatch.setattr(absence, "NEW_TOPIC_MS", 100)


@dataclass
class Query:
    """A query that has read what its topic had: a record batch for each record, as an election takes whole ones."""

    kafka: EmbeddedKafka
    name: str
    records: int = 6

    def __post_init__(self) -> None:
        for _ in range(self.records):
            write(self.kafka, self.name, 1)
        reader = KafkaStreamReader(options_of(self.kafka, "stream", subscribe=self.name, startingOffsets="earliest"))
        self.end = reader.latestOffset(reader.initialOffset(), None)

    @property
    def cluster(self) -> Cluster:
        """Of this process."""
        return Cluster.shared(options_of(self.kafka, "stream", subscribe=self.name).client, 60_000)

    def offsets(self, group: str) -> dict[TopicPartition, GroupOffset]:
        """What a sink commits to the group with the batch that ends here."""
        sink = SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
                "pipeline": "p",
                "topic": "out",
                "offsets.group": group,
            }
        )
        return group_offsets(self.cluster, sink, [json.dumps(self.end)])

    def commit(self, group: str) -> None:
        """As the sink does."""
        offsets = self.offsets(group)
        assert offsets
        commit_group_offsets(self.cluster, group, offsets)

    def begin(self, **more: object) -> int:
        """Where another query begins by the given options."""
        options = options_of(self.kafka, "stream", subscribe=self.name, **more)
        return SourceView(options).beginning()[TopicPartition(self.name, 0)]

    def lose(self, first: int, then: int) -> None:
        """An election takes the records from an offset on, and so many others come."""
        self.kafka.elect_leader(self.name, 0, lost_from=first)
        for _ in range(then):
            write(self.kafka, self.name, 1)

    def make_anew(self, records: int) -> None:
        """Another topic of the name."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        admin.delete_topics([self.name])[self.name].result(30)
        admin.create_topics([NewTopic(self.name, 1)])[self.name].result(30)
        write(self.kafka, self.name, records)


By = Callable[[Query], dict[str, object]]


def by_its_group(query: Query) -> dict[str, object]:
    """The options that begin where the query's sink has committed."""
    query.commit(query.name)
    return {"startingOffsets": "group", "kafka.group.id": query.name}


def by_pasted_offsets(query: Query) -> dict[str, object]:
    """The options that begin where its checkpoint is."""
    return {"startingOffsets": json.dumps(query.end)}


def by_another_clients_group(query: Query) -> dict[str, object]:
    """The same of a consumer that commits no topic's id, but the epoch, as librdkafka and Java's do."""
    consumer = Consumer({"bootstrap.servers": query.kafka.bootstrap_servers, "group.id": query.name, "enable.auto.commit": False,
        "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([Place(query.name, 0, 0)])
    messages = consumer.consume(query.records, timeout=30)
    assert len(messages) == query.records
    consumer.commit(message=messages[-1], asynchronous=False)
    consumer.close()
    return {"startingOffsets": "group", "kafka.group.id": query.name}


WAYS = pytest.mark.parametrize("by", [by_its_group, by_pasted_offsets, by_another_clients_group])


@WAYS
@pytest.mark.parametrize("then", [1, 9], ids=["the log is shorter now", "the log is longer now"])
def test_records_that_took_the_place_of_lost_ones_are_not_skipped(
    kafka: EmbeddedKafka, topic: MakeTopic, by: By, then: int
) -> None:
    query = Query(kafka, topic(1))
    options = by(query)
    query.lose(2, then)

    with pytest.raises(DataLoss, match=f"{query.name}-0: .*from offset 2 on.* an unclean election removed them"):
        query.begin(**options)
    assert query.begin(**options, failOnDataLoss="false") == 2


@WAYS
def test_an_election_that_loses_nothing_is_no_reason_to_begin_elsewhere(
    kafka: EmbeddedKafka, topic: MakeTopic, by: By
) -> None:
    query = Query(kafka, topic(1))
    options = by(query)
    kafka.elect_leader(query.name, 0)
    write(kafka, query.name, 3)

    assert query.begin(**options) == 6


def test_a_groups_offset_of_a_topic_of_before_is_not_taken_for_the_new_one(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    """A group's offsets go with their topic, but not at once, and an idle consumer of the old one may commit after
    it.
    """
    query = Query(kafka, topic(1))
    offsets = query.offsets(query.name)
    query.make_anew(9)
    commit_group_offsets(query.cluster, query.name, offsets)
    group = {"startingOffsets": "group", "kafka.group.id": query.name}

    with pytest.raises(
        DataLoss,
        match=f"the group {query.name}: the topic was recreated: .*offset 6 is of the topic with the id",
    ):
        query.begin(**group)
    assert query.begin(**group, failOnDataLoss="false") == 0


def test_another_clients_offset_of_an_epoch_that_no_leader_has_had_is_of_a_topic_of_before(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    query = Query(kafka, topic(1))
    commit_group_offsets(query.cluster, query.name, {TopicPartition(query.name, 0): GroupOffset(3, leader_epoch=4)})
    group = {"startingOffsets": "group", "kafka.group.id": query.name}

    with pytest.raises(
        DataLoss,
        match="offset 3 was committed under leader epoch 4, and the newest leader has epoch 0: the topic was recreated",
    ):
        query.begin(**group)
    assert query.begin(**group, failOnDataLoss="false") == 0


def test_a_mirrored_groups_offset_is_taken_without_what_it_stood_on_elsewhere(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    """MirrorMaker translates the offset and copies the metadata."""
    query = Query(kafka, topic(1))
    mirrored = GroupOffset(3, -1, topic_id="of-another-topic", cluster_id="another-cluster")
    commit_group_offsets(query.cluster, query.name, {TopicPartition(query.name, 0): mirrored})

    assert query.begin(**{"startingOffsets": "group", "kafka.group.id": query.name}) == 3


def test_the_sinks_offsets_name_their_cluster_topic_and_epoch(kafka: EmbeddedKafka, topic: MakeTopic) -> None:
    query = Query(kafka, topic(1))
    query.kafka.elect_leader(query.name, 0)
    write(kafka, query.name, 1)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=query.name, startingOffsets="earliest"))
    query.end = reader.latestOffset(reader.initialOffset(), None)
    query.commit(query.name)

    [found] = Offsets(query.cluster).committed(query.name).values()

    topic_id = query.cluster.topic(query.name, refresh=True).topic_id
    assert found == GroupOffset(7, 1, topic_id, query.cluster.cluster_id())
    assert topic_id and found.cluster_id


@dataclass(frozen=True)
class Said(GroupOffset):
    """An offset with any text as its metadata."""

    text: str = ""

    def metadata(self) -> str:
        return self.text


def test_metadata_of_another_version_get_one_sentence_that_names_both(kafka: EmbeddedKafka, topic: MakeTopic) -> None:
    query = Query(kafka, topic(1))
    said = Said(3, text='{"kafka_eos":2,"topic":"x"}')
    commit_group_offsets(query.cluster, query.name, {TopicPartition(query.name, 0): said})

    with pytest.raises(OptionsError, match=r"metadata in format 2, .* this one reads format 1\. Nothing was read"):
        query.begin(**{"startingOffsets": "group", "kafka.group.id": query.name})


@pytest.mark.parametrize(
    "text",
    [
        "", "where I was", "[1]", '{"at":3}', '{"kafka_eos":1}', '{"kafka_eos":1,"cluster":1,"topic_id":""}', "[" * 3000,
    ],
)  # fmt: skip
def test_other_metadata_are_no_claim_of_ours(kafka: EmbeddedKafka, topic: MakeTopic, text: str) -> None:
    query = Query(kafka, topic(1))
    commit_group_offsets(query.cluster, query.name, {TopicPartition(query.name, 0): Said(3, text=text)})

    assert query.begin(**{"startingOffsets": "group", "kafka.group.id": query.name}) == 3
