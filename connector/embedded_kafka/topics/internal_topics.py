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

CONFIGS: Final[dict[str, dict[str, str]]] = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _SEGMENT_BYTES,
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": _SEGMENT_BYTES,
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    },
}
"""As Kafka creates them, except that this broker has one replica."""
