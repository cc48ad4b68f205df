"""Decisions of earlier versions, kept as bytes: they are read, finished and continued.

The ledger's records are those that the earlier version wrote; a broker gives other ids of producers and topics each time, so these
alone are put into the record's text, and the slots' transactions are made anew.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import LedgerUnreadable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.dataframe_write import BATCH_WRITES
from pyspark_kafka_eos.commit.decision import write_decision
from pyspark_kafka_eos.commit.ledger.notes import NOTE_VERSION, Began
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.whole_batch.merging import merge
from pyspark_kafka_eos.model import Decision, Seal, batch_transactional_id
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import decode, scan
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import batch_child
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run
from tests.pyspark_kafka_eos.commit.golden.make import settings_for
from tests.pyspark_kafka_eos.commit.judge import committed_offsets
from tests.pyspark_kafka_eos.commit.test_dataframe_write import write as write_batch

pytestmark = pytest.mark.kafka

FILES = sorted((Path(__file__).parent / "golden").glob("*.json"))
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Golden:
    """What one version wrote on one transaction version."""

    version: str
    made: dict[str, Any]

    def newest(self, name: str) -> bytes:
        """The value of the newest decision of a history."""
        return str(self.made[name][-1]["value"]).encode()


def _file(path: Path) -> Any:
    # Version 1 takes as long again, so it is left to `make chaos`; both on the embedded broker.
    mark = pytest.mark.chaos if path.stem.endswith("-1") else pytest.mark.embedded
    return pytest.param(path, marks=mark, id=path.stem)


@pytest.fixture(params=[_file(path) for path in FILES])
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param.stem[-1], json.loads(request.param.read_text()))


@pytest.fixture
def broker(golden: Golden) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": golden.version}) as kafka:
        yield kafka


class AsItWas(Decision):
    """A decision whose bytes are given."""

    value = b""

    def to_bytes(self) -> bytes:
        return self.value


class Upgrade:
    """A pipeline of an earlier version at the moment when the new version starts it again."""

    def __init__(self, broker: EmbeddedKafka, golden: Golden, name: str) -> None:
        self.broker = broker
        self.settings = settings_for(broker, name)
        self.settings["rows"] = golden.made["rows"]
        self.options = SinkOptions.parse(self.settings["options"])
        self.cluster = Cluster.shared(self.options.client)
        self.ledger = Ledger(self.cluster, self.options.ledger_topic, self.options.pipeline)
        self.written: dict[str, Seal] = {}
        self.value = golden.newest(name)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(self.topic, num_partitions=2), NewTopic("golden-source", num_partitions=1)]
        for answer in admin.create_topics(topics).values():
            answer.result(30)

    @property
    def topic(self) -> str:
        return str(self.options.topic)

    @property
    def rows(self) -> Counter[str]:
        return Counter(value for values in self.settings["rows"] for value in values)

    def decide(self, *, commit: bool = True) -> None:
        """Write the slots and put the earlier version's decision into the ledger, as that version did."""
        self.ledger.prepare()
        self.ledger.note(Began("query-1", 0))
        plan = WritePlan.of(self.options, 0, None, transaction_timeout_ms=TIMEOUT_MS)
        seals = [
            write_slot(plan, slot, arrow_batches(rows)) for slot, rows in enumerate(self.settings["rows"])
        ]
        producer = Producer(self.cluster, f"{self.options.pipeline}.driver", transaction_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=TIMEOUT_MS)  # fmt: skip
        producer.initialize()
        self._decide(producer, seals, commit=commit)

    def decide_in_one_transaction(self) -> None:
        """The same with scope=batch."""
        driver = batch_child.driver_of(self.settings)
        driver.start(0)
        plan = driver.plan(0)
        assert isinstance(plan, SharedPlan)
        seals = batch_child.write_all(plan, self.settings)
        seal = merge(
            seals,
            transactional_id=batch_transactional_id(self.options.pipeline),
            identity=plan.identity,
            transaction_version=plan.transaction_version,
            two_phase=False,
        )
        producer = Producer(
            self.cluster,
            seal.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            delivery_timeout_ms=TIMEOUT_MS,
            transaction_version=seal.transaction_version,
        )
        producer.join(plan.identity)
        self._decide(producer, [seal], commit=True)

    def _decide(self, producer: Producer, seals: list[Seal], *, commit: bool) -> None:
        body = json.loads(self.value)
        for told, seal in zip(body["seals"], seals, strict=True):
            mine = seal.to_json()
            # What is written again is what the earlier version wrote: the digest and its shares have not changed.
            assert [mine[name] for name in ("records", "digest", "transaction_version")] == [
                told[name] for name in ("records", "digest", "transaction_version")
            ]
            told["producer"], told["partitions"] = mine["producer"], mine["partitions"]
            self.written[seal.transactional_id] = seal
        # As producer ids, topic ids are another cluster's each time.
        body["topics"] = [each.to_json() for each in sorted({each for seal in seals for each in seal.topics})]
        decision = AsItWas(**vars(Decision.from_bytes(json.dumps(body).encode())))
        object.__setattr__(decision, "value", json.dumps(body, separators=(",", ":")).encode())
        offsets = {TopicPartition(topic, number): at for topic, number, at in self.settings["offsets"]}
        group = {} if decision.query_id == BATCH_WRITES else offsets
        write_decision(producer, self.ledger, decision, self.options.offsets_group, group)
        if commit:
            producer.commit()

    def end(self) -> None:
        """Commit every slot."""
        requests = [
            EndRequest(name, seal.identity, True, seal.transaction_version)
            for name, seal in self.written.items()
            if seal.identity is not None
        ]
        assert all(answer.definite for answer in Transactions(self.cluster).end_many(requests))

    def read(self, isolation: str = "read_committed") -> Counter[str]:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Where

        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "judge", "isolation.level": isolation, "enable.partition.eof": True})  # fmt: skip
        try:
            consumer.assign([Where(self.topic, number, 0) for number in range(2)])
            found, ended = Counter[str](), 0
            while ended < 2:
                for message in consumer.consume(500, timeout=0.2):
                    if message.error():
                        ended += 1
                    else:
                        found[message.value().decode()] += 1
            return found
        finally:
            consumer.close()


