"""The output topics' configurations, cached by this process; a refusal by stale ones is retried, not reported.

Owns: the topics' rules that a process remembers, and how old they may get.
Does not know: rows, how a refused row is described.
Invariants:
- A refusal tells the author to act only where the topic's settings of now are those that the rows were judged by.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace

from kafka_core import runtime
from kafka_core.errors import AbortableError, ExactlyOnceError, InvalidRow
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import Basis, ClientSettings, TopicRules


def _none_seen() -> dict[tuple[ClientSettings, str], tuple[float, TopicRules]]:
    return {}


_seen = runtime.PerProcess(_none_seen)
"""(cluster, output topic) -> when this process asked for its partitions and its rules, and the rules."""

_NAMES = {
    "max_batch_bytes": admin.MAX_BYTES,
    "needs_keys": f"{admin.POLICY}=compact",
    "back_ms": admin.BACK,
    "ahead_ms": admin.AHEAD,
    "keeps_ms": admin.RETENTION,
}
"""Rules -> the settings that a person knows them by."""


def topic_rules(cluster: Cluster, topic: str) -> TopicRules:
    """What a topic takes by its settings.

    They and its partitions are at most as old as `kafka.metadata.max.age.ms` when this returns: Spark keeps workers for
    days, and partitions are added meanwhile.
    """
    known = _seen().get((cluster.settings, topic))
    if known is not None and runtime.monotonic() - known[0] <= cluster.settings.metadata_max_age_ms / 1000:
        return known[1]
    if known is not None:
        cluster.topic(topic, refresh=True)
    return _read(cluster, topic)


def _read(cluster: Cluster, topic: str) -> TopicRules:
    rules = admin.topic_rules(cluster, topic)
    _seen()[cluster.settings, topic] = (runtime.monotonic(), rules)
    return rules


def judged_again(cluster: Cluster, refusal: InvalidRow, used: Basis) -> ExactlyOnceError:
    """AbortableError in place of a refusal of rows that were judged by other settings than their topic has now, which
    this process keeps;
    else the refusal. `used`: what the rows were judged by, without what a decision had. One request.
    """
    topic = refusal.facts.get("topic")
    rules = dict(used.topics).get(topic) if isinstance(topic, str) else None
    if rules is None:
        return refusal
    assert isinstance(topic, str)
    with suppress(ExactlyOnceError):
        now = replace(_read(cluster, topic), must_keep=rules.must_keep)
        moved = [
            f"{_NAMES[each.name]} was {getattr(rules, each.name)} and is {getattr(now, each.name)}"
            for each in fields(TopicRules)
            if getattr(rules, each.name) != getattr(now, each.name)
        ]
        if moved:
            return AbortableError(
                f"the settings of topic {topic!r} are others than those that this task has judged its rows by ({', '.join(moved)}); nothing "
                f"is concluded from the refusal: {refusal.message.partition(';')[0]}; the next attempt judges the rows by the settings of now",
                {"topic": topic, "changed": tuple(moved)},
            )  # fmt: skip
    return refusal


__all__ = ["judged_again", "topic_rules"]
