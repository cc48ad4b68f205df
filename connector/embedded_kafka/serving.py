"""A broker with all its parts, running for as long as a `with` block.

Owns: the parts of a running broker, and the order of their shutdown.
Does not know: processes and threads.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from embedded_kafka.clock import Clock
from embedded_kafka.control import Control
from embedded_kafka.node import Node
from embedded_kafka.private import make_private
from embedded_kafka.producer_ids import BlockStore, FileBlocks, ProducerIds, ZooKeeperBlocks
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.settings.settings import parse
from kafka_core import runtime

_SOCKET_PATH_AT_MOST = 100
"""Unix allows 104 to 108 bytes for the path of a socket."""


def judge(directory: Path, settings: Mapping[str, str]) -> None:
    """OptionsError for settings with which a broker could not start: names, values, and the files of its logins."""
    config = parse(settings)
    ListenerSecurity(config.security, Clock())
    Authorizer(config.security, directory)


@contextlib.asynccontextmanager
async def serve(
    directory: Path, port: int, zookeeper: str | None, settings: Mapping[str, str]
) -> AsyncIterator[dict[str, str]]:
    """Start a broker; yields its addresses. OptionsError, StorageInUse, UnsupportedVersion."""
    config = parse(settings)
    make_private(directory)
    store: BlockStore = ZooKeeperBlocks(zookeeper, broker_id=config.node_id) if zookeeper else FileBlocks(directory)
    node = Node(directory, ProducerIds(store), config, port=port)
    await node.start()
    with contextlib.ExitStack() as stack:
        path = directory / "control" / "control.sock"
        if len(os.fsencode(path)) > _SOCKET_PATH_AT_MOST:
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-eos-"))
            path = Path(short) / "control.sock"
        control = Control(node.parts, node.advance, path)
        try:
            await control.start()
            yield {
                "bootstrap_servers": node.bootstrap_servers,
                "control": str(path),
                "data_dir": str(directory),
                "process_id": str(runtime.process_id()),
            }
        finally:
            await control.stop()
            await node.stop()
