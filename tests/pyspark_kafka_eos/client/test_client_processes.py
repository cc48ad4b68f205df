"""The client across processes: a transaction handed over, a fork, and brokers that cannot be used."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from embedded_kafka import apis
from embedded_kafka.context import Context
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.parts import Parts
from embedded_kafka.real import LocalKafka
from embedded_kafka.wire.server import (
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    Message,
    MetadataRequest,
)
from kafka_core.errors import UnsupportedVersion
from pyspark_kafka_eos.client.cluster import Cluster
from tests.pyspark_kafka_eos.client.client_tools import Broker, CuttingProxy, sealed, settings_for, state

pytestmark = pytest.mark.kafka


class Noting:
    """An API of the embedded broker that notes that it was asked."""

    def __init__(self, handler: apis.Handler, asked: list[int]) -> None:
        self.API_KEY, self.VERSIONS = handler.API_KEY, handler.VERSIONS
        self._handler, self._asked = handler, asked

    async def handle(self, parts: Parts, request: Message, context: Context) -> Message | None:
        self._asked.append(self.API_KEY)
        return await self._handler.handle(parts, request, context)


OPENING = "import json, os, sys, warnings; warnings.simplefilter('ignore'); arguments = sys.argv[1:]\n"


def python(script: str, *arguments: str) -> str:
    """What another Python process prints."""
    command = [sys.executable, "-c", OPENING + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


END_ELSEWHERE = """
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.model import ClientSettings
servers, seals = arguments
cluster = Cluster(ClientSettings((servers,)))
for name, producer_id, epoch, version, commit in json.loads(seals):
    identity = ProducerIdentity(producer_id, epoch)
    assert Transactions(cluster).end(EndRequest(name, identity, commit, version)).definite
cluster.close()
"""


def test_a_process_that_only_knows_the_identity_ends_the_transaction(broker: Broker) -> None:
    """Design section 1: the ground of the product: transactional id, producer id and epoch are all it takes."""
    kept, dropped = broker.topic(), broker.topic()
    requests = []
    for topic, commit in ((kept, True), (dropped, False)):
        seal = sealed(broker, topic)
        assert seal.identity is not None
        identity = seal.identity
        requests.append((seal.transactional_id, identity.producer_id, identity.epoch, seal.transaction_version, commit))
    python(END_ELSEWHERE, broker.bootstrap_servers, json.dumps(requests))
    assert broker.read(kept) == [b"a", b"b"]
    assert broker.read(dropped) == []


FORK = """
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
servers, name = arguments
settings = ClientSettings((servers,))
def ask(cluster):
    return Transactions(cluster).describe([name])[name].state
parent = Cluster.shared(settings)
before = ask(parent)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        mine = Cluster.shared(settings)
        said = {"own": mine is not parent, "again": Cluster.shared(settings) is mine, "state": ask(mine)}
        os.write(writer, json.dumps(said).encode())
    finally:
        os._exit(0)
os.waitpid(child, 0)
said = json.loads(os.read(reader, 10_000))
print(json.dumps({"child": said, "before": before, "after": ask(parent), "same": Cluster.shared(settings) is parent}))
parent.close()
"""


def test_a_forked_child_opens_connections_of_its_own_and_leaves_the_parents_alone(
    broker: Broker, proxy: CuttingProxy
) -> None:
    """Spark forks its Python workers; two processes on one socket would read each other's answers."""
    seal = sealed(broker, broker.topic())
    said = json.loads(python(FORK, proxy.address, seal.transactional_id))
    assert said == {
        "child": {"own": True, "again": True, "state": "Ongoing"},
        "before": "Ongoing",
        "after": "Ongoing",
        "same": True,
    }
    # Bootstrap and coordinator at least, for each of the two; no two came from the same port.
    assert len(set(proxy.clients)) == len(proxy.clients) >= 4
    assert state(broker, seal.transactional_id)[0] == "Ongoing"


NO_BROKER = """
from pyspark_kafka_eos.client.cluster import Cluster
from kafka_core.errors import BrokerUnavailable
from pyspark_kafka_eos.model import ClientSettings
try:
    Cluster(ClientSettings(("127.0.0.1:1",)), timeout_ms=300)
except BrokerUnavailable as error:
    print(json.dumps(error.facts))
"""


def test_no_broker_is_said_within_the_time_allowed() -> None:
    """The user's error, before anything is written: which servers were tried."""
    assert json.loads(python(NO_BROKER)) == {"bootstrap_servers": "127.0.0.1:1"}


def test_a_settings_value_is_one_cluster_per_process(broker: Broker) -> None:
    """Spark reuses Python workers between batches: connections are kept, by configuration."""
    first = Cluster.shared(broker.cluster.settings)
    try:
        assert Cluster.shared(broker.cluster.settings) is first
        assert first is not broker.cluster
    finally:
        first.close()
    again = Cluster.shared(broker.cluster.settings)
    try:
        assert again is not first
    finally:
        again.close()


def test_all_shared_clusters_close_together_and_the_next_use_connects_anew(broker: Broker) -> None:
    settings = [broker.cluster.settings, settings_for(broker.bootstrap_servers, client_id="another")]
    before = set(threading.enumerate())
    first = [Cluster.shared(each) for each in settings]
    assert len(set(threading.enumerate()) - before) == 2

    Cluster.close_shared()

    assert not set(threading.enumerate()) - before
    again = [Cluster.shared(each) for each in settings]
    assert not set(map(id, again)) & set(map(id, first))
    Cluster.close_shared()


@pytest.mark.embedded
def test_a_broker_that_cannot_describe_transactions_is_refused_and_is_asked_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule: seed 001 (compatibility): brokers before Kafka 3.0 are refused. This one has what such a broker has."""
    asked: list[int] = []
    for key, handler in list(apis.HANDLERS.items()):
        monkeypatch.setitem(apis.HANDLERS, key, Noting(handler, asked))
    monkeypatch.delitem(apis.HANDLERS, DescribeTransactionsRequest.API_KEY)
    with (
        EmbeddedKafka(in_process=True) as old,
        pytest.raises(UnsupportedVersion, match=r"older than Kafka 3\.0.* nothing was written") as refusal,
    ):
        Cluster(settings_for(old.bootstrap_servers))
    assert refusal.value.facts == {"bootstrap_servers": old.bootstrap_servers}
    assert set(asked) <= {ApiVersionsRequest.API_KEY, MetadataRequest.API_KEY}


@pytest.mark.real
@pytest.mark.slow
def test_a_broker_older_than_3_0_is_refused_before_anything_is_written() -> None:
    """Kafka 2.8 cannot describe transactions (KIP-664), so no outcome could be proven."""
    with (
        LocalKafka("2.8.2", fast_start=True) as old,
        pytest.raises(UnsupportedVersion, match=r"older than Kafka 3\.0") as refusal,
    ):
        Cluster(settings_for(old.bootstrap_servers))
    assert refusal.value.facts == {"bootstrap_servers": old.bootstrap_servers}
