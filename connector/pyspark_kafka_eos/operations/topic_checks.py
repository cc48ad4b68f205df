"""One finding of a check, and the checks of a topic: whether it exists, may be used, has fit settings.

Owns: the form of a finding; the judgement of topics.
Does not know: which topics a pipeline has.
Invariants: a finding that fails carries the error that a run would raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from kafka_core.errors import AuthorizationFailed, ExactlyOnceError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin, rights
from pyspark_kafka_eos.client.requests.rights import TopicView
from pyspark_kafka_eos.model.said_times import span
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.options.java_pattern import to_python

Status = Literal["ok", "warn", "fail", "unknown"]

SHORT_RETENTION_MS = 24 * 60 * 60 * 1000
"""Below three days of retention, a query that stands still for a weekend loses its input; below one day, a night is
enough. The warning starts at one day: half would miss the night, double would warn of Kafka's own short-lived topics.
"""


@dataclass(frozen=True)
class Check:
    """One finding. `name`: what was checked; `about`: which one of several; `do`: the remedy (empty where
    none is needed). `error`: for a check that failed, the error that the first micro-batch would raise."""

    name: str
    status: Status
    seen: str
    do: str = ""
    about: str = ""
    error: ExactlyOnceError | None = field(default=None, compare=False)


def settings_of(cluster: Cluster, name: str) -> dict[str, str | None]:
    """The settings that are judged; empty where they may not be read."""
    names = [
        "max.message.bytes",
        "min.insync.replicas",
        "retention.ms",
        "cleanup.policy",
        "message.timestamp.type",
    ]
    return admin.topic_settings(cluster, name, names) or {}


def read_by(source: SourceOptions | None, max_block_ms: int) -> Iterator[Check]:
    """The topics that a source names, in its own cluster; those that match a pattern are unknown before the query
    starts.
    """
    if source is None:
        return
    names = sorted({*source.subscribe, *(source.assign or ())})
    # The source may name other brokers than the sink; its topics are on those.
    cluster = Cluster.shared(source.client, max_block_ms)
    views = rights.topics(cluster, names) if names else {}
    for name in names:
        lost = missing(views[name], "READ", "source")
        if lost is not None:
            yield lost
            continue
        retention = int(settings_of(cluster, name).get("retention.ms") or -1)
        short = 0 <= retention < SHORT_RETENTION_MS
        yield Check(
            "source",
            "warn" if short else "ok",
            f"{len(views[name].partitions)} partitions, retention.ms={retention}",
            "a query that stands still for longer loses records; keep three days or more" if short else "",
            name,
        )


def loops(source: SourceOptions | None, sink: SinkOptions, max_block_ms: int) -> Iterator[Check]:
    """The topics that a query reads and writes to, where both are of one cluster."""
    written = {each for each in (sink.topic, sink.dead_letter_topic) if each is not None}
    if source is None or not (found := {each for each in written if _reads(source, each)}):
        return
    ids = {Cluster.shared(client, max_block_ms).cluster_id() for client in (source.client, sink.client)}
    for topic in sorted(found) if len(ids) == 1 else ():
        yield Check(
            "source",
            "warn",
            "the query reads this topic and writes to it: what it writes is its next input, without end unless the query leaves it out",
            "write to another topic, or read others",
            topic,
        )


def _reads(source: SourceOptions, topic: str) -> bool:
    if source.subscribe_pattern is not None:
        return to_python(source.subscribe_pattern).search(topic) is not None
    return topic in source.subscribe or topic in (source.assign or ())


def output(cluster: Cluster, view: TopicView, largest: int | None) -> Iterator[Check]:
    """An output topic; `largest` is kafka.max.request.size, where it is set."""
    lost = missing(view, "WRITE")
    if lost is not None:
        yield lost
        return
    settings = settings_of(cluster, view.name)
    seen, status, do = replication(view, settings)
    yield Check("topic", status, seen, do, view.name)
    if view.rights is None:
        yield Check("topic-rights", "unknown", "the broker does not report the rights", "", view.name)
        return
    wanted = {
        "READ": "without it the markers of ended transactions cannot be checked, and verify cannot read",
        "DESCRIBE_CONFIGS": "without it Kafka's default is assumed for the topic's largest message",
    }
    lacking = [right for right in wanted if right not in view.rights]
    yield Check(
        "topic-rights",
        "warn" if lacking else "ok",
        "WRITE and DESCRIBE" + (f"; no {' and no '.join(lacking)}" if lacking else ", READ and DESCRIBE_CONFIGS"),
        "; ".join(f"grant {right}: {wanted[right]}" for right in lacking),
        view.name,
    )
    yield from _limits(view.name, settings, largest)


def _limits(name: str, settings: dict[str, str | None], largest: int | None) -> Iterator[Check]:
    limit = settings.get("max.message.bytes")
    if limit is not None and largest is not None and largest > int(limit):
        yield Check(
            "largest-record", "warn", f"kafka.max.request.size={largest}, but the topic takes {limit} bytes",
            "a record between the two stops the query; raise the topic's max.message.bytes", name,
        )  # fmt: skip
    elif limit is not None:
        yield Check("largest-record", "ok", f"batches up to {limit} bytes (max.message.bytes)", "", name)
    retention = int(settings.get("retention.ms") or -1)
    policy = settings.get("cleanup.policy") or "delete"
    if "delete" in policy and retention >= 0 and settings.get("message.timestamp.type") != "LogAppendTime":
        yield Check(
            "row-times", "ok", f"a record is kept for {span(retention)} after its own time (retention.ms={retention})",
            "with a timestamp column, also one left by select *, older rows are deleted although they are committed: drop the column, or set "
            "on.expired.record=refuse", name,
        )  # fmt: skip
    if "compact" in policy:
        yield Check(
            "retention", "ok", f"cleanup.policy={policy}",
            "verify cannot count what compaction has removed", name,
        )  # fmt: skip
    elif 0 <= retention < SHORT_RETENTION_MS:
        yield Check(
            "retention", "warn", f"retention.ms={retention}",
            "a batch whose records are gone can be proven by its coordinator only; keep a day or more", name,
        )  # fmt: skip


def missing(view: TopicView, right: str, check: str = "topic") -> Check | None:
    """The check that fails where a topic or the right on it is missing."""
    name = view.name
    if view.rights == frozenset() and not view.exists:
        do = f"grant DESCRIBE and {right} on topic {name}"
        error: ExactlyOnceError = AuthorizationFailed(f"no right to describe topic {name!r}; {do}", {"topic": name})
        return Check(check, "fail", "no right to describe it", do, name, error)
    if not view.exists:
        return Check(
            check,
            "fail",
            "it does not exist",
            "create it or correct the name",
            name,
            admin.no_such_topic(name),
        )
    if view.rights is not None and right not in view.rights:
        do = f"grant {right} on topic {name}"
        error = AuthorizationFailed(f"no right to {right} topic {name!r}; {do}; nothing was written", {"topic": name})
        return Check(check, "fail", f"no {right}", do, name, error)
    return None


def replication(view: TopicView, settings: dict[str, str | None]) -> tuple[str, Status, str]:
    """What the copies of a topic's partitions withstand: seen, status, what to do."""
    copies = min((part.replicas for part in view.partitions), default=0)
    in_sync = min((part.in_sync for part in view.partitions), default=0)
    # More than there are copies counts as all of them.
    wanted = min(copies, int(settings.get("min.insync.replicas") or 1))
    seen = f"{len(view.partitions)} partitions, replication factor {copies}, min.insync.replicas={wanted}"
    if any(part.leader < 0 for part in view.partitions):
        number = next(number for number, part in enumerate(view.partitions) if part.leader < 0)
        return f"{seen}; partition {number} has no leader", "warn", "writes wait until it has one"
    if in_sync < wanted:
        return f"{seen}, {in_sync} in sync", "warn", "writes wait until enough copies are in sync (acks=all)"
    if copies == 1:
        return (
            seen,
            "warn",
            "acks=all means one copy here: a disk that is lost takes committed records with it",
        )
    if wanted == copies:
        return seen, "warn", "one broker down stops all writes; lower min.insync.replicas or add a copy"
    if wanted == 1:
        return seen, "warn", "acks=all may mean one copy; set min.insync.replicas=2"
    return seen, "ok", ""
