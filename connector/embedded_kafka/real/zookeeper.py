"""A real ZooKeeper server on a free loopback port.

Owns: its settings, its data, its port, its process.
Does not know: what is kept in it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.child.server import ChildServer, first_answer
from embedded_kafka.real import wire
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import pyspark_jars

# It answers after 1-2 s; as generous as with a broker, for the same reason.
_READY_WITHIN_MS = 90_000
_LOOK_AGAIN_AFTER_S = 0.05
_LOG_TAIL_CHARS = 4000


class LocalZooKeeper(ChildServer):
    """A real ZooKeeper server from the jars of PySpark; stopped again at the end of the `with` block."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__("local-zookeeper", data_dir)
        self._child: Child | None = None
        self._port = 0

    @property
    def hosts(self) -> str:
        """`127.0.0.1:port`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> LocalZooKeeper:
        """Starts the server and returns when it answers; after a failure nothing is left running."""
        directory = self._make_dir()
        directory.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        (directory / "zoo.cfg").write_text(
            f"dataDir={directory}/data\nclientPort={self._port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        )
        self.restart()
        return self

    def has(self, path: str) -> bool:
        """Whether the node exists; raises OSError when the server does not answer."""
        return wire.zookeeper_has("127.0.0.1", self._port, path)

    def restart(self) -> None:
        """Starts the server, after stopping it if it runs, on the same port and data; returns when it answers."""
        assert self._dir is not None, "start() comes first"
        if self._child is not None:
            self._child.stop()
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        java = require_java().executable
        command = [
            java,
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{pyspark_jars()}/*",
            main,
            self._dir / "zoo.cfg",
        ]
        log = self._dir / "zookeeper.log"
        self._child = spawn([str(word) for word in command], log_path=log)
        if first_answer(self._child, self._answers, _READY_WITHIN_MS, _LOOK_AGAIN_AFTER_S) is None:
            self.stop_server()
            raise LocalError(f"ZooKeeper is not ready, the end of its log:\n{log.read_text()[-_LOG_TAIL_CHARS:]}")

    def kill(self) -> None:
        """SIGKILL to the server; restart() brings it back."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop_server(self) -> None:
        """Ends the server and keeps its data."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def stop(self) -> None:
        """Ends the server, and removes its data unless `data_dir` was given."""
        self.stop_server()
        self._remove_dir()

    def _answers(self) -> bool | None:
        with contextlib.suppress(OSError):
            self.has("/")
            return True
        return None
