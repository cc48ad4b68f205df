"""The topics that the broker writes for itself, under Kafka's names.

Owns: their names.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
