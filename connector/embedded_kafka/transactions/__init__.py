"""Transactions: the producer that may write under a transactional id, the partitions of its
transaction, and its end.

Owns: the coordinator of every transactional id, and its log.
Does not know: sockets, partitions' records, groups.
"""

from __future__ import annotations

from embedded_kafka.transactions.coordinator import TransactionCoordinator

__all__ = ["TransactionCoordinator"]
