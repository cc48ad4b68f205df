"""A real Kafka, one broker or several, on free loopback ports.

Owns: the brokers' settings, their data, their ports, their processes.
Does not know: the product's client or its embedded broker.
Invariants: brokers listen on 127.0.0.1 only; a broker that is killed and restarted has the same port and the same data.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from embedded_kafka.child.errors import LocalError
from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.child.server import ChildServer, first_answer
from embedded_kafka.real import wire
from embedded_kafka.real.java import Java, require_java
from embedded_kafka.real.maven import fetch, kafka_artifacts, tiered_storage_artifacts
from embedded_kafka.real.zookeeper import LocalZooKeeper

NEWEST_KAFKA = "4.4.0"
# The last line of releases with ZooKeeper.
NEWEST_ZOOKEEPER_KAFKA = "3.9.1"
# The oldest that the product supports.
OLDEST_KAFKA = "3.0.2"

# A broker is ready after 3-6 s on two cores.  Half of this fails on a machine that runs other tests beside;
# more would only delay the report of a broken set-up.
_READY_WITHIN_MS = 90_000
_LOOK_AGAIN_AFTER_S = 0.05
_LOG_TAIL_CHARS = 4000
_ERROR_CHARS = 1000
# A killed broker is detected only after this time, and its successor has to wait for that.  Kafka's default
# is 9 s (KRaft) or 18 s (ZooKeeper); half of this fences a live broker on a machine that is busy with tests.
_SESSION_TIMEOUT_MS = 4_000
# Any fixed value works: it only has to be the same in every node of one cluster.
_CLUSTER_ID = "a2Fma2EtZW9zLWxvY2FsMQ"

# For the releases before 4.0, whose logger prints nothing unless it has an appender.
_LOG4J = """\
log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{HH:mm:ss.SSS} [%t] %p %c - %m%n
"""

# A cluster with fewer brokers than the production defaults expect (3) could not create these topics.
_REPLICATED_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")

# From Kafka's own tests (kafka-storage's test jar).
_REMOTE_STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


# A name that only the nodes of one cluster know, each by a hosts file of its own (jdk.net.hosts.file): a broker takes
# the controller's address from the controller too, so by settings alone it would find a way around its proxy.
_CONTROLLER_HOST = "controller"


class Fronts(Protocol):
    """What stands before the nodes of a cluster, such as proxies. Asked once for each, before the first node starts."""

    def of_broker(self, broker: int, port: int) -> int:
        """The port of 127.0.0.1 at which clients are told to reach the broker that listens on `port`."""

    def of_controller(self, broker: int, port: int) -> str:
        """The loopback address at which this broker finds the controller, under the controller's own `port`."""


