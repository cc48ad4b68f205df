"""A moment that no point of the code can be: the driver's ends are on their way, and only some of them have arrived.

The driver sends all ends at once, so this depends on the network. Here the driver is stopped before it sends any, and
the first ones are asked for by somebody else: the coordinators are then as they would be, and the driver's own path is
not touched.

Owns: the name of that moment beside those of `pyspark_kafka_eos.crash_points`, and asking for the ends.
Does not know: what happens to the driver then.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import EndRequest, Transactions
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions

ENDS_ARRIVED = "ends-arrived"
"""`ends-arrived:k`: the batch is decided, the ends of its first k slots have arrived, and the others are lost."""


def arm(point: str, options: Mapping[str, str], action: Callable[[], None] | None = None) -> None:
    """As `crash_points.arm`, of a point `name` or `name:k`, ENDS_ARRIVED among them; `options`: those of the sink."""
    name, _, count = point.partition(":")
    if name != ENDS_ARRIVED:
        crash_points.arm(name, int(count or 1), action)
        return

    def arrive() -> None:
        end_first(options, int(count or 1))
        (action or _die)()

    crash_points.arm("before-end", 1, arrive)


def end_first(options: Mapping[str, str], slots: int) -> None:
    """Commit the transactions of the first slots of the pipeline's newest decision, as their driver would have it."""
    # A stream's options are those of a write, less one.
    parsed = SinkOptions.parse(dict(options), "batch")
    cluster = Cluster(parsed.client)
    try:
        # Kafka answers an EndTxn before its marker is in the log, without which nobody reads the decision.
        decision = Ledger(cluster, parsed.ledger_topic, parsed.pipeline).newest(settle=True)
        assert decision is not None, "the decision is not in the ledger"
        requests = [
            EndRequest(seal.transactional_id, seal.identity, True, seal.transaction_version)
            for seal in decision.seals[:slots]
            if seal.identity is not None
        ]
        assert len(requests) == slots, "the batch has fewer slots"
        answers = Transactions(cluster).end_many(requests)
        assert all(answer.definite for answer in answers), answers
    finally:
        cluster.close()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
