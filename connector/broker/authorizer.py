"""Authorization: every operation is allowed, except those that a test or a user has denied.

Owns: the denials.
Does not know: principals. Every client of this broker is the same one.
Invariants: a denial holds for every API that Kafka guards with that operation.
"""

from __future__ import annotations

OPERATIONS = frozenset(
    [
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "CLUSTER_ACTION",
    ]
)
RESOURCES = frozenset(["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"])
BITS: dict[str, dict[str, int]] = {
    "TOPIC": {
        "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10,
        "ALTER_CONFIGS": 11,
    },
    "CLUSTER": {
        "CREATE": 5, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11,
        "IDEMPOTENT_WRITE": 12,
    },
}  # fmt: skip
"""Resource type -> operation -> its bit in the bit fields of authorized operations (KIP-430)."""
ANY = "*"


class Authorizer:
    """Denials of (operation, resource type, name), where the name may be ANY."""

    def __init__(self) -> None:
        self._denied: set[tuple[str, str, str]] = set()

    def deny(self, operation: str, resource: str, name: str = ANY) -> None:
        """Deny from now on; ValueError for an operation or a resource type that Kafka does not have."""
        if operation not in OPERATIONS or resource not in RESOURCES:
            raise ValueError(
                f"cannot deny {operation} on {resource}: operations are {sorted(OPERATIONS)}, resources {sorted(RESOURCES)}"
            )
        self._denied.add((operation, resource, name))

    def allow_all(self) -> None:
        """Forget every denial."""
        self._denied.clear()

    def allows(self, operation: str, resource: str, name: str) -> bool:
        """Whether a request may do this; `name` is ANY where the right on any one resource is enough."""
        if not self._denied:
            return True
        return (operation, resource, ANY) not in self._denied and (
            operation,
            resource,
            name,
        ) not in self._denied

    def allowed(self, resource: str, name: str) -> set[int]:
        """The bits of the operations that a client may do on a resource (KIP-430)."""
        return {bit for operation, bit in BITS[resource].items() if self.allows(operation, resource, name)}
