"""Access control lists by the rules of Kafka's StandardAuthorizer.

Owns: the ACLs, their order of precedence, the filters that find them.
Does not know: requests, sessions, the data directory.
Invariants:
- A DENY that matches prevails over every ALLOW.
- A resource that has any ACL is closed to those that none of its ACLs allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

ACLS_AT_MOST = 10_000
"""A request for a right reads the ACLs of its resource and all prefixed ones; each takes some microseconds."""
WILDCARD = "*"
EVERYONE = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a client that has shown nothing."""


class Resource(IntEnum):
    """Resource types, numbered as in Kafka's requests."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a name is meant. ANY and MATCH are of filters alone (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations, numbered as in Kafka's requests."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What an ACL does."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLY = {
    Operation.DESCRIBE: frozenset([Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]),
    Operation.DESCRIBE_CONFIGS: frozenset([Operation.ALTER_CONFIGS]),
}
"""Operation -> those whose ALLOW includes it. A DENY includes nothing."""


@dataclass(frozen=True, order=True)
class AclBinding:
    """One binding. `principal`: "User:alice", or EVERYONE; `host`: an address, or WILDCARD."""

    resource: Resource
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def is_for(self, principal: str, host: str) -> bool:
        """Whether it is about this client."""
        return self.principal in (principal, EVERYONE) and self.host in (host, WILDCARD)

    def denies(self, operation: Operation) -> bool:
        """Whether it forbids the operation."""
        return self.permission is Permission.DENY and self.operation in (operation, Operation.ALL)

    def allows(self, operation: Operation) -> bool:
        """Whether it permits the operation, by itself or by another one."""
        return self.permission is Permission.ALLOW and (
            self.operation in (operation, Operation.ALL) or self.operation in _IMPLY.get(operation, ())
        )


@dataclass(frozen=True)
class AclFilter:
    """Which ACLs are meant; None and ANY mean each."""

    resource: Resource
    pattern: Pattern
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: AclBinding) -> bool:
        """Whether the ACL is meant."""
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: AclBinding) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not Pattern.MATCH:
            return self.name == acl.name
        if acl.pattern is Pattern.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)


class Acls:
    """All ACLs of a broker. `super_users` may do everything; `open_by_default`: whether everyone may use a resource
    without ACLs.
    """

    def __init__(self, acls: Iterable[AclBinding], super_users: frozenset[str], *, open_by_default: bool) -> None:
        self._super_users = super_users
        self._open = open_by_default
        self._acls: dict[AclBinding, None] = {}
        self._literal: dict[tuple[Resource, str], list[AclBinding]] = {}
        self._prefixed: dict[Resource, list[AclBinding]] = {}
        self.replace(acls)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._acls)

    def __len__(self) -> int:
        return len(self._acls)

    def replace(self, acls: Iterable[AclBinding]) -> None:
        """Have these from now on, sorted and each once."""
        self._acls = dict.fromkeys(sorted(acls))
        self._literal, self._prefixed = {}, {}
        for acl in self._acls:
            if acl.pattern is Pattern.LITERAL:
                self._literal.setdefault((acl.resource, acl.name), []).append(acl)
            else:
                self._prefixed.setdefault(acl.resource, []).append(acl)

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the client may do this."""
        if principal in self._super_users:
            return True
        allowed = closed = False
        for acl in self._about(resource, name):
            closed = True
            if not acl.is_for(principal, host):
                continue
            if acl.denies(operation):
                return False
            allowed = allowed or acl.allows(operation)
        return allowed or (self._open and not closed)

    def allows_on_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there can be a resource of this type with which the client may do this (KIP-679)."""
        if principal in self._super_users:
            return True
        own = [acl for acl in self._acls if acl.resource is resource and acl.is_for(principal, host)]
        denied = [acl for acl in own if acl.denies(operation)]
        names = {acl.name for acl in denied if acl.pattern is Pattern.LITERAL}
        prefixes = [acl.name for acl in denied if acl.pattern is Pattern.PREFIXED]
        if WILDCARD in names:
            return False
        if self._open and not self._about(resource, WILDCARD):
            return True
        return any(
            acl.allows(operation)
            and not any(acl.name.startswith(prefix) for prefix in prefixes)
            and not (acl.pattern is Pattern.LITERAL and acl.name in names)
            for acl in own
        )

    def _about(self, resource: Resource, name: str) -> list[AclBinding]:
        literal = self._literal.get((resource, name), [])
        wild = self._literal.get((resource, WILDCARD), []) if name != WILDCARD else []
        return [
            *literal,
            *wild,
            *(acl for acl in self._prefixed.get(resource, ()) if name.startswith(acl.name)),
        ]
