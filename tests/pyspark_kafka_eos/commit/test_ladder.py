"""Which class of transactions a run takes, and which cluster it refuses."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from kafka_core.errors import UnsupportedVersion
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.wire.versions import Versions
from pyspark_kafka_eos.commit import handover
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.operations.checks import examine
from pyspark_kafka_eos.options import SinkOptions
from spark_jobs.proof import Look
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def take_away(cluster: Cluster, lacking: type) -> None:
    """As if one of the brokers had no such API."""
    known = cluster.network.known_versions()
    without = {key: each for key, each in known[0].apis.items() if key != lacking.API_KEY}  # type: ignore[attr-defined]
    cluster.network.known_versions = lambda: [*known, Versions(without)]  # type: ignore[method-assign]


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize(
    "lacking", [m.DescribeProducersRequest, m.ListTransactionsRequest], ids=lambda each: each.__name__
)
def test_a_cluster_without_a_request_of_the_proof_is_refused_before_anything_is_written(
    kafka: AnyKafka, topic: MakeTopic, scope: str, lacking: type
) -> None:
    """Kafka has them since 3.0; another implementation's list of versions lacks them (docs/brokers.md)."""
    name = topic()
    options = SinkOptions.parse({
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": name, "transaction.scope": scope,
    })  # fmt: skip
    cluster = Cluster(options.client)
    try:
        take_away(cluster, lacking)

        with pytest.raises(UnsupportedVersion, match=f"does not offer {m.api_name(lacking.API_KEY)}, so") as found:  # type: ignore[attr-defined]
            driver_for(cluster, options, "query")
        with pytest.raises(UnsupportedVersion):
            handover.begin(cluster, options, "query", 0, ("-",))
    finally:
        cluster.close()

    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)
    with closing(Look(kafka.bootstrap_servers)) as look:
        assert sum(look.end_offsets(name).values()) == 0


@pytest.mark.parametrize("readable", [True, False], ids=["settings are shown", "settings are not shown"])
@pytest.mark.parametrize(
    "lacking", [m.DescribeProducersRequest, m.ListTransactionsRequest], ids=lambda each: each.__name__
)
def test_the_doctor_names_the_request_that_is_missing(
    kafka: AnyKafka, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, lacking: type, readable: bool
) -> None:
    """Before the first batch, with the error that this would raise, also where nobody may read the brokers'
    settings.
    """
    name = topic()
    options = SinkOptions.parse({
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": name, "kafka.client.id": name,
    })  # fmt: skip
    shared = Cluster.shared(options.client)
    monkeypatch.setattr(shared.network, "known_versions", shared.network.known_versions)
    take_away(shared, lacking)
    if not readable:
        monkeypatch.setattr(admin, "broker_settings", lambda *_: None)

    found = [check for check in examine(options) if check.status == "fail"]

    of_versions = [check for check in found if check.name == "versions"]
    assert [type(check.error) for check in of_versions] == [UnsupportedVersion]
    assert f"does not offer {m.api_name(lacking.API_KEY)}, so" in of_versions[0].seen  # type: ignore[attr-defined]
    assert [check for check in found if check.name == "timeouts"] == []
