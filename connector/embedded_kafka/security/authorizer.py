"""Authorization: what the client of a request may do, by ACLs where the broker has them, and by a test's denials.

Owns: the denials; which client asks; the file of the ACLs.
Does not know: how clients prove who they are, the rules of ACLs (`security.acls`).
Invariants:
- A denial holds for every API that Kafka guards with that operation, for super users too.
- A change of the ACLs is on disk before it is answered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from embedded_kafka.refusals import Refused
from embedded_kafka.security.acls import (
    ACLS_AT_MOST,
    ANONYMOUS,
    AclBinding,
    Acls,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from embedded_kafka.settings.config import SecurityConfig
from embedded_kafka.storage import read_json, write_json
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code

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
        "TWO_PHASE_COMMIT",
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
CLUSTER = "kafka-cluster"

_FILE = "acls.json"
_asking: ContextVar[tuple[str, str]] = ContextVar("asking", default=(ANONYMOUS, "127.0.0.1"))
"""(principal, host) of the request in progress. Each connection is a task of its own, and so has a value of its own."""


class Authorizer:
    """Denials of (operation, resource type, name), where the name may be ANY; and ACLs, where the settings name an
    authorizer.

    config: its settings; None = no ACLs. directory: where the ACLs are kept; needed with an authorizer alone.
    """

    def __init__(self, config: SecurityConfig | None = None, directory: Path | None = None) -> None:
        self._denied: set[tuple[str, str, str]] = set()
        self._path = (directory or Path()) / _FILE
        self.acls: Acls | None = None
        """None where the broker has no authorizer."""
        if config is not None and config.authorizer:
            users = frozenset(name.strip() for name in config.super_users.split(";") if name.strip())
            self.acls = Acls((), users, open_by_default=config.allow_everyone)

    def load(self) -> None:
        """Read the ACLs of the directory. LogDamaged names the file where it cannot be read."""
        if self.acls is None:
            return
        try:
            self.acls.replace([_from_json(entry) for entry in read_json(self._path) or []])
        except (ValueError, TypeError, KeyError) as error:
            raise LogDamaged(
                "the file of the ACLs cannot be read; nothing was changed; restore it or remove it",
                {"file": str(self._path), "cause": repr(error)},
            ) from error

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding] = ()) -> None:
        """Add and remove ACLs, on disk first. Refused(SECURITY_DISABLED) without an authorizer, (INVALID_REQUEST) for
        too many; then nothing has changed."""
        if self.acls is None:
            raise Refused(Code.SECURITY_DISABLED, "No Authorizer is configured.")
        after = sorted(({*self.acls} - {*removed}) | {*added})
        if len(after) > max(ACLS_AT_MOST, len(self.acls)):
            raise Refused(Code.INVALID_REQUEST, f"this broker keeps at most {ACLS_AT_MOST} ACLs")
        if after != list(self.acls):
            write_json(self._path, [_to_json(acl) for acl in after])
            self.acls.replace(after)

    @contextlib.contextmanager
    def asked_by(self, principal: str, host: str) -> Iterator[None]:
        """Within the block every question is about the client who has this name and address."""
        token = _asking.set((principal, host))
        try:
            yield
        finally:
            _asking.reset(token)

    def deny(self, operation: str, resource: str, name: str = ANY) -> None:
        """Deny from now on; ValueError for an operation or a resource type that Kafka does not have."""
        if operation not in OPERATIONS or resource not in RESOURCES:
            raise ValueError(
                f"cannot deny {operation} on {resource}: operations are {sorted(OPERATIONS)}, resources {sorted(RESOURCES)}"
            )
        self._denied.add((operation, resource, name))

    def allow_all(self) -> None:
        """Forget every denial. ACLs stay."""
        self._denied.clear()

    def allows(self, operation: str, resource: str, name: str) -> bool:
        """Whether the client may do this."""
        if self._is_denied(operation, resource, name):
            return False
        return self._acl_allows(operation, resource, name)

    def allows_on_any(self, operation: str, resource: str) -> bool:
        """Whether the client may do this with any one resource of the type."""
        if self._is_denied(operation, resource, ANY):
            return False
        if self.acls is None:
            return True
        return self.acls.allows_on_any(*_asking.get(), Operation[operation], Resource[resource])

    def may_create(self, topic: str) -> bool:
        """Whether the client may create the topic: by the right on the cluster, or on the topic."""
        return self.allows_by_either("CREATE", topic, on_cluster="CREATE")

    def allows_by_either(self, operation: str, topic: str, *, on_cluster: str) -> bool:
        """Whether the client may do this with the topic, by the right on it or by another one on the cluster. A test's
        denial of either is enough.
        """
        if self._is_denied(on_cluster, "CLUSTER", CLUSTER) or self._is_denied(operation, "TOPIC", topic):
            return False
        return self._acl_allows(on_cluster, "CLUSTER", CLUSTER) or self._acl_allows(operation, "TOPIC", topic)

    def may_write_idempotently(self) -> bool:
        """Whether the client may write with a producer id: by the right on the cluster, or to any topic (KIP-679)."""
        return self.allows("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER) or self.allows_on_any("WRITE", "TOPIC")

    def alterable(self) -> Acls:
        """The ACLs, for a client that may change them. Refused(SECURITY_DISABLED) without an authorizer,
        (CLUSTER_AUTHORIZATION_FAILED) without ALTER on the cluster."""
        if self.acls is None:
            raise Refused(Code.SECURITY_DISABLED, "No Authorizer is configured.")
        if not self.allows("ALTER", "CLUSTER", CLUSTER):
            raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "ALTER on the cluster is denied")
        return self.acls

    def allowed(self, resource: str, name: str) -> set[int]:
        """The bits of the operations that a client may do on a resource (KIP-430)."""
        return {bit for operation, bit in BITS[resource].items() if self.allows(operation, resource, name)}

    def allowed_on_cluster(self) -> set[int]:
        """The same of the cluster; none for a client that may not describe it."""
        return self.allowed("CLUSTER", CLUSTER) if self.allows("DESCRIBE", "CLUSTER", CLUSTER) else set()

    def _is_denied(self, operation: str, resource: str, name: str) -> bool:
        return bool(self._denied) and (
            (operation, resource, ANY) in self._denied or (operation, resource, name) in self._denied
        )

    def _acl_allows(self, operation: str, resource: str, name: str) -> bool:
        if self.acls is None:
            return True
        return self.acls.allows(*_asking.get(), Operation[operation], Resource[resource], name)


def _to_json(acl: AclBinding) -> list[str]:
    return [
        acl.resource.name, acl.pattern.name, acl.name, acl.principal, acl.host, acl.operation.name, acl.permission.name,
    ]  # fmt: skip


def _from_json(entry: list[str]) -> AclBinding:
    resource, pattern, name, principal, host, operation, permission = entry
    return AclBinding(
        Resource[resource], Pattern[pattern], name, principal, host, Operation[operation], Permission[permission]
    )  # fmt: skip
