"""One module per Kafka API, and the table of them.

Owns: which APIs in which versions this broker has.
Does not know: sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from connector.protocol.server import Message

if TYPE_CHECKING:
    from connector.broker.config import BrokerConfig
    from connector.broker.context import Context
    from connector.broker.node import Node


class Handler(Protocol):
    """What every module here has."""

    API_KEY: int
    VERSIONS: tuple[int, int]

    async def handle(self, node: Node, request: Message, context: Context) -> Message | None:
        """Do what the request asks; None where the client wants no answer."""


# Below the class that types them: some of these modules look into the table themselves.
from connector.broker.apis import (  # noqa: E402
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)

_MODULES: tuple[Handler, ...] = (
    add_offsets_to_txn, add_partitions_to_txn, alter_configs, api_versions, create_partitions, create_topics,
    delete_groups, delete_records, delete_topics, describe_acls, describe_cluster, describe_configs, describe_groups,
    describe_log_dirs, describe_producers, describe_transactions, end_txn, fetch, find_coordinator, heartbeat,
    incremental_alter_configs, init_producer_id, join_group, leave_group, list_groups, list_offsets,
    list_transactions, metadata, offset_commit, offset_delete, offset_fetch, offset_for_leader_epoch, produce,
    sync_group, txn_offset_commit, write_txn_markers,
)  # fmt: skip

HANDLERS: dict[int, Handler] = {module.API_KEY: module for module in _MODULES}
"""API key -> its module."""

REPEATABLE: frozenset[int] = frozenset(
    module.API_KEY
    for module in (
        describe_acls, describe_configs, describe_groups, describe_log_dirs, describe_producers, describe_transactions,
        fetch, list_groups, list_offsets, list_transactions, metadata, offset_fetch, offset_for_leader_epoch,
    )
)  # fmt: skip
"""Those that can be done again for a newer answer, as nothing changes by them that would not be so anyway."""

LISTS: dict[int, str] = {list_groups.API_KEY: "groups", list_transactions.API_KEY: "transaction_states"}
"""Those whose answers grow with what other clients have left, and the field that does."""

ADVERTISED_FROM: dict[int, int] = {produce.API_KEY: 0}
"""Versions that are named and not there: older librdkafka takes a broker without Produce 0 for one without compression
(KAFKA-18659). Kafka 4 does the same."""


def versions(handler: Handler, config: BrokerConfig) -> tuple[int, int]:
    """Lowest and highest version of an API in this broker."""
    lowest, highest = handler.VERSIONS
    if handler.API_KEY == init_producer_id.API_KEY and not config.two_phase_commit:
        # Version 6 is KIP-939's, which Kafka keeps behind a setting.
        return lowest, min(highest, 5)
    return lowest, highest
