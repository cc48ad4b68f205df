"""The brokers that answer while one hangs: who was silent a moment ago, and a question to the rest.

Owns: the memory of silent brokers, and the order in which the others are asked.
Does not know: what is asked, what a hanging request is for.
Invariants: no request that hangs is timed out here, since that would end a connection which others use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.net.network import Answer, Network, Node
from pyspark_kafka_eos.client.wire.versions import Request

_SILENT_FOR_S = 10.0
"""How long a broker that left a request unanswered is asked only where there is no other. With half, a frozen one costs
a second more often; with double, one that came back has less to do for so long.
"""


class OtherBrokers:
    """Of one cluster, for one process. Usable from any thread."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._silent_s: dict[int, float] = {}
        """Broker -> when it was seen to leave a request unanswered."""

    def silent(self) -> set[int]:
        """The brokers that were silent a moment ago."""
        now_s = runtime.monotonic()
        # A copy: any thread may add one.
        return {node for node, since_s in list(self._silent_s.items()) if now_s - since_s < _SILENT_FOR_S}

    def note(self, brokers: Collection[Node]) -> None:
        """These leave a request unanswered."""
        now_s = runtime.monotonic()
        self._silent_s.update((node, now_s) for node in brokers if isinstance(node, int))

    def ask(self, request: Request, hanging: Collection[Node]) -> m.Message | None:
        """The first answer of a broker beside those that hang; None where nobody else answers within a second each."""
        return next(self.answers(request, hanging), None)

    def answers(self, request: Request, hanging: Collection[Node]) -> Iterator[m.Message]:
        """One after another, as they are wanted."""
        self.note(hanging)
        for other in self._network.brokers():
            if other in self.silent():
                continue
            silent = BrokerUnavailable(f"broker {other} has not answered for a second")

            def give_up(_: Sequence[int], why: Answer = silent) -> Mapping[int, Answer]:
                return {0: why}

            (answer,) = self._network.call_many([(other, request)], elsewhere=give_up)
            if not isinstance(answer, ExactlyOnceError):
                yield answer
            if answer is silent:
                self.note([other])
