"""The brokers of a cluster with all their parts, running for as long as a `with` block.

Owns: the order in which a cluster and its control socket start and end.
Does not know: processes and threads.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from embedded_kafka.clock import Clock
from embedded_kafka.private import make_private
from embedded_kafka.producer_ids import BlockStore, FileBlocks, ProducerIds, ZooKeeperBlocks
from embedded_kafka.security.authorizer import Authorizer
from embedded_kafka.security.listener_security import ListenerSecurity
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.serving.control import Control
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
    directory: Path, ports: Sequence[int], zookeeper: str | None, settings: Mapping[str, str]
) -> AsyncIterator[dict[str, str]]:
    """Start a broker at each port; yields their addresses. OptionsError, StorageInUse, UnsupportedVersion."""
    config = parse(settings)
    make_private(directory)
    store: BlockStore = ZooKeeperBlocks(zookeeper, broker_id=config.node_id) if zookeeper else FileBlocks(directory)
    cluster = KafkaCluster(directory, ProducerIds(store), config, brokers=len(ports), ports=tuple(ports))
    await cluster.start()
    with contextlib.ExitStack() as stack:
        path = directory / "control" / "control.sock"
        if len(os.fsencode(path)) > _SOCKET_PATH_AT_MOST:
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-eos-"))
            path = Path(short) / "control.sock"
        control = Control(cluster, path)
        try:
            await control.start()
            yield {
                "bootstrap_servers": cluster.bootstrap_servers,
                "control": str(path),
                "data_dir": str(directory),
                "process_id": str(runtime.process_id()),
            }
        finally:
            await control.stop()
            await cluster.stop()
