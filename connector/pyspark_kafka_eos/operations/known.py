"""Whether the ledger or a coordinator has the name that an operator gave.

Owns: refusing a pipeline or a transactional id that neither has, with the nearest existing name; going through all
pipelines that the ledger names.
Does not know: which operation the name is for.
Invariants:
- Nothing is written or created.
- A name is refused only after the ledger and every coordinator were asked.
- Of all pipelines, one that cannot be judged hides no other: whoever may write to the ledger may put any name there,
  and anything under it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from kafka_core.errors import ExactlyOnceError, LedgerUnreadable, UnknownPipeline, UnknownTopic
from kafka_core.similar import did_you_mean
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.operations.history import pipelines_of
from pyspark_kafka_eos.operations.leftovers import own_ids, pipelines_with_ids
from pyspark_kafka_eos.operations.standing import look, may_be_named

T = TypeVar("T")


def judge_each(
    names: Iterable[str], judge: Callable[[str], T], *, named: bool = False
) -> tuple[dict[str, T], dict[str, ExactlyOnceError]]:
    """What `judge` finds of each pipeline, in the order of their names, and the error of each one that it raises for.
    `named`: the user has named the one pipeline, so its error is raised.
    """
    found: dict[str, T] = {}
    problems: dict[str, ExactlyOnceError] = {}
    for name in sorted(names):
        try:
            if not named and not may_be_named(name):
                raise LedgerUnreadable(
                    "no pipeline can have this name: another program wrote under such a key; nothing was changed"
                )
            found[name] = judge(name)
        except ExactlyOnceError as error:
            if named:
                raise
            problems[name] = error
    return found, problems


def require_known(cluster: Cluster, ledger_topic: str, pipeline: str, ids: Collection[str] = ()) -> None:
    """UnknownPipeline where neither the ledger nor a coordinator has the pipeline, or one of these ids of it."""
    own = own_ids(cluster, pipeline)
    in_ledger: set[str] = set()
    decided = _decided_ids(cluster, ledger_topic, pipeline)
    if not own and decided is None:
        with suppress(UnknownTopic):
            in_ledger = pipelines_of(cluster, ledger_topic)
    if not own and decided is None and pipeline not in in_ledger:
        raise UnknownPipeline(
            f"no pipeline is named {pipeline!r}: ledger topic {ledger_topic!r} has no decision for it, and no coordinator "
            f"lists a transactional id of it that this user may describe; nothing was changed"
            + did_you_mean(pipeline, {*pipelines_with_ids(cluster), *in_ledger}),
            {"pipeline": pipeline},
        )
    own |= decided or set()
    for name in ids:
        if name not in own:
            raise UnknownPipeline(
                f"pipeline {pipeline!r} has no transactional id {name!r}: no coordinator lists it, and the newest decision does "
                f"not contain it; nothing was changed{did_you_mean(name, own)}",
                {"pipeline": pipeline, "transactional_id": name},
            )


def _decided_ids(cluster: Cluster, ledger_topic: str, pipeline: str) -> set[str] | None:
    """The ids that the ledger names for a pipeline, None where it has nothing of it."""
    try:
        view = look(Ledger(cluster, ledger_topic, pipeline))
    except LedgerUnreadable:
        # There is a record of it; other checks report what is wrong with the record.
        return set()
    if view.newest is None:
        return None if view.open is None and not view.mendings else set(view.mendings)
    return {seal.transactional_id for seal in view.newest.seals} | set(view.mendings)
