"""The parts of a running broker, as the handlers of its APIs use them.

Owns: what a handler may reach: what all brokers of the cluster share, and what is this broker's own.
Does not know: sockets, frames, in which order the parts start and stop (`node`, `serving.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from embedded_kafka.clock import Clock
from embedded_kafka.cluster.brokers import Broker, Brokers
from embedded_kafka.cluster.controller import Controller
from embedded_kafka.cluster.outlook import Outlook
from embedded_kafka.connections.unread import Unread
from embedded_kafka.faults.faults import Faults
from embedded_kafka.groups import GroupCoordinator
from embedded_kafka.groups.group_configs import GroupConfigs
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import TRANSACTIONS_TOPIC
from embedded_kafka.topics.leaders import Leaders
from embedded_kafka.topics.readers import Readers
from embedded_kafka.topics.topics import Topics
from embedded_kafka.transactions import TransactionCoordinator
from embedded_kafka.transactions.markers import Markers
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition


class Coordinators(NamedTuple):
    """One broker's coordinators."""

    transactions: TransactionCoordinator
    groups: GroupCoordinator


@dataclass(frozen=True)
class Shared:
    """What all brokers of a cluster share: one set of logs, and who leads them. `coordinators`: by broker, of those
    that run.
    """

    clock: Clock
    faults: Faults
    directory: Path
    authorizer: Authorizer
    group_configs: GroupConfigs
    listener_security: ListenerSecurity
    unread: Unread
    topics: Topics
    leaders: Leaders
    readers: Readers
    markers: Markers
    brokers: Brokers
    controller: Controller
    coordinators: Mapping[int, Coordinators]


@dataclass(frozen=True)
class Parts(Shared):
    """One broker of the cluster. `me`: its address and life. `outlook`: what it knows of the others."""

    config: BrokerConfig
    offered: Mapping[int, tuple[int, int]]
    """API key -> the lowest and the highest version that ApiVersions names."""
    me: Broker
    outlook: Outlook
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self.me.node_id

    @property
    def cluster_id(self) -> str:
        """Empty until the cluster has started."""
        return self.brokers.cluster_id

    def coordinator_of(self, transactional_id: str) -> TransactionCoordinator:
        """The coordinator of an id, on whichever broker it is. Refused where none answers now."""
        where = TopicPartition(TRANSACTIONS_TOPIC, self.transactions.partition_for(transactional_id))
        leader = self.leaders.leader(where)
        if leader == self.node_id:
            return self.transactions
        found = self.coordinators.get(leader)
        if found is None or not self.brokers[leader].serves:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE, f"no broker coordinates {transactional_id} now")
        return found.transactions

    def all_groups(self) -> Iterator[GroupCoordinator]:
        """Every broker's groups."""
        return (each.groups for each in self.coordinators.values())
