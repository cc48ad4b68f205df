"""The operations that a client may perform on a group, as the descriptions of groups of both protocols show them.

Owns: their bits.
Does not know: who decides.
"""

from __future__ import annotations

from embedded_kafka.parts import Parts

_OPERATIONS = {"READ": 3, "DELETE": 6, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
"""The operations on a group, with their bits in Kafka's bit field."""


def operations_on(parts: Parts, group_id: str) -> set[int]:
    """The bits of those that the client may perform."""
    return {bit for name, bit in _OPERATIONS.items() if parts.authorizer.allows(name, "GROUP", group_id)}