class LocalKafka(ChildServer):
    """Brokers of one version of Apache Kafka, stopped again at the end of the `with` block.

    version: a release on Maven; 4.0 and later run without ZooKeeper, earlier ones with a ZooKeeper of their own, or
        from 3.7 on with `kraft`.
    brokers: how many; replication factors follow, so that with 3 one of them may be killed.
    config: further broker settings, under Kafka's names; they win over the ones made here.
    data_dir: where the data is kept after stop(), for a later start; None = a directory that stop() removes.
    transaction_version: the finalised feature (0, 1, 2) from 4.0 on; None = the release's default.
    tiered: with remote storage, in a directory beside the data (Kafka 3.9 and later); topics ask for it by
        remote.storage.enable=true.
    fast_start: only the first tier of Java's compiler: ready sooner, slower under load.  Not for benchmarks.
    heap: of each node's Java.
    kraft: without ZooKeeper, before 4.0 as well.
    controller_apart: the controller is a process of its own, and the brokers are brokers only.
    fronts: what clients and brokers go through to reach the nodes; needs `controller_apart`.
    listeners: more of them, name -> (security protocol, host, port), for a cluster of one broker.
    system_properties: of each node's Java (`-Dname=value`).
    """

    def __init__(
        self,
        version: str = NEWEST_KAFKA,
        *,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        transaction_version: int | None = None,
        tiered: bool = False,
        fast_start: bool = False,
        heap: str = "1g",
        kraft: bool = False,
        controller_apart: bool = False,
        fronts: Fronts | None = None,
        listeners: Mapping[str, tuple[str, str, int]] | None = None,
        system_properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("local-kafka", data_dir)
        self.version = version
        self.zookeeper: LocalZooKeeper | None = None
        has_transaction_version = int(version.split(".")[0]) >= 4
        self._kraft = kraft or has_transaction_version
        if transaction_version is not None and not has_transaction_version:
            raise ValueError(f"transaction_version is a feature of Kafka 4.0 and later, not of {version}")
        if controller_apart and not self._kraft:
            raise ValueError(f"Kafka {version} has a controller apart only with kraft=True")
        if fronts is not None and not controller_apart:
            raise ValueError(
                "fronts needs controller_apart: among brokers that are controllers too there is nothing between"
            )
        if listeners and brokers > 1:
            raise ValueError("listeners have one port each, so they are for a cluster of one broker")
        self._config = dict(config or {})
        self._listeners = dict(listeners or {})
        self._system_properties = dict(system_properties or {})
        self._transaction_version = transaction_version
        self._tiered = tiered
        self._fast_start = fast_start
        self._heap = heap
        self._apart = controller_apart
        self._fronts = fronts
        self._brokers = brokers
        self._nodes = brokers + controller_apart
        self._versions = [version] * self._nodes
        self._children: list[Child | None] = [None] * self._nodes
        self._ports: list[int] = []
        self._advertised: list[int] = []
        self._controller_at: list[str] = []
        self._java: Java | None = None
        self._jars: dict[str, Path] = {}

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, one per broker, separated by commas; the same after a restart()."""
        return ",".join(f"127.0.0.1:{port}" for port in self._advertised)

    @property
    def controller(self) -> int:
        """The number of the controller that is apart: kill() and restart() take it too."""
        if not self._apart:
            raise LocalError("Every broker of this Kafka is a controller")
        return self._brokers

    @property
    def data_dir(self) -> Path:
        """The directory of this cluster's data and logs."""
        if self._dir is None:
            raise LocalError("This Kafka was never started")
        return self._dir

    @property
    def log_path(self) -> Path:
        """What the first broker wrote to its log."""
        return self.data_dir / "broker-0.log"

    def pid(self, broker: int = 0) -> int:
        """The broker's process id, for measuring it; stop it by stop() or kill() only."""
        child = self._children[broker]
        if child is None:
            raise LocalError(f"Broker {broker} is not running")
        return child.pid

    def start(self) -> LocalKafka:
        """Starts every broker and returns when all of them answer; fetches the jars first when they are not there.

        After a failure nothing is left running, and the error contains the end of the broker's log.
        """
        try:
            self._java = require_java()
            self._fetch(self.version)
            directory = self._make_dir()
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "log4j.properties").write_text(_LOG4J)
            self._ports = free_ports(2 * self._brokers + self._apart)
            fronts, brokers = self._fronts, range(self._brokers)
            self._advertised = [
                self._ports[n] if fronts is None else fronts.of_broker(n, self._ports[n]) for n in brokers
            ]
            last = self._ports[-1]
            self._controller_at = [
                *("127.0.0.1" if fronts is None else fronts.of_controller(n, last) for n in brokers),
                "127.0.0.1",
            ]
            if not self._kraft:
                self.zookeeper = LocalZooKeeper(data_dir=directory / "zookeeper").start()
            for node in range(self._nodes):
                self._write_settings(node)
                if self._kraft:
                    self._format(node)
            for node in range(self._nodes):
                self._spawn(node)
            for broker in range(self._brokers):
                self._wait_until_ready(broker, among=self._brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops every broker, kills one that does not end, removes the data unless `data_dir` was given."""
        # All are asked before any is waited for: a KRaft broker hands over to a majority, which is gone if
        # they end in turn.
        children = [child for child in self._children if child is not None]
        for child in children:
            child.ask_to_stop()
        for child in children:
            child.stop()
        self._children = [None] * self._nodes
        if self.zookeeper is not None:
            self.zookeeper.stop()
            self.zookeeper = None
        self._remove_dir()

    def kill(self, broker: int = 0) -> None:
        """SIGKILL to one broker: data not yet in the page cache is lost, as in a crash of the process."""
        child = self._children[broker]
        if child is not None:
            child.kill()
            self._children[broker] = None

    def restart(self, broker: int = 0, config: Mapping[str, str] | None = None, version: str | None = None) -> None:
        """Starts a broker again, after stopping it if it runs, on the same port and data; returns when it answers.

        config: settings that change with it, for this broker alone. version: it is of this release from now on.
        """
        if version is not None:
            self._fetch(version)
            self._versions[broker] = version
        child = self._children[broker]
        if child is not None:
            child.stop()
        if config is not None:
            self._write_settings(broker, config)
        self._wait_until_forgotten(broker)
        self._spawn(broker)
        self._wait_until_ready(broker, among=1)

    def tool(
        self, main_class: str, *arguments: str, stdin: str = "", timeout_ms: int = 120_000
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command-line classes to its end, e.g. org.apache.kafka.tools.TransactionsCommand."""
        return subprocess.run(
            self._java_command("256m", main_class, *arguments, fast_start=True),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_ms / 1000,
            check=False,
        )

    def _fetch(self, version: str) -> None:
        assert self._java is not None, "start() comes first"
        name, artifacts = f"kafka-{version}", kafka_artifacts(version)
        if self._tiered:
            name, artifacts = f"{name}-tiered", artifacts + tiered_storage_artifacts(version)
        self._jars[version] = fetch(name, artifacts, self._java)

    def _java_command(
        self, heap: str, main_class: str, *arguments: str, fast_start: bool, version: str | None = None
    ) -> list[str]:
        assert self._java is not None and self._jars, "start() comes first"
        quick = ["-XX:TieredStopAtLevel=1"] if fast_start else []
        return [
            str(self._java.executable),
            f"-Xmx{heap}",
            *quick,
            *(f"-D{name}={value}" for name, value in self._system_properties.items()),
            "-Djava.awt.headless=true",
            f"-Dlog4j.configuration=file:{self.data_dir / 'log4j.properties'}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            *("-cp", f"{self._jars[version or self.version]}/*"),
            main_class,
            *arguments,
        ]

    def _settings_path(self, broker: int) -> Path:
        return self.data_dir / f"broker-{broker}.properties"

    def _write_settings(self, broker: int, config: Mapping[str, str] | None = None) -> None:
        copies = min(3, self._brokers)
        settings: dict[str, Any] = {
            "log.dirs": self.data_dir / f"broker-{broker}",
            "default.replication.factor": copies,
            "min.insync.replicas": max(1, copies - 1),
            "group.initial.rebalance.delay.ms": 0,
            # 50 by default, and each is a directory that is created before the first offset can be committed.
            "offsets.topic.num.partitions": 5,
        }
        for topic in _REPLICATED_TOPICS:
            settings[f"{topic}.replication.factor"] = copies
        settings["transaction.state.log.min.isr"] = settings["min.insync.replicas"]
        settings["share.coordinator.state.topic.min.isr"] = settings["min.insync.replicas"]
        session = "broker.session.timeout.ms" if self._kraft else "zookeeper.session.timeout.ms"
        settings[session] = _SESSION_TIMEOUT_MS
        settings |= self._quorum(broker) if self._kraft else self._of_zookeeper(broker)
        if "advertised.listeners" in settings:
            settings |= self._with_more_listeners(settings)
        if self._tiered:
            settings |= {
                "remote.log.storage.system.enable": "true",
                "remote.log.storage.manager.class.name": _REMOTE_STORE,
                "rsm.config.dir": self.data_dir / "remote",
                "remote.log.metadata.manager.listener.name": "PLAINTEXT",
                "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
                "rlmm.config.remote.log.metadata.topic.replication.factor": copies,
                # 30 s and 5 min by default: how soon segments go to the store, and local ones are deleted.
                "remote.log.manager.task.interval.ms": 500,
                "log.retention.check.interval.ms": 500,
                "log.initial.task.delay.ms": 500,
            }
        settings |= {**self._config, **(config or {})}
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        path = self._settings_path(broker)
        # The settings may contain passwords, and other users may have access to the data directory.
        path.touch()
        path.chmod(0o600)
        path.write_text(lines)

    def _with_more_listeners(self, settings: Mapping[str, Any]) -> dict[str, str]:
        doors = [f"{name}://{host}:{port}" for name, (_, host, port) in self._listeners.items()]
        protocols = [f"{name}:{protocol}" for name, (protocol, _, _) in self._listeners.items()]
        return {
            "listeners": ",".join([settings["listeners"], *doors]),
            "advertised.listeners": ",".join([settings["advertised.listeners"], *doors]),
            "listener.security.protocol.map": ",".join([settings["listener.security.protocol.map"], *protocols]),
        }

    def _of_zookeeper(self, broker: int) -> dict[str, Any]:
        assert self.zookeeper is not None
        listener = f"PLAINTEXT://127.0.0.1:{self._ports[broker]}"
        return {
            "broker.id": broker,
            "zookeeper.connect": self.zookeeper.hosts,
            "listeners": listener,
            "advertised.listeners": listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        }

    def _quorum(self, node: int) -> dict[str, Any]:
        """Who this node is among brokers and controllers, and where it and they listen."""
        settings: dict[str, Any] = {
            "broker.heartbeat.interval.ms": _SESSION_TIMEOUT_MS // 4,
            "node.id": node,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BROKERS:PLAINTEXT",
        }
        if not self._apart:
            controllers = [f"{n}@127.0.0.1:{self._ports[self._brokers + n]}" for n in range(self._brokers)]
            own = f"PLAINTEXT://127.0.0.1:{self._ports[node]}"
            return settings | {
                "process.roles": "broker,controller",
                "controller.quorum.voters": ",".join(controllers),
                "listeners": f"{own},CONTROLLER://127.0.0.1:{self._ports[self._brokers + node]}",
                "advertised.listeners": own,
            }
        hosts = self.data_dir / f"hosts-{node}"
        names = {"127.0.0.1": f"localhost {socket.gethostname()}"}
        hosts.write_text(
            "".join(f"{at} {name}\n" for at, name in [*names.items(), (self._controller_at[node], _CONTROLLER_HOST)])
        )
        controller = f"{_CONTROLLER_HOST}:{self._ports[-1]}"
        settings |= {"controller.quorum.voters": f"{self._brokers}@{controller}"}
        if node == self._brokers:
            return settings | {"process.roles": "controller", "listeners": f"CONTROLLER://{controller}"}
        # The brokers copy from each other without a front: what clients cannot reach still has its followers.
        among = f"BROKERS://127.0.0.1:{self._ports[self._brokers + node]}"
        return settings | {
            "process.roles": "broker",
            "inter.broker.listener.name": "BROKERS",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]},{among}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._advertised[node]},{among}",
        }

    def _format(self, broker: int) -> None:
        feature = (
            []
            if self._transaction_version is None
            else ["--feature", f"transaction.version={self._transaction_version}"]
        )
        arguments = [
            "format",
            "-t",
            _CLUSTER_ID,
            "-c",
            str(self._settings_path(broker)),
            "--ignore-formatted",
            *feature,
        ]
        answer = self.tool("kafka.tools.StorageTool", *arguments)
        if answer.returncode != 0:
            raise LocalError(f"Could not format the storage of Kafka {self.version}:\n{answer.stdout}{answer.stderr}")

    def _spawn(self, broker: int) -> None:
        settings, version = str(self._settings_path(broker)), self._versions[broker]
        command = self._java_command(self._heap, "kafka.Kafka", settings, fast_start=self._fast_start, version=version)
        if self._apart:
            command.insert(1, f"-Djdk.net.hosts.file={self.data_dir / f'hosts-{broker}'}")
        self._children[broker] = spawn(command, log_path=self.data_dir / f"broker-{broker}.log")

    def _wait_until_forgotten(self, broker: int) -> None:
        """Waits until ZooKeeper has dropped the killed broker's session; a new broker would exit at once.

        (A KRaft broker waits by itself.)
        """
        deadline = time.monotonic() + _READY_WITHIN_MS / 1000
        while self.zookeeper is not None and self.zookeeper.has(f"/brokers/ids/{broker}"):
            if time.monotonic() > deadline:
                raise LocalError(f"ZooKeeper still has broker {broker} after {_READY_WITHIN_MS} ms")
            time.sleep(_LOOK_AGAIN_AFTER_S)

    def _wait_until_ready(self, broker: int, *, among: int) -> None:
        """Returns when the broker itself reports a controller and at least `among` brokers."""
        child = self._children[broker]
        assert child is not None

        def answers() -> bool | None:
            with contextlib.suppress(OSError):
                if broker == self._brokers:
                    # A controller answers no Metadata. That it takes connections has to do.
                    socket.create_connection(("127.0.0.1", self._ports[-1]), timeout=1).close()
                    return True
                cluster = wire.describe("127.0.0.1", self._ports[broker])
                if cluster.controller_known and broker in cluster.brokers and len(cluster.brokers) >= among:
                    return True
            return None

        if first_answer(child, answers, _READY_WITHIN_MS, _LOOK_AGAIN_AFTER_S) is None:
            raise LocalError(f"Broker {broker} of Kafka {self.version} is not ready: {self._tail(broker)}")

    def _tail(self, broker: int) -> str:
        text = (self.data_dir / f"broker-{broker}.log").read_text(errors="replace")
        tail = f"the end of its log:\n{text[-_LOG_TAIL_CHARS:]}"
        # A broker that gives up writes why, and then a page of what it shuts down.
        at = text.find(" ERROR ")
        if at < 0 or at >= len(text) - _LOG_TAIL_CHARS:
            return tail
        begins = text.rfind("\n", 0, at) + 1
        return f"its first error:\n{text[begins : begins + _ERROR_CHARS]}\n{tail}"
