"""The proof of a pipeline's newest batches, or of all pipelines': from the ledger to the verdicts.

Owns: which decisions are proven, which others are known beside them.
Does not know: how logs are read, how a verdict comes about (`audit`).
Invariant: the decisions of a pipeline behind a record that cannot be read are no history, so nothing before it is
concluded from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafka_core.errors import ExactlyOnceError, LedgerUnreadable
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.operations.audit import Audit, History, prove, together, without_replaced
from pyspark_kafka_eos.operations.history import LedgerEntry, counted, newest_first, newest_of_each
from pyspark_kafka_eos.operations.known import judge_each
from pyspark_kafka_eos.operations.standing import known_by, newest_decided

_FURTHER = 100
"""Decisions that a run may make while its output is read: minutes of a busy query. With more than that, what is found
beside the decided batches is older than the oldest one that is known then, and not judged.
"""


def prove_newest(
    cluster: Cluster,
    ledger: str,
    pipeline: str | None,
    last: int,
    topics: Iterable[str],
    progress: Callable[[int, int], None],
) -> tuple[Audit, dict[str, ExactlyOnceError]]:
    """`prove` for the `last` decided batches of a pipeline, or of each one, as far as the ledger topic has them. With
    all pipelines, those that cannot be judged are returned with the error instead: anybody may have written what they
    have in the ledger.

    LedgerUnreadable where the newest record of the one pipeline asked for is no decision; otherwise as `prove`.
    """

    def newer(name: str) -> Sequence[Decision]:
        at = Ledger(cluster, ledger, name)
        noted = at.look().newest
        pages = newest_first(cluster, ledger, name, 2 * last + _FURTHER, lambda _: at.producer_ids)
        found = newest_of_each(pages).get(name, [])
        known = _known(counted(found, at.producer_ids))
        return known if noted is None or noted in known else [*known, noted]

    pages = newest_first(cluster, ledger, pipeline, 2 * last, known_by(cluster, ledger))
    entries = newest_of_each(pages)

    def history(name: str) -> History:
        at = Ledger(cluster, ledger, name)
        newest = newest_decided(cluster, at)
        return _history(counted(entries[name], at.producer_ids), newest, last)

    named = pipeline is not None
    histories, problems = judge_each(entries, history, named=named)
    try:
        return prove(cluster, list(histories.values()), topics, newer, progress), problems
    except ExactlyOnceError:
        if named:
            raise
    # Each by itself: what one names (a topic without the right to read it, a leader that never was) ends no other.
    proofs, more = judge_each(histories, lambda name: prove(cluster, [histories[name]], topics, newer, progress))
    return together(proofs.values()), problems | more


def _history(own: Sequence[LedgerEntry], newest: Decision | None, last: int) -> History:
    """`newest`: the decision that the next run would take for the newest one; a broker may have forgotten its
    marker.
    """
    known, ended = _known(own), _known([each for each in own if not each.open])
    more = [] if newest is None else [newest]
    known += [each for each in more if each not in known]
    ended += [each for each in more if each not in ended]
    ended = without_replaced(ended)
    return History(known, ended[-last:], len(ended) > last)


def _known(own: Sequence[LedgerEntry]) -> list[Decision]:
    """The decisions after the newest unreadable record, because that record's batches are unknown.
    LedgerUnreadable where it is the last record."""
    unreadable = max((at for at, each in enumerate(own) if each.problem), default=-1)
    if own and unreadable == len(own) - 1:
        each = own[-1]
        raise LedgerUnreadable(
            f"the ledger's record at offset {each.offset} of {each.where} is not a decision: {each.problem}; "
            "nothing was verified",
            {"pipeline": each.pipeline, "offset": each.offset},
        )
    return [each.decision for each in own[unreadable + 1 :] if each.decision is not None]
