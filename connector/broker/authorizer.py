"""Who may do what: everything, except what a test or a user has denied.

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
ANY = "*"


class Authorizer:
    """Denials of (operation, resource type, name), where the name may be ANY."""

    def __init__(self) -> None:
        self._denied: set[tuple[str, str, str]] = set()

    def deny(self, operation: str, resource: str, name: str = ANY) -> None:
        """From now on; ValueError for an operation or a resource type that Kafka does not have."""
        if operation not in OPERATIONS or resource not in RESOURCES:
            raise ValueError(
                f"cannot deny {operation} on {resource}: operations are {sorted(OPERATIONS)}, resources {sorted(RESOURCES)}"
            )
        self._denied.add((operation, resource, name))

    def allow_all(self) -> None:
        """Forget every denial."""
        self._denied.clear()

    def allows(self, operation: str, resource: str, name: str) -> bool:
        """Whether a request may do this; `name` is ANY where it would do to have the right on some resource."""
        if not self._denied:
            return True
        return (operation, resource, ANY) not in self._denied and (
            operation,
            resource,
            name,
        ) not in self._denied
