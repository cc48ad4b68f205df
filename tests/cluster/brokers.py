"""The cluster that is played with: three brokers and a controller of Apache Kafka, a proxy before each way to them.

Owns: the nodes and their proxies, who leads what, moving it.
Does not know: events, jobs.
Invariants:
- Clients reach a broker by its proxy only, and each broker reaches the controller by a proxy of its own, so one of
  these ways can be cut alone. Brokers copy from each other without one.
- What is played ends whole: `heal` mends every proxy, thaws every node and starts every node that is down.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from embedded_kafka.real import LocalKafka
from tests.cluster.proxies import Proxies, Proxy
from tests.differential.wire import Connection, HungUp

BROKERS = 3
HEAP = "320m"
INTERNAL = ("__transaction_state", "__consumer_offsets")

SETTINGS: dict[str, str] = {
    # Kafka's own default; LocalKafka misses a broker after 4 s. How long one is missed for decides every stall.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    # Leaders move when an event moves them.
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
}

_WAIT_S = 120.0
_LOOK_AGAIN_S = 0.1
_QUIET = {"log_level": 0}


class Cluster:
    """See the module. `versions`: of each node now, the controller last."""

    def __init__(self, version: str, proxies: Proxies, data_dir: Path | None, config: Mapping[str, str]) -> None:
        self._proxies = proxies
        self.to_broker: list[Proxy] = []
        self.to_controller: list[Proxy] = []
        self.versions = [version] * (BROKERS + 1)
        self.kafka = LocalKafka(
            version, brokers=BROKERS, kraft=True, controller_apart=True, heap=HEAP, fronts=self, fast_start=True,
            data_dir=data_dir, config={**SETTINGS, **config},
        )  # fmt: skip
        self._down: set[int] = set()
        self._frozen: set[int] = set()
        self._pause = threading.Event()

    # ---- what LocalKafka asks for: where clients and brokers go

    def of_broker(self, broker: int, port: int) -> int:
        """A proxy for clients."""
        self.to_broker.append(self._proxies.before(port))
        return self.to_broker[broker].port

    def of_controller(self, broker: int, port: int) -> str:
        """A proxy for this broker, on an address of its own: all of 127.0.0.0/8 is loopback, on Linux."""
        host = f"127.0.0.{broker + 2}"
        self.to_controller.append(self._proxies.before(port, host=host, at=port))
        return host

    # ---- nodes

    @property
    def bootstrap_servers(self) -> str:
        """Of the proxies."""
        return self.kafka.bootstrap_servers

    @property
    def controller(self) -> int:
        """Its number; it is a node like the brokers."""
        return self.kafka.controller

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self.kafka.kill(node)
        self._down.add(node)

    def start(self, node: int, version: str | None = None) -> None:
        """Start a node again, in another version if one is given; one that runs is asked to stop first."""
        self.kafka.restart(node, version=version)
        self.versions[node] = version or self.versions[node]
        self._down.discard(node)

    def freeze(self, node: int) -> None:
        """SIGSTOP: the kernel goes on taking connections and bytes, nobody answers."""
        os.kill(self.kafka.pid(node), signal.SIGSTOP)
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """SIGCONT."""
        os.kill(self.kafka.pid(node), signal.SIGCONT)
        self._frozen.discard(node)

    def heal(self) -> None:
        """Everything as it was: mended, thawed, up, and every partition with all of its replicas."""
        for proxy in (*self.to_broker, *self.to_controller):
            proxy.mend()
        for node in sorted(self._frozen):
            self.thaw(node)
        for node in sorted(self._down, reverse=True):
            self.start(node)
        self.await_in_sync()

    # ---- leaders

    @functools.cached_property
    def admin(self) -> AdminClient:
        """Another client's, by the proxies."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "socket.timeout.ms": 10_000, **_QUIET})

    def create(self, topic: str, partitions: int, **settings: str) -> None:
        """A topic with three replicas."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        for answer in self.admin.create_topics([NewTopic(topic, partitions, BROKERS, config=config)]).values():
            answer.result(_WAIT_S)

    def set(self, topic: str, name: str, value: str) -> None:
        """A setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for answer in self.admin.incremental_alter_configs([changed]).values():
            answer.result(_WAIT_S)

    def topics(self) -> list[str]:
        """All that there are, the internal ones among them."""
        return sorted(self.admin.list_topics(timeout=_WAIT_S).topics)

    def leaders(self, topic: str) -> list[int]:
        """Of each partition; -1 where there is none."""
        parts = self.admin.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions
        return [parts[number].leader for number in sorted(parts)]

    def move_leaders(self, topics: list[str]) -> None:
        """Every partition's leader becomes the replica behind it: the replicas' order is changed (kafka-reassign), then
        the preferred leaders are elected. No data moves.
        """
        found = self.admin.describe_topics(TopicCollection(topics))
        parts: list[dict[str, Any]] = []
        for topic in topics:
            for each in found[topic].result(_WAIT_S).partitions:
                order = [node.id for node in each.replicas]
                at = order.index(each.leader.id)
                parts.append({"topic": topic, "partition": each.id, "replicas": order[at + 1 :] + order[: at + 1]})
        with tempfile.TemporaryDirectory(prefix="cluster-") as directory:
            plan = Path(directory, "plan.json")
            plan.write_text(json.dumps({"version": 1, "partitions": parts}))
            self._tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")
            plan.write_text(json.dumps({"partitions": parts}))
            self._tool("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(plan))

    def spread_leaders(self) -> None:
        """Every partition gets its preferred leader, so that each broker leads as many as the others."""
        self.admin.elect_leaders(ElectionType.PREFERRED).result(_WAIT_S)
        self.await_in_sync()

    def _tool(self, name: str, *arguments: str) -> None:
        answer = self.kafka.tool(
            f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap_servers, *arguments
        )
        if answer.returncode != 0:
            raise RuntimeError(f"{name}: {answer.stdout}{answer.stderr}")

    def await_in_sync(self) -> None:
        """Wait until every broker says that each partition has a leader and all of its replicas in sync, and all say
        the same leaders; a RuntimeError after two minutes. One broker's word is not enough: it may be the stale one.
        """
        deadline = time.monotonic() + _WAIT_S
        while not _agreed(seen := [self.seen_by(broker) for broker in range(BROKERS)]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not in sync after {_WAIT_S:.0f} s: {seen}")
            self._pause.wait(_LOOK_AGAIN_S)

    def seen_by(self, broker: int) -> dict[tuple[str, int], tuple[int, int]] | None:
        """Partition -> (leader, replicas out of sync), as this broker knows them; None where it does not answer."""
        connection = Connection(f"127.0.0.1:{self.to_broker[broker].port}")
        connection.answers_within_s = 5.0
        try:
            answer = connection.call("Metadata", 5, topics=None, allow_auto_topic_creation=False)
        except (OSError, HungUp):
            return None
        finally:
            connection.close()
        return {
            (topic["name"], each["partition_index"]): (
                each["leader_id"],
                len(each["replica_nodes"]) - len(each["isr_nodes"]),
            )
            for topic in answer["topics"]
            for each in topic["partitions"]
        }


def _agreed(seen: list[dict[tuple[str, int], tuple[int, int]] | None]) -> bool:
    first = seen[0]
    return (
        bool(first)
        and all(each == first for each in seen)
        and all(leader >= 0 and not out for leader, out in (first or {}).values())
    )


@contextlib.contextmanager
def started(version: str, data_dir: Path | None = None, **config: str) -> Iterator[Cluster]:
    """A cluster that runs; nothing of it is left, but for its data and logs where they have a directory. `config`:
    brokers' settings, `_` for a point.
    """
    with Proxies() as proxies:
        cluster = Cluster(version, proxies, data_dir, {name.replace("_", "."): value for name, value in config.items()})
        try:
            cluster.kafka.start()
            yield cluster
        finally:
            # One that is frozen would be waited for before it is killed.
            for node in sorted(cluster._frozen):
                cluster.thaw(node)
            cluster.kafka.stop()