def following(upgrade: Upgrade, batch: int = 1) -> dict[str, Any]:
    return {**upgrade.settings, "batch": batch, "rows": [["of the newer version"], ["and one more"]]}


NEXT = Counter(["of the newer version", "and one more"])


# ---- reading alone


@pytest.mark.parametrize("name", ["task", "repaired", "batch", "write"])
def test_a_decision_of_an_earlier_version_says_the_same_to_this_one(golden: Golden, name: str) -> None:
    for record in golden.made[name]:
        told = json.loads(record["value"])

        again = json.loads(Decision.from_bytes(record["value"].encode()).to_bytes())

        assert again == told
        ((info, data),) = scan(base64.b64decode(record["batch"]))
        assert info.transactional
        assert decode((info, data)).value.to_pylist() == [record["value"].encode()]


# ---- how it is continued


@pytest.mark.parametrize(("name", "scope"), [("task", "task"), ("repaired", "task"), ("task", "batch")])
def test_a_pipeline_goes_on_behind_an_earlier_versions_batch(
    broker: EmbeddedKafka, golden: Golden, name: str, scope: str
) -> None:
    upgrade = Upgrade(broker, golden, name)
    upgrade.decide()
    upgrade.end()

    settings = following(upgrade)
    report = batch_child.run_batch(settings) if scope == "batch" else run(settings)

    assert (report["batch"], report["resumed"], report["records"]) == (1, False, 2)
    assert upgrade.read() == upgrade.rows + NEXT
    assert run(following(upgrade, 2))["resumed"] is False


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_pipeline_goes_on_behind_an_earlier_versions_batch_in_one_transaction(
    broker: EmbeddedKafka, golden: Golden, scope: str
) -> None:
    upgrade = Upgrade(broker, golden, "batch")
    upgrade.decide_in_one_transaction()
    by_scope = batch_child.run_batch if scope == "batch" else run
    assert by_scope(upgrade.settings)["resumed"] is True

    report = by_scope(following(upgrade))

    assert (report["batch"], report["resumed"], report["records"]) == (1, False, 2)
    assert upgrade.read() == upgrade.rows + NEXT
    assert committed_offsets(broker, upgrade.settings) == upgrade.settings["offsets"]


