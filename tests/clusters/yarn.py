"""A real YARN on loopback: one ResourceManager and two NodeManagers, each a process of its own.

Owns: their configuration; starting, killing and ending them with all their containers.
Does not know: Spark.
Invariants: nothing of it survives `close`, nor the end of the tests in any other way (`sweeper`).
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import Child, spawn
from tests.clusters.hadoop import configure, start
from tests.clusters.scene import eventually, kill, pids_in

SERVERS = "org.apache.hadoop.yarn.server"
NODES = 2
LOST_AFTER_MS = 20_000
"""A node that is silent for so long is lost. YARN's default is ten minutes; half of this loses live nodes of a busy
machine.
"""

_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}


class Yarn:
    """The servers, in `directory`. `conf` is what HADOOP_CONF_DIR names, `web` the ResourceManager's address for
    requests.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = directory / "hadoop"
        address, scheduler, tracker, admin, web = free_ports(5)
        self.web = f"127.0.0.1:{web}"
        ports = {
            "address": address, "scheduler.address": scheduler, "resource-tracker.address": tracker,
            "admin.address": admin, "webapp.address": web,
        }  # fmt: skip
        self._common = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{port}" for name, port in ports.items()}
        self._common |= {
            "yarn.nm.liveness-monitor.expiry-interval-ms": str(LOST_AFTER_MS),
            "yarn.scheduler.minimum-allocation-mb": "128",
            # As many as the page's command asks for; YARN's default is 2.
            "yarn.resourcemanager.am.max-attempts": "4",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "500",
        }
        _write(self.conf, self._common)
        self._nodes: dict[int, Child] = {}
        self._stack = contextlib.ExitStack()
        try:
            sweeper = [sys.executable, "-m", "tests.clusters.sweeper", str(directory / "nodes")]
            self._stack.callback(spawn(sweeper, log_path=directory / "sweeper.log", cwd=Path(__file__).parents[2]).stop)
            manager = self._start("resourcemanager.ResourceManager", self.conf, directory / "manager.log")
            self._stack.callback(manager.kill_tree)
            self._stack.callback(self._kill_nodes)
            eventually("the ResourceManager", lambda: self._answers(), lambda: manager.poll() is None)
            for number in range(NODES):
                self.start_node(number)
        except BaseException:
            self.close()
            raise

    def start_node(self, number: int) -> None:
        """Start this NodeManager, with ports of its own, and wait until it has registered."""
        own = self.directory / "nodes" / str(number)
        names = ("address", "localizer.address", "webapp.address", "collector-service.address")
        ports = zip(names, free_ports(len(names)), strict=True)
        settings = {f"yarn.nodemanager.{name}": f"127.0.0.1:{port}" for name, port in ports}
        settings |= {
            "yarn.nodemanager.local-dirs": str(own / "local"),
            "yarn.nodemanager.log-dirs": str(own / "logs"),
            "yarn.nodemanager.user-home-dir": str(own / "home"),
            "yarn.nodemanager.resource.memory-mb": "6144",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
            # The containers' files stay for a failed test to show.
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
        }
        (own / "home").mkdir(parents=True, exist_ok=True)
        _write(own / "conf", {**self._common, **settings})
        before = len(self.nodes("RUNNING"))
        node = self._start("nodemanager.NodeManager", own / "conf", self.directory / f"node{number}.log")
        self._nodes[number] = node
        eventually("the NodeManager", lambda: len(self.nodes("RUNNING")) > before, lambda: node.poll() is None)

    def node_of(self, mark: str) -> int:
        """The number of a NodeManager that runs a container with this in its command line."""
        found = (each for each in self._nodes if pids_in(self.directory / "nodes" / str(each), mark))
        return int(eventually(mark, lambda: next(found, -1) + 1)) - 1

    def kill_node(self, number: int, *, with_containers: bool) -> None:
        """SIGKILL a NodeManager; with its containers it is the loss of a machine, without them they go on,
        unattended.
        """
        self._nodes.pop(number).kill_tree()
        if with_containers:
            own = self.directory / "nodes" / str(number)
            while pids := pids_in(own):
                kill(pids)

    def nodes(self, state: str) -> list[str]:
        """The ids of the nodes in this state, as the ResourceManager has it."""
        found = self._get(f"nodes?states={state}").get("nodes") or {}
        return [str(each["id"]) for each in found.get("node", [])]

    def application(self) -> dict[str, Any]:
        """The newest application, as the ResourceManager describes it."""
        apps = (self._get("apps").get("apps") or {}).get("app", [])
        return dict(max(apps, key=lambda each: int(each["startedTime"]))) if apps else {}

    def close(self) -> None:
        """End everything."""
        self._stack.close()

    def _kill_nodes(self) -> None:
        for node in self._nodes.values():
            node.kill_tree()

    def _start(self, server: str, conf: Path, log: Path) -> Child:
        return start(f"{SERVERS}.{server}", conf, log, self.directory)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self._get("info")["clusterInfo"]["state"] == "STARTED"
        return False

    def _get(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.web}/ws/v1/cluster/{what}", timeout=60) as answer:
            return dict(json.load(answer))


def _write(directory: Path, settings: dict[str, str]) -> None:
    files = {"yarn-site": settings, "core-site": {"fs.defaultFS": "file:///"}, "capacity-scheduler": _QUEUES}
    configure(directory, files)
