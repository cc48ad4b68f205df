"""Which class of transactions a run takes, and which cluster it refuses."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from connector.client.cluster import Cluster
from connector.commit import handover
from connector.commit.drivers import driver_for
from connector.errors import UnsupportedVersion
from connector.options import SinkOptions
from connector.protocol import messages as m
from spark_jobs.proof import Look
from tests.brokers import AnyKafka
from tests.conftest import MakeTopic

pytestmark = pytest.mark.kafka


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
        del cluster._versions[lacking.API_KEY]  # type: ignore[attr-defined]

        with pytest.raises(
            UnsupportedVersion, match=f"does not offer {m.api_name(lacking.API_KEY)}, so"
        ) as found:  # type: ignore[attr-defined]
            driver_for(cluster, options, "query")
        with pytest.raises(UnsupportedVersion):
            handover.begin(cluster, options, "query", 0, ("-",))
    finally:
        cluster.close()

    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)
    with closing(Look(kafka.bootstrap_servers)) as look:
        assert sum(look.end_offsets(name).values()) == 0
