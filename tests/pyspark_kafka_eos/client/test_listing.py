"""The transactional ids of one pipeline, among those of other applications: the brokers search where they can
(KIP-1152).
"""

from __future__ import annotations

import re

import pytest

from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.transactions import Transactions
from tests.pyspark_kafka_eos.client.client_tools import Broker

pytestmark = pytest.mark.kafka

OURS = ["p+q:0", "p+q:11", "p+q:batch"]
OTHERS = ["p+q:driver", "p+q.0.1", "ppq:0", "p+q.batches", "x.p+q:0", "P+Q:0"]


def test_only_a_pipelines_own_ids_come_back(broker: Broker) -> None:
    cluster = broker.cluster
    for name in [*OURS, *OTHERS]:
        Transactions(cluster).init_producer_id(name, 60_000)
    pattern = re.escape("p+q") + r":([0-9]+|batch)"

    assert set(admin.list_transactions(cluster, pattern=pattern)) == set(OURS)
    assert set(admin.list_transactions(cluster, ["Ongoing"], pattern)) == set()
    assert {*OURS, *OTHERS} <= set(admin.list_transactions(cluster))


def test_a_broker_that_can_search_sends_no_other_id(broker: Broker) -> None:
    cluster = broker.cluster
    for name in [*OURS, *OTHERS]:
        Transactions(cluster).init_producer_id(name, 60_000)
    request = cluster.build(
        m.ListTransactionsRequest,
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=re.escape("p+q") + r":([0-9]+|batch)",
    )

    answer = cluster.call_any(request)

    names = {each.transactional_id for each in answer.transaction_states}
    if cluster.offers(m.ListTransactionsRequest, 2):
        assert names == set(OURS)
    else:
        # The embedded broker, and Kafka before 4.1: the client chooses by itself.
        assert names >= {*OURS, *OTHERS}
