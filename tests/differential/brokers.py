"""The brokers that are compared: embedded and real ones, each with what it needs to be asked at once.

Owns: their settings, and that their coordinators are there before the first scenario.
Does not know: scenarios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, LocalKafka
from tests.differential.play import Play, Step, new_token
from tests.differential.script import Scenario
from tests.differential.wire import Connection

_GROUP, _TRANSACTION = 0, 1
_BEFORE_STRICT_MARKERS = "4.1.1"
"""The last line of releases whose leaders do not look at a marker's transaction version."""
_SETTINGS = {
    # 50 by default, and a real broker makes a directory for each before the first scenario.
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    # Records of the script are years older than markers, and a segment that spans more than a week is closed.
    "log.roll.ms": str(10**13),
    "log.cleaner.backoff.ms": "100",
    "group.consumer.heartbeat.interval.ms": "5000",
}
_REAL_SETTINGS = {
    **_SETTINGS,
    # Every 10 s by default; the embedded broker looks ten times a second.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # A new target waits up to a second for more changes; the embedded broker makes it at once.
    "group.consumer.assignment.interval.ms": "0",
}


@dataclass(frozen=True)
class Pair:
    """The embedded broker, set to a transaction version, beside the real one that has it."""

    name: str
    real_version: str
    transaction_version: int
    new_protocol: bool
    """The script's requests are those of a client of version 2; else of version 1, which a newer broker serves too."""
    slow_too: bool = False
    consumer_protocol: bool = False
    """The real one has the groups of KIP-848 as they are in Kafka 4.4 (with KIP-1251)."""
    migration_policy: str = ""
    """`group.consumer.migration.policy` of both, the default where it is empty. Only what depends on it is played."""

    def plays(self, scenario: Scenario) -> bool:
        """Whether a scenario says something here that it does not say elsewhere."""
        if self.migration_policy:
            return scenario.migrates
        if scenario.consumer_protocol:
            return self.consumer_protocol
        if scenario.slow:
            return self.slow_too
        return scenario.both_protocols or not self.new_protocol


PAIRS = {
    pair.name: pair
    for pair in (
        Pair("3.9.1", NEWEST_ZOOKEEPER_KAFKA, 1, new_protocol=False, slow_too=True),
        Pair("4.1.1", _BEFORE_STRICT_MARKERS, 2, new_protocol=True),
        Pair("4.1.1, older client", _BEFORE_STRICT_MARKERS, 2, new_protocol=False),
        Pair("4.4.0", NEWEST_KAFKA, 2, new_protocol=True, slow_too=True, consumer_protocol=True),
        Pair("4.4.0, older client", NEWEST_KAFKA, 2, new_protocol=False),
        Pair("4.4.0, version 1", NEWEST_KAFKA, 1, new_protocol=False),
        *(
            Pair(f"4.4.0, {policy}", NEWEST_KAFKA, 2, new_protocol=True, migration_policy=policy)
            for policy in ("upgrade", "downgrade", "disabled")
        ),
    )
}


class Brokers:
    """Starts each broker when it is first asked for; all are stopped at the end of `open_brokers`."""

    def __init__(self, stack: ExitStack, given: Mapping[str, str]) -> None:
        self._stack = stack
        self._addresses = dict(given)

    def transcripts(self, scenario: Scenario, pair: Pair) -> tuple[list[Step], list[Step]]:
        """What the embedded broker and the real one say to a scenario."""
        embedded, real = self.embedded(pair), self.real(pair)
        token = new_token()
        return (
            play(scenario, embedded, pair.new_protocol, token),
            play(scenario, real, pair.new_protocol, token),
        )

    def embedded(self, pair: Pair) -> str:
        """Address of the embedded broker with that feature and that policy."""
        name = _name("embedded", pair)
        if name not in self._addresses:
            config = {**_SETTINGS, **_policy(pair), "transaction.version": str(pair.transaction_version)}
            self._ready(name, self._stack.enter_context(EmbeddedKafka(config=config)).bootstrap_servers)
        return self._addresses[name]

    def real(self, pair: Pair) -> str:
        """Address of a real broker."""
        name = _name(pair.real_version, pair)
        if name not in self._addresses:
            # The line with ZooKeeper has version 1 and no feature to say so.
            feature = None if pair.real_version == NEWEST_ZOOKEEPER_KAFKA else pair.transaction_version
            config = {**_REAL_SETTINGS, **_policy(pair)}
            broker = LocalKafka(pair.real_version, config=config, transaction_version=feature, fast_start=True)
            self._ready(name, self._stack.enter_context(broker).bootstrap_servers)
            # Its data goes anyway, and closing the logs of some thousand topics in good order takes half a minute.
            self._stack.callback(broker.kill)
        return self._addresses[name]

    def _ready(self, name: str, address: str) -> None:
        self._addresses[name] = address
        _find_coordinators(address)


def _name(broker: str, pair: Pair) -> str:
    return "-".join(filter(None, (broker, str(pair.transaction_version), pair.migration_policy)))


def _policy(pair: Pair) -> dict[str, str]:
    return {"group.consumer.migration.policy": pair.migration_policy} if pair.migration_policy else {}


@contextmanager
def open_brokers(given: Mapping[str, str] | None = None) -> Iterator[Brokers]:
    """`given`: addresses of brokers that run already, by their names ("embedded-2", "3.9.1-1")."""
    with ExitStack() as stack:
        yield Brokers(stack, given or {})


def play(scenario: Scenario, address: str, new_protocol: bool, token: str) -> list[Step]:
    """One scenario on one broker, on a connection of its own."""
    playing = Play(Connection(address), new_protocol, token)
    try:
        scenario.play(playing)
    finally:
        playing.connection.close()
    return playing.transcript


def _find_coordinators(address: str) -> None:
    """A real broker makes the topics of its coordinators when somebody looks for one."""
    playing = Play(Connection(address), False, new_token())
    for kind in (_GROUP, _TRANSACTION):
        for key in range(20):
            playing.ask(None, "FindCoordinator", 2, key=f"warm-{key}", key_type=kind)
    for key in range(20):
        playing.init(None, f"warm-{key}")
        playing.committed(None, f"warm-{key}", "warm")
    playing.connection.close()
