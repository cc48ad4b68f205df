"""The ladder: slots get the highest class of transactions that cluster, rights and options allow.

Owns: the choice of the class, and the transactions' timeout.
Does not know: how a transaction is opened.
Invariants: a missing right selects the lower rung, which every broker has.
Sources: KIP-939 (transactions without a timeout), transaction.max.timeout.ms.
"""

from __future__ import annotations

from connector.client import admin
from connector.client.cluster import Cluster
from connector.errors import OptionsError
from connector.options import LONGEST_TRANSACTION_MS, SinkOptions


def transaction_class(cluster: Cluster, options: SinkOptions) -> tuple[int, bool]:
    """(timeout in ms of the slots' transactions, whether they
    have no timeout at all): the highest possible rung."""
    names = ["transaction.max.timeout.ms", "transaction.two.phase.commit.enable"]
    found = admin.broker_settings(cluster, names) or {}
    # A right that is missing (the settings may not be read) leaves the lower rung, which every broker has.
    allowed = found.get("transaction.two.phase.commit.enable") == "true"
    two_phase = allowed and options.two_phase_commit and cluster.speaks_two_phase
    return _timeout_ms(options, found.get("transaction.max.timeout.ms")), two_phase


def _timeout_ms(options: SinkOptions, cap: str | None) -> int:
    asked = options.transaction_timeout_ms
    if cap is None:
        # The right to read the setting is missing. Brokers have Kafka's default cap
        # unless it was changed; a broker with a lower one answers InitProducerId
        # with INVALID_TRANSACTION_TIMEOUT, before anything is written.
        return asked if asked is not None else LONGEST_TRANSACTION_MS
    if asked is not None and asked > int(cap):
        raise OptionsError(
            f"kafka.transaction.timeout.ms={asked} is above the broker's transaction.max.timeout.ms={cap}; nothing "
            "was written; lower the one or raise the other",
            {"asked_ms": asked, "cap_ms": int(cap)},
        )
    return asked if asked is not None else min(int(cap), LONGEST_TRANSACTION_MS)
