"""A pipeline at rest: the clock is moved until its ids have expired and the records of its topics are gone.

Owns: moving the broker's clock and its topics' retention, and the proof that both have worked.
Does not know: what a pipeline does afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.commit.judge import read_all

DAY_MS = 24 * 60 * 60 * 1000


def rest(broker: EmbeddedKafka, topics: Sequence[str], pipeline: str, days: int = 30) -> None:
    """Until nobody but the ledger knows anything of the pipeline. The topics are made with segment.ms=1000."""
    for topic in topics:
        keep(broker, topic, str(DAY_MS))
    for _ in range(3):
        # A segment is closed, then its records are old, then they go.
        broker.advance(days * DAY_MS // 3)
    for topic in topics:
        assert not read_all(broker, topic, "read_uncommitted")
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        ids = [f"{pipeline}:{name}" for name in ("driver", "batch", 0, 1, 2)]
        assert {view.state for view in Transactions(cluster).describe(ids).values()} == {"NotFound"}
    finally:
        cluster.close()
    for topic in topics:
        # What is written now has this machine's time, which is long past for the broker.
        keep(broker, topic, "-1")


def keep(broker: EmbeddedKafka, topic: str, retention_ms: str) -> None:
    """Change a topic's retention."""
    entry = ConfigEntry("retention.ms", retention_ms, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.incremental_alter_configs([changed]).values():
        done.result(30)
