"""The topics that the broker writes for itself, under Kafka's names.

Owns: their names, and their configurations, which no client can choose by creating them first.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
CONTROLLERS_TOPIC: Final = "__cluster_metadata"
"""The topic of Kafka's controllers. Brokers do not have it, and clients cannot create a topic of that name."""

_SEGMENT_BYTES = str(100 * 1024 * 1024)

_CONFIGS: Final[dict[str, dict[str, str]]] = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _SEGMENT_BYTES,
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": _SEGMENT_BYTES,
        "unclean.leader.election.enable": "false",
    },
}

_IN_SYNC_AT_LEAST = 2
"""transaction.state.log.min.isr."""


def internal_configs(name: str, replicas: int) -> dict[str, str]:
    """As Kafka creates the topic, for that many replicas."""
    if name == TRANSACTIONS_TOPIC:
        return {**_CONFIGS[name], "min.insync.replicas": str(min(_IN_SYNC_AT_LEAST, replicas))}
    return _CONFIGS[name]
