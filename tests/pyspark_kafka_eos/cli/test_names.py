"""A name that nobody knows: refused by every command that would act on it or show it, with the nearest one that is
known.
"""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.cli.cli_tools import call, committed, killed, name_of, states
from tests.pyspark_kafka_eos.cli.processes import all_of, in_process
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

CHANGES = ("commit", "abort", "fence")


def ids(broker: AnyKafka) -> set[str]:
    """Every transactional id that the coordinators know."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        return set(admin.list_transactions(cluster))
    finally:
        cluster.close()


def test_a_mistyped_pipeline_is_refused_with_the_nearest_one_and_nothing_is_written(
    kafka: AnyKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    name = name_of(killed(kafka, "before-decision"))
    mistyped = f"{name}x"
    before = ids(kafka)

    found = all_of(kafka, [["transactions", each, mistyped, "--json", "--yes"] for each in ("abort", "fence")])
    for words in (
        ["transactions", "commit", "--yes"],
        ["transactions", "list"],
        ["transactions", "explain"],
        ["ledger"],
        ["verify"],
    ):
        found.append(in_process(capsys, kafka, *words, mistyped, "--json"))

    for each in found:
        error = each.document["error"]
        assert (each.code, error["class"]) == (1, "UnknownPipeline")
        assert repr(mistyped) in error["message"]
        assert f"did you mean {name}?" in error["message"]
    assert ids(kafka) == before


def test_a_pipeline_that_only_the_ledger_or_only_a_coordinator_knows_is_known(kafka: AnyKafka) -> None:
    undecided = killed(kafka, "before-decision")
    assert call(kafka, "ledger", name_of(undecided)).document["pipelines"] == []
    assert call(kafka, "verify", name_of(undecided)).code == 3


@pytest.mark.parametrize("command", CHANGES)
def test_a_mistyped_id_is_refused_before_anybody_is_fenced(kafka: AnyKafka, command: str) -> None:
    settings = killed(kafka, "before-decision")
    name = name_of(settings)
    before = states(kafka, settings)

    answer = call(kafka, "transactions", command, name, "--yes", "--id", f"{name}:77")

    assert (answer.code, answer.document["error"]["class"]) == (1, "UnknownPipeline")
    assert f"{name}:77" in answer.document["error"]["message"]
    assert states(kafka, settings) == before


def test_a_new_name_is_fine_for_the_doctor(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    committed(kafka)

    answer = call(kafka, "doctor", "nobody-has-this-one", "-o", f"topic={settings['options']['topic']}")

    assert answer.code == 0
