"""The topics that the broker writes for itself, under Kafka's names.

Owns: their names, and the configurations that they have whoever asks for them first.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
CONTROLLERS_TOPIC: Final = "__cluster_metadata"
"""What Kafka's controllers write. It is no topic of a broker, and clients cannot make one of that name."""

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
"""As Kafka makes them; one replica is all there is here."""
