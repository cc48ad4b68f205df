"""The rung, the class of transactions of all slots: the highest that the brokers, the ACLs and the options allow.

Owns: the choice of the class, and the transactions' timeout.
Does not know: how a transaction is opened.
Invariants:
- A missing right selects the lower rung, which every broker has.
- A cluster that lacks a request of the proof is refused before anything is written.
Sources: KIP-664 (requests of the proof), KIP-939 (transactions without a timeout), transaction.max.timeout.ms.
"""

from __future__ import annotations

from kafka_core.errors import OptionsError, UnsupportedVersion
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.options import LONGEST_TRANSACTION_MS, SinkOptions

_NEEDED = (m.DescribeProducersRequest, m.ListTransactionsRequest)
"""What a run asks before it decides, and to prove an outcome, beside DescribeTransactions, without which `Cluster` is
refused. Kafka has them since 3.0; other implementations may lack some.
"""


def transaction_class(cluster: Cluster, options: SinkOptions) -> tuple[int, bool]:
    """(timeout in ms of the slots' transactions, whether they have no timeout at all): the highest possible rung.

    UnsupportedVersion as `require_proof`.
    """
    require_proof(cluster)
    names = ["transaction.max.timeout.ms", "transaction.two.phase.commit.enable"]
    found = admin.broker_settings(cluster, names) or {}
    # A right that is missing (the settings may not be read) leaves the lower rung, which every broker has.
    allowed = found.get("transaction.two.phase.commit.enable") == "true"
    two_phase = allowed and options.two_phase_commit and cluster.speaks_two_phase
    return _timeout_ms(options, found.get("transaction.max.timeout.ms")), two_phase


def require_proof(cluster: Cluster) -> None:
    """UnsupportedVersion where the cluster lacks a request without which a run cannot be sure of an outcome. Asks no
    broker.
    """
    missing = [m.api_name(each.API_KEY) for each in _NEEDED if not cluster.offers(each, 0)]
    if missing:
        raise UnsupportedVersion(
            f"the cluster does not offer {' and '.join(missing)}, so a run could not see what became of its transactions; nothing "
            "was written; use Apache Kafka 3.0 or newer, or delivery.guarantee=at-least-once (docs/brokers.md)",
            {"bootstrap_servers": ",".join(cluster.settings.bootstrap_servers)},
        )


def _timeout_ms(options: SinkOptions, cap: str | None) -> int:
    asked = options.transaction_timeout_ms
    if cap is None:
        # The right to read the setting is missing. Brokers have Kafka's default cap unless it was changed; a broker
        # with a lower one answers InitProducerId with INVALID_TRANSACTION_TIMEOUT, before anything is written.
        return asked if asked is not None else LONGEST_TRANSACTION_MS
    if asked is not None and asked > int(cap):
        raise OptionsError(
            f"kafka.transaction.timeout.ms={asked} is above the broker's transaction.max.timeout.ms={cap}; nothing "
            "was written; lower the one or raise the other",
            {"asked_ms": asked, "cap_ms": int(cap)},
        )
    return asked if asked is not None else min(int(cap), LONGEST_TRANSACTION_MS)
