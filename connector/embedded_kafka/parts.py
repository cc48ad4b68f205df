"""The parts of a running broker, as the handlers of its APIs use them.

Owns: what a handler may reach.
Does not know: sockets, frames, in which order the parts start and stop (`node`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.clock import Clock
from embedded_kafka.connections.unread import Unread
from embedded_kafka.faults.faults import Faults
from embedded_kafka.groups import GroupCoordinator
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.leaders import Leaders
from embedded_kafka.topics.readers import Readers
from embedded_kafka.topics.topics import Topics
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.markers import Markers


@dataclass(frozen=True)
class Parts:
    """One broker. `port` and `cluster_id` are as given until the broker has started, and the true ones from then on."""

    config: BrokerConfig
    offered: Mapping[int, tuple[int, int]]
    """API key -> the lowest and the highest version that ApiVersions names."""
    clock: Clock
    faults: Faults
    directory: Path
    authorizer: Authorizer
    listener_security: ListenerSecurity
    unread: Unread
    topics: Topics
    leaders: Leaders
    readers: Readers
    groups: GroupCoordinator
    markers: Markers
    transactions: TransactionCoordinator
    host: str
    port: int
    cluster_id: str = ""
