"""Whether the ledger has lost decisions, judged by the coordinators' state of a pipeline's transactional ids.

Owns: which commits the newest decision accounts for.
Does not know: how ids are found, what follows from a loss.
Invariants: a commit is named by the newest decision, which records the identity that each id was left at, or by a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger

_LAST_EPOCHS = 32_760
"""Epochs end at 32767; then the id gets another producer id at epoch 0. From this epoch on, an identity may
follow that no decision can name. A few epochs of room cost nothing."""


def unnamed_commits(view: LedgerView, shown: Mapping[str, ProducerIdentity]) -> list[str]:
    """The ids that are committed under an identity which neither the newest decision nor a note accounts for, in order.

    `shown`: the ids whose coordinator reports CompleteCommit, each with the identity that it reports.
    """
    newest = view.newest
    if newest is None:
        return []
    ends = view.last_commits
    found = []
    for name, identity in shown.items():
        named = ends.get(name)
        rolled_over = named is not None and named.epoch >= _LAST_EPOCHS
        if identity != named and (name, identity) not in view.mended and not rolled_over:
            found.append(name)
    return sorted(found)


def with_every_mending(ledger: Ledger, view: LedgerView, shown: Mapping[str, ProducerIdentity]) -> LedgerView:
    """The view with every mending that the ledger has a note of, where it leaves a commit unnamed without them.

    A decision carries on the mendings that its writer knew. Another process (an operator's `transactions commit`, an
    older run that is still ending its batch) may have noted one of which that writer knew nothing, and many records may
    be behind that note by now. A mending holds no records, so an id that is left at one has lost none, however old its
    note is.
    """
    if not unnamed_commits(view, shown):
        return view
    return replace(view, mended=view.mended | ledger.mended())
