"""The brokers of the cluster: their ids, addresses, lives, and what the controller holds of each.

Owns: one record for each broker, for as long as the cluster runs, also while the broker is down.
Does not know: sockets, partitions' leaders (`topics.leaders`), when a broker is fenced (`controller`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from embedded_kafka.cluster.life import BrokerState, CutOff, Event, Froze, Life, Rejoined, Thawed
from kafka_core.errors import IllegalMove

LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """Where a broker can be reached, or says that it can."""

    node_id: int
    host: str
    port: int


@dataclass(eq=False)
class Broker:
    """One broker. `port` is as given until it listens, and the true one from then on."""

    node_id: int
    port: int = 0
    host: str = LOOPBACK
    advertised: tuple[str, int] | None = None
    """What clients are told instead of its own address: advertised.listeners."""
    life: Life = field(default_factory=Life)
    fenced: bool = False
    """Whether the controller has given it up: it leads nothing, and metadata do not name it."""
    silent_since_ms: int | None = None
    """Since when the controller has not heard of it."""
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while it is frozen."""

    def __post_init__(self) -> None:
        self.goes_on.set()

    @property
    def address(self) -> Address:
        """Where clients are sent."""
        host, port = self.advertised or (self.host, self.port)
        return Address(self.node_id, host, port)

    @property
    def frozen(self) -> bool:
        """Whether it answers nothing."""
        return self.life.state is BrokerState.FROZEN

    @property
    def serves(self) -> bool:
        """Whether other brokers have answers from it."""
        return self.life.state in (BrokerState.UP, BrokerState.CUT_OFF)

    def happens(self, event: Event) -> None:
        """Make a move of its life. ValueError where that cannot happen now; nothing has changed then."""
        try:
            self.life, _ = self.life.handle(event)
        except IllegalMove:
            what = {Froze: "frozen", Thawed: "thawed", CutOff: "cut off", Rejoined: "let in again"}.get(
                type(event), "moved"
            )
            raise ValueError(f"broker {self.node_id} is {self.life.state.value}, so it cannot be {what}") from None
        if self.frozen:
            self.goes_on.clear()
        else:
            self.goes_on.set()


class Brokers:
    """All brokers, in the order of their ids. `cluster_id`: empty until the cluster has started."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._by_id = {node_id: Broker(node_id) for node_id in node_ids}
        self.cluster_id = ""

    def __getitem__(self, node_id: int) -> Broker:
        return self._by_id[node_id]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ids(self) -> list[int]:
        """Every broker's id."""
        return list(self._by_id)

    @property
    def alive(self) -> list[Broker]:
        """Those that the controller has not given up."""
        return [each for each in self if not each.fenced]

    @property
    def controller(self) -> int:
        """The id that clients are told; -1 where no broker is alive.

        With KRaft every broker passes on what is for the controller, and names any broker that is alive. The first one
        keeps a test's answers the same.
        """
        return next((each.node_id for each in self if not each.fenced), -1)
