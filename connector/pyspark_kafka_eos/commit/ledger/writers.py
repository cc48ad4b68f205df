"""Who writes a pipeline's records into the ledger: the producer ids of its own transactional ids.

Owns: what the coordinators, the decisions and this process say of these.
Does not know: what the records say.
Invariants:
- A record counts where one of these producer ids wrote it first in a transaction. Brokers let no other transactional id
  begin one under them in a partition (KIP-890, from 3.6 on).
- A record is called foreign only beside one that is known to be the pipeline's. A coordinator forgets an id after
  `transactional.id.expiration.ms`, and gives it another producer id when its epochs are at their end; a ledger that was
  copied to another cluster has no producer ids. Then nobody can tell, and what the ledger has is believed.

The coordinators' word of now does for a pipeline at work. A decision names the producer ids that its pipeline had then,
so what was noted and decided beside it stays known when one of them is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_core.errors import AuthorizationFailed
from kafka_core.values import NO_PRODUCER_ID
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import batch_transactional_id, driver_transactional_id, notes_transactional_id
from pyspark_kafka_eos.records import BatchInfo

_NAMED = 8
"""How many producer ids a decision names, the newest ones. A pipeline has three, and each start after a long rest has
three others; half would leave out those of one rest, double would lengthen every decision for nothing.
"""


def begins_transaction(info: BatchInfo, behind: int = 0) -> bool:
    """Whether a batch is what its producer's transaction begins with in this partition, or the one so many records
    behind that.

    Each transaction of this package in the ledger begins an epoch, so the sequence says where in it a batch stands.
    Into one that has begun, whoever has a transactional id of his own may write: a broker asks the coordinator no more.
    """
    return info.transactional and info.base_sequence == behind


class Writers:
    """Of one pipeline, as one process knows them. Not for several threads."""

    def __init__(self, cluster: Cluster, pipeline: str, *, fresh: bool = False) -> None:
        """`fresh`: the name was made up for this process, so nobody is asked."""
        self.decided = False
        """Whether a coordinator shows a commit of an id that decides, as of the last answer."""
        self._known: dict[int, None] = {}
        self._transactions = Transactions(cluster)
        self._unasked, self._askable = True, not fresh
        self._ids = [
            make(pipeline) for make in (driver_transactional_id, batch_transactional_id, notes_transactional_id)
        ]

    @property
    def producer_ids(self) -> frozenset[int]:
        """The producer ids. Empty where nobody can be asked, or the coordinators know none of the ids."""
        return frozenset(self._known)

    @property
    def named(self) -> tuple[int, ...]:
        """Those for a decision to name."""
        return tuple(self._known)[-_NAMED:]

    def ask_coordinators(self, *, again: bool = False) -> None:
        """Ask the coordinators, once; `again`: whatever they have said before. Without the right to ask nobody is
        known.
        """
        if not self._askable or not (self._unasked or again):
            return
        try:
            views = self._transactions.describe(self._ids, sure=again)
        except AuthorizationFailed:
            self._askable = False
            return
        self._unasked = False
        self.learn(each.identity.producer_id for each in views.values())
        *deciding, _notes = (views[name] for name in self._ids)
        self.decided = any(each.state == "CompleteCommit" for each in deciding)

    def learn(self, producer_ids: Iterable[int]) -> None:
        """These are the pipeline's too."""
        for each in producer_ids:
            if each != NO_PRODUCER_ID:
                # The order is that of the last word.
                self._known.pop(each, None)
                self._known[each] = None


__all__ = ["Writers"]