@pytest.mark.parametrize(("name", "scope"), [("task", "task"), ("repaired", "task"), ("task", "batch")])
def test_an_upgrade_in_the_middle_of_a_decided_batch_ends_it(
    broker: EmbeddedKafka, golden: Golden, name: str, scope: str
) -> None:
    upgrade = Upgrade(broker, golden, name)
    upgrade.decide()
    assert upgrade.read() == Counter()
    by_scope = batch_child.run_batch if scope == "batch" else run

    report = by_scope(upgrade.settings)

    assert (report["resumed"], report["records"]) == (True, 80)
    assert upgrade.read() == upgrade.read("read_uncommitted") == upgrade.rows
    assert committed_offsets(broker, upgrade.settings) == upgrade.settings["offsets"]
    assert by_scope(following(upgrade))["resumed"] is False
    assert upgrade.read() == upgrade.rows + NEXT


def test_an_upgrade_in_the_middle_of_a_decided_batch_writes_again_what_the_broker_aborted(
    broker: EmbeddedKafka, golden: Golden
) -> None:
    upgrade = Upgrade(broker, golden, "task")
    upgrade.decide()
    Transactions(upgrade.cluster).init_producer_id("golden-task.2", TIMEOUT_MS)

    report = run(upgrade.settings)

    assert (report["resumed"], report["repaired"], report["records"]) == (True, 1, 80)
    assert upgrade.read() == upgrade.rows
    assert run(following(upgrade))["resumed"] is False


def test_an_upgrade_before_the_decision_is_made_writes_the_batch_anew(
    broker: EmbeddedKafka, golden: Golden
) -> None:
    upgrade = Upgrade(broker, golden, "task")
    upgrade.decide(commit=False)

    report = run(upgrade.settings)

    assert (report["resumed"], report["records"]) == (False, 80)
    assert upgrade.read() == upgrade.rows


@pytest.mark.parametrize("ended", [True, False])
def test_an_earlier_versions_write_of_a_data_frame_is_known(
    broker: EmbeddedKafka, golden: Golden, ended: bool
) -> None:
    upgrade = Upgrade(broker, golden, "write")
    upgrade.decide()
    if ended:
        upgrade.end()

    again = write_batch({**upgrade.settings["options"], "batch.id": 0}, upgrade.settings["rows"])
    following_one = write_batch(upgrade.settings["options"], [["of the newer version"], ["and one more"]])

    assert (again, following_one) == ({}, {"records": 2, "repaired": 0})
    assert upgrade.read() == upgrade.rows + NEXT


# ---- notes of a newer version


@pytest.mark.parametrize("kind", ["ended", "mending/any.0", "settled"])
def test_a_note_of_a_newer_version_is_refused_and_nothing_changes(
    broker: EmbeddedKafka, golden: Golden, kind: str
) -> None:
    upgrade = Upgrade(broker, golden, "task")
    upgrade.decide()
    note = {"version": NOTE_VERSION + 1, "note": kind.partition("/")[0], "of": "tomorrow"}
    put_under(upgrade, f"{upgrade.options.pipeline}/{kind}", json.dumps(note).encode())
    before = Transactions(upgrade.cluster).describe(sorted(upgrade.written))

    with pytest.raises(LedgerUnreadable, match="newer version"):
        run(upgrade.settings)
    with pytest.raises(LedgerUnreadable, match="newer version"):
        batch_child.run_batch(following(upgrade))

    assert Transactions(upgrade.cluster).describe(sorted(upgrade.written)) == before
    assert upgrade.read("read_uncommitted") == upgrade.rows
    assert upgrade.read() == Counter()


def put_under(upgrade: Upgrade, key: str, value: bytes) -> None:
    """Append to the pipeline's partition of the ledger."""
    where = upgrade.ledger.partition
    producer = Client({"bootstrap.servers": upgrade.broker.bootstrap_servers})
    producer.produce(where.topic, key=key, value=value, partition=where.partition)
    assert producer.flush(30) == 0
