"""The rights of the clients that are compared: one client for each.

Owns: what ACLs each has. Each client has topics, groups and ids of its own, so what one changes no other sees.
Does not know: brokers, requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

TYPES = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"),
    "CLUSTER": (
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
    ),
}  # fmt: skip
"""Resource type -> the operations that Kafka knows on it (AclEntry.supportedOperations)."""
_CLUSTER = "kafka-cluster"
_ANYWHERE, _ELSEWHERE = "*", "10.20.30.40"
_TYPES = {name: ResourceType["BROKER" if name == "CLUSTER" else name] for name in TYPES}
# librdkafka has no name for it; a denial of the rest would not show in the table.
_LIBRDKAFKA_LACKS = {"TWO_PHASE_COMMIT"}


@dataclass(frozen=True)
class Names:
    """What belongs to one client; all of it begins with its own name."""

    user: str

    @property
    def prefix(self) -> str:
        """What all names begin with, and those of no other client."""
        return f"{self.user}-"

    @property
    def topic(self) -> str:
        """A topic with two partitions and a record."""
        return f"{self.prefix}topic"

    @property
    def doomed(self) -> str:
        """A topic that is there to be deleted."""
        return f"{self.prefix}doomed"

    @property
    def missing(self) -> str:
        """A topic that nobody makes."""
        return f"{self.prefix}missing"

    @property
    def new(self) -> str:
        """A topic that the client makes, if it may."""
        return f"{self.prefix}new"

    @property
    def group(self) -> str:
        """A group with a committed offset of the topic."""
        return f"{self.prefix}group"

    @property
    def transactional_id(self) -> str:
        """An id that has a producer id."""
        return f"{self.prefix}id"

    def of(self, kind: str) -> tuple[str, ...]:
        """All names of a resource type."""
        return {
            "TOPIC": (self.topic, self.doomed, self.missing, self.new),
            "GROUP": (self.group,),
            "TRANSACTIONAL_ID": (self.transactional_id,),
            "CLUSTER": (_CLUSTER,),
        }[kind]


@dataclass(frozen=True)
class Right:
    """One or more ACLs on all names of a type. pattern: LITERAL, PREFIXED, or ANYTHING for the literal `*`."""

    kind: str
    operation: str = "ALL"
    pattern: str = "LITERAL"
    permission: str = "ALLOW"
    host: str = _ANYWHERE

    def bindings(self, names: Names, principal: str) -> Iterator[AclBinding]:
        """The ACLs for a client."""
        prefixed = self.pattern == "PREFIXED"
        if self.kind == "CLUSTER":
            # Kafka takes no other name, as a prefix either.
            over: tuple[str, ...] = (_CLUSTER,)
        elif self.pattern == "ANYTHING":
            over = ("*",)
        else:
            over = (names.prefix,) if prefixed else names.of(self.kind)
        for name in over:
            yield AclBinding(
                _TYPES[self.kind], name, ResourcePatternType["PREFIXED" if prefixed else "LITERAL"], principal,
                self.host, AclOperation[self.operation], AclPermissionType[self.permission],
            )  # fmt: skip


@dataclass(frozen=True)
class Grant:
    """What one client may do, under a name that the table shows."""

    name: str
    rights: tuple[Right, ...]


def _everything(pattern: str = "LITERAL", but: str = "") -> tuple[Right, ...]:
    return tuple(Right(kind, pattern=pattern) for kind in TYPES if kind != but)


def grants() -> Iterator[Grant]:
    """All of them."""
    yield Grant("nothing", ())
    for kind, operations in TYPES.items():
        for operation in ("ALL", *(each for each in operations if each not in _LIBRDKAFKA_LACKS)):
            right = Right(kind, operation)
            yield Grant(f"{operation} on {kind}", (right,))
            yield Grant(f"{operation} on {kind}, ALL on the others", (right, *_everything(but=kind)))
            denied = Right(kind, operation, permission="DENY")
            yield Grant(f"ALL on everything, {operation} on {kind} denied", (*_everything(), denied))
        yield Grant(f"ALL on everything but {kind}", _everything(but=kind))
        for pattern, other in (("PREFIXED", "LITERAL"), ("ANYTHING", "PREFIXED"), ("LITERAL", "ANYTHING")):
            yield Grant(f"ALL on {kind}, {pattern}", (Right(kind, pattern=pattern),))
            denied = Right(kind, pattern=other, permission="DENY")
            yield Grant(f"ALL by {pattern}, {kind} denied by {other}", (*_everything(pattern), denied))
            described = Right(kind, "DESCRIBE", pattern, "DENY")
            yield Grant(f"ALL by {other}, DESCRIBE on {kind} denied by {pattern}", (*_everything(other), described))
        elsewhere = Right(kind, host=_ELSEWHERE)
        yield Grant(f"ALL on {kind} from another host, ALL on the others", (elsewhere, *_everything(but=kind)))
        denied = Right(kind, permission="DENY", host=_ELSEWHERE)
        yield Grant(f"ALL on everything, {kind} denied from another host", (*_everything(), denied))
    for pattern in ("LITERAL", "PREFIXED", "ANYTHING"):
        yield Grant(f"ALL on everything, {pattern}", _everything(pattern))
