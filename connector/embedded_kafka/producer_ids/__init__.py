"""Producer ids in blocks, as Kafka's brokers claim them: in ZooKeeper, or in a file of a broker that has none.

Owns: which ids belong to this broker, and the guarantee that no id is handed out twice.
Does not know: Kafka's protocol, epochs, transactional ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedded_kafka.producer_ids.allocator import BlockStore, ProducerIds
from embedded_kafka.producer_ids.block import Block
from embedded_kafka.producer_ids.files import FileBlocks

__all__ = ["Block", "BlockStore", "FileBlocks", "ProducerIds", "ZooKeeperBlocks"]

if TYPE_CHECKING:
    from embedded_kafka.producer_ids.zookeeper import ZooKeeperBlocks


def __getattr__(name: str) -> Any:
    # A broker without ZooKeeper starts without importing kazoo.
    if name == "ZooKeeperBlocks":
        from embedded_kafka.producer_ids.zookeeper import ZooKeeperBlocks

        return ZooKeeperBlocks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
