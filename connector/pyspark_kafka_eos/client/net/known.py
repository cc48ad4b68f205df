"""What is known of the cluster's brokers: their addresses, the cluster's id, which broker was reached how.

Owns: the address of each broker by the newest answer of any, back-off after failures, the reasons of the last attempts.
Does not know: sockets, when anybody is asked.
Invariants:
- An address follows each answer that names its broker; the connection to the former one serves no new request (`pool`).
- An answer without brokers takes none away.
- An answer of another cluster is not taken, and the error says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka_core import runtime
from kafka_core.errors import OptionsError
from pyspark_kafka_eos.client.net.opening import Place

BACKOFF_S, BACKOFF_AT_MOST_S = 0.05, 1.0
"""Java's reconnect.backoff.ms and its greatest value (reconnect.backoff.max.ms). Half of the first loads a broker that
starts; Kafka's library for Python has half a minute for the second, which would far outlast a coordinator's move.
"""

CONNECTING_S, CONNECTING_AT_MOST_S = 10.0, 30.0
"""Java's socket.connection.setup.timeout.ms and .max.ms: for all steps of a connection. Half refuses far brokers that
are busy; with double a dead one costs a request's whole time.
"""

_JITTER = (0.8, 1.2)
"""KIP-144: many clients of a broker that is back do not come at the same moments."""

_REASONS_S = 600.0
"""How long the reason of a failure is told: what failed before that says nothing of now."""


def servers_of(given: Iterable[str]) -> tuple[Place, ...]:
    """The bootstrap servers, `host:port` each, an IPv6 address in brackets."""
    found = []
    for each in given:
        host, _, port = each.rpartition(":")
        found.append(Place(host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


@dataclass
class _Attempts:
    """Of one broker or server: failures in a row, when the next attempt may be, what the last one ended with."""

    failures: int = 0
    not_before: float = 0.0
    reason: str = ""
    explanation: str = ""
    failed_at: float = 0.0


class Known:
    """For any thread, but for the attempts, which are the loop's. Its values are replaced and never changed in
    place.
    """

    def __init__(self, servers: Iterable[str]) -> None:
        self._changing = runtime.lock()
        self.servers = servers_of(servers)
        self.cluster_id: str | None = None
        self.brokers: dict[int, Place] = {}
        self._attempts: dict[Place, _Attempts] = {}
        self._ever_reached: set[Place] = set()

    # ---- addresses

    def take(self, brokers: Iterable[Any], cluster_id: str | None, *, all_of_them: bool = False) -> None:
        """Keep the addresses that an answer names. `all_of_them`: no other broker is left of those that were known.
        OptionsError, and nothing is kept, for another cluster's.
        """
        if cluster_id and self.cluster_id and cluster_id != self.cluster_id:
            raise OptionsError(
                f"kafka.bootstrap.servers leads to another cluster now: {cluster_id} answers, and this process has been using "
                f"{self.cluster_id}; nothing was sent there; correct the address, or start the query anew where the other "
                "cluster is meant",
                {"cluster": cluster_id, "cluster_before": self.cluster_id},
            )
        named = {each.node_id: Place(each.host, each.port, each.node_id) for each in brokers}
        if named:
            with self._changing:
                self.cluster_id = cluster_id or self.cluster_id
                self.brokers = named if all_of_them else {**self.brokers, **named}

    def moved_to(self, node: int, host: str, port: int) -> None:
        """Keep the address of one broker, as an answer names it."""
        place = Place(host, port, node)
        if self.brokers.get(node) != place:
            with self._changing:
                self.brokers = {**self.brokers, node: place}

    # ---- attempts

    def delay_s(self, place: Place) -> float:
        """How long until the next attempt at this address, 0 for now."""
        found = self._attempts.get(place)
        return 0.0 if found is None else max(0.0, found.not_before - runtime.monotonic())

    def allowed_s(self, place: Place) -> float:
        """How long the next attempt may take."""
        found = self._attempts.get(place)
        return _grown(CONNECTING_S, CONNECTING_AT_MOST_S, found.failures if found else 0)

    def failed(self, place: Place, reason: str) -> None:
        """An attempt has failed: the next one waits, longer each time."""
        found = self._attempts.setdefault(place, _Attempts())
        found.failures += 1
        found.reason, found.failed_at = reason, runtime.monotonic()
        found.not_before = found.failed_at + _grown(BACKOFF_S, BACKOFF_AT_MOST_S, found.failures - 1)

    def explained(self, place: Place, why: str) -> None:
        """What is behind the failures at this address, which tell less; until it is reached."""
        self._attempts.setdefault(place, _Attempts()).explanation = why

    def reached(self, place: Place) -> None:
        """An attempt was a success."""
        self._attempts.pop(place, None)
        self._ever_reached.add(place)

    def explanation_at(self, place: Place) -> str:
        """What is behind the failures at this address, empty where nobody has found that out."""
        found = self._attempts.get(place)
        return found.explanation if found else ""

    def reason_at(self, place: Place) -> str:
        """What the last attempt at this address has ended with, or what is behind it; empty where it was a success, or
        long ago.
        """
        found = self._attempts.get(place)
        recent = found is not None and runtime.monotonic() - found.failed_at < _REASONS_S
        return found.explanation or found.reason if found and recent else ""

    def only_advertised(self, place: Place) -> bool:
        """Whether this address is known by a broker's word alone: nobody has set it, and it was never reached."""
        given = {(each.host, each.port) for each in self.servers}
        return place not in self._ever_reached and (place.host, place.port) not in given

    def reasons(self) -> str:
        """Why the brokers are not reached: for each its address and what the last attempt has ended with; and the
        remedy where only the bootstrap servers were ever reached, by addresses that no broker names.
        """
        brokers = sorted(self.brokers.items())
        told = [f"broker {node} at {place}: {why}" for node, place in brokers if (why := self.reason_at(place))]
        said = "; ".join(told)
        if not told or not all(self.only_advertised(place) for place in self.brokers.values()):
            return said
        servers = ", ".join(map(str, self.servers))
        return (
            f"{said}; kafka.bootstrap.servers ({servers}) has answered with these addresses, and none of them was ever reached from "
            "this machine: correct advertised.listeners of the brokers, or have this machine reach them"
        )


def _grown(first_s: float, most_s: float, failures: int) -> float:
    return min(most_s, first_s * 2.0 ** min(failures, 30)) * random.uniform(*_JITTER)
