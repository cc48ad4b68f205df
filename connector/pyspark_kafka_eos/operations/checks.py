"""The checks before a query starts: brokers, versions, rights, timeouts, topics, ledger, users of the name.

Owns: which checks there are, what each found, and its remedy.
Does not know: Spark, how findings are shown.
Invariants:
- Nothing is written, created or fenced.
- A fact that could not be determined is `unknown`, never `ok`.
- A check that fails carries the error that the first micro-batch would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace

from kafka_core import runtime
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    OptionsError,
    UnsupportedVersion,
)
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin, rights
from pyspark_kafka_eos.client.requests.rights import TopicView
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.commit.ladder import require_proof
from pyspark_kafka_eos.commit.ledger import topic as ledger
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import (
    LEAST_DEAD_LETTER_BYTES,
    ClientSettings,
    batch_transactional_id,
    driver_transactional_id,
    slot_transactional_id,
)
from pyspark_kafka_eos.model.ids import prefix_of
from pyspark_kafka_eos.model.said_times import span
from pyspark_kafka_eos.operations.decision_checks import newest_decision
from pyspark_kafka_eos.operations.leftovers import Leftover, find_leftovers
from pyspark_kafka_eos.operations.source_start import start
from pyspark_kafka_eos.operations.topic_checks import (
    Check,
    loops,
    missing,
    output,
    read_by,
    replication,
    settings_of,
)
from pyspark_kafka_eos.options import LONGEST_TRANSACTION_MS, SinkOptions, SourceOptions
from pyspark_kafka_eos.slot import turn_log
from pyspark_kafka_eos.slot.dead_letters import require_topic

_DAY_MS = 24 * 60 * 60 * 1000
_SHORT_EXPIRATION_MS = _DAY_MS
"""When a transactional id expires, its coordinator forgets the outcome of its last transaction; then only the
log can prove a decided slot. Kafka's default is seven days."""


_ANSWERS_WITHIN_MS = 4_000
"""Half fails a broker that is far; double is waited behind an address where nobody answers."""

_AT_MOST = 12
"""Addresses that are asked: more are a list of a whole cluster's brokers, and a thread each."""


def examine(options: SinkOptions, source: SourceOptions | None = None) -> list[Check]:
    """All checks of a pipeline, in the order in which a run would meet their subjects.

    `source`: of a query that reads Kafka; the rights on its topics and their retention are checked too, in its own
    cluster.
    """
    cluster = _connected(options.client, options.max_block_ms)
    if isinstance(cluster, Check):
        return [cluster]
    examiner = _Examiner(cluster, options)
    return _all_of({
        "addresses": lambda: addresses(options.client), "brokers": lambda: brokers(cluster), "versions": examiner.versions, "timeouts": examiner.timeouts,
        "transactional-ids": examiner.transactional_ids, "topic": examiner.outputs, "ledger": examiner.ledger,
        "turns": examiner.turns, "pipeline": examiner.pipeline, "id-collisions": examiner.leftovers, "group": examiner.group,
        "idempotent-write": examiner.cluster_rights, "source": lambda: read_by(source, options.max_block_ms),
        "loop": lambda: loops(source, options, options.max_block_ms),
        "start": lambda: start(source, options.max_block_ms),
    })  # fmt: skip


def examine_source(source: SourceOptions, max_block_ms: int) -> list[Check]:
    """The checks of a query that reads Kafka and does not write to it."""
    cluster = _connected(source.client, max_block_ms)
    if isinstance(cluster, Check):
        return [cluster]
    return _all_of({
        "addresses": lambda: addresses(source.client), "brokers": lambda: brokers(cluster), "versions": lambda: versions(cluster),
        "source": lambda: read_by(source, max_block_ms), "start": lambda: start(source, max_block_ms),
    })  # fmt: skip


def _connected(client: ClientSettings, max_block_ms: int) -> Cluster | Check:
    try:
        return Cluster.shared(client, max_block_ms)
    except ExactlyOnceError as error:
        name = "versions" if isinstance(error, UnsupportedVersion) else "brokers"
        return Check(name, "fail", error.message, _remedy(error), error=error)


def _remedy(error: ExactlyOnceError) -> str:
    """What to do where no connection can be made. The messages of refusals have their own remedy."""
    if isinstance(error, BrokerUnavailable):
        if (address := error.facts.get("advertised")) is not None:
            # kafka.bootstrap.servers is right: something there has answered.
            return (
                f"correct advertised.listeners of the brokers, or have this machine reach {address} (its name, a firewall, a "
                "container's ports)"
            )
        return "start the brokers, or correct kafka.bootstrap.servers and kafka.security.*"
    return f"{error.who_acts} acts: see the message"


def _all_of(checks: Mapping[str, Callable[[], Iterator[Check]]]) -> list[Check]:
    return [each for name, check in checks.items() for each in _guarded(name, check)]


def _guarded(name: str, check: Callable[[], Iterator[Check]]) -> list[Check]:
    """The findings of a check. An error that it raises is a finding too, under the check's name."""
    found: list[Check] = []
    try:
        found.extend(check())
    except BrokerUnavailable as error:
        found.append(Check(name, "unknown", error.message, "ask again when the brokers answer"))
    except ExactlyOnceError as error:
        found.append(Check(name, "fail", error.message, "see the message", error=error))
    return found


def addresses(client: ClientSettings) -> Iterator[Check]:
    """Whether all addresses of kafka.bootstrap.servers answer, for one cluster. A client connects to any of them, and
    stays with the cluster that it has found there; nobody else notices one of another before a run writes to it.
    """
    servers = client.bootstrap_servers[:_AT_MOST]
    with runtime.workers(len(servers)) as beside:
        asked = {server: beside.submit(_cluster_at, client, server) for server in servers}
        said = {server: each.result() for server, each in asked.items()}
    silent = {server: answer for server, answer in said.items() if isinstance(answer, ExactlyOnceError)}
    clusters: dict[str, list[str]] = {}
    for server, answer in said.items():
        if not isinstance(answer, ExactlyOnceError):
            clusters.setdefault(answer, []).append(server)
    if len(clusters) > 1:
        named = "; ".join(f"{', '.join(here)}: cluster {cluster}" for cluster, here in sorted(clusters.items()))
        yield Check(
            "addresses", "fail", f"kafka.bootstrap.servers names {len(clusters)} clusters: {named}",
            "name the brokers of one cluster: each run connects to any of these addresses, and writes to its cluster",
        )  # fmt: skip
    for server, error in silent.items():
        yield Check(
            "addresses", "warn", f"{server}: {error.message}",
            "a run connects to another address; if all others are down as well, it cannot begin",
        )  # fmt: skip
    if len(clusters) == 1 and not silent:
        yield Check("addresses", "ok", f"{', '.join(servers)}: cluster {next(iter(clusters))}")


def _cluster_at(client: ClientSettings, server: str) -> str | ExactlyOnceError:
    try:
        cluster = Cluster(replace(client, bootstrap_servers=(server,)), _ANSWERS_WITHIN_MS)
    except ExactlyOnceError as error:
        return error
    try:
        return cluster.cluster_id()
    except ExactlyOnceError as error:
        return error
    finally:
        cluster.close()


def brokers(cluster: Cluster) -> Iterator[Check]:
    """Whether every broker answers."""
    views = rights.brokers(cluster)
    silent = [f"{each.node} ({each.address})" for each in views if each.versions is None]
    if silent:
        yield Check(
            "brokers", "warn", f"no answer from broker {', '.join(silent)}, of {len(views)}",
            "partitions that it leads, and transactions that it coordinates, wait until they have moved",
        )  # fmt: skip
    else:
        yield Check("brokers", "ok", ", ".join(f"{each.node} ({each.address})" for each in views))


def versions(cluster: Cluster) -> Iterator[Check]:
    """Which class of transactions the cluster has."""
    version = cluster.transaction_version
    text = f"transaction.version {cluster.features.get('transaction.version', 0)} is finalised"
    if version >= 2:
        yield Check("versions", "ok", f"{text}: every transaction has an epoch of its own (KIP-890)")
    else:
        yield Check(
            "versions", "ok",
            f"{text}: transactions of version 1 (Kafka before 4.0, or a ZooKeeper-era cluster), two requests more a task",
        )  # fmt: skip


class _Examiner:
    """The checks of one pipeline. Each yields what it found."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self.cluster = cluster
        self.options = options
        self.exactly_once = options.guarantee == "exactly-once"

    def versions(self) -> Iterator[Check]:
        yield from versions(self.cluster)
        if self.exactly_once:
            require_proof(self.cluster)

    def timeouts(self) -> Iterator[Check]:
        names = ["transaction.max.timeout.ms", "transaction.two.phase.commit.enable",
                 "transactional.id.expiration.ms"]  # fmt: skip
        found = admin.broker_settings(self.cluster, names)
        if found is None:
            yield Check(
                "timeouts", "warn", "no right to read the brokers' settings, so their caps are not known",
                "grant DESCRIBE_CONFIGS on the cluster, or make sure that transaction.max.timeout.ms is not below "
                f"{self.options.transaction_timeout_ms or LONGEST_TRANSACTION_MS}",
            )  # fmt: skip
            return
        yield self._timeout(found.get("transaction.max.timeout.ms"))
        allowed = found.get("transaction.two.phase.commit.enable") == "true"
        if allowed and self.cluster.speaks_two_phase:
            used = self.options.two_phase_commit
            yield Check(
                "two-phase", "ok",
                "transactions without a timeout (KIP-939) are " + ("used" if used else "there, and switched off"),
                "TWO_PHASE_COMMIT on the transactional ids is needed too; no request checks it without using it"
                if used else "",
            )  # fmt: skip
        expiration = int(found.get("transactional.id.expiration.ms") or 7 * _DAY_MS)
        if expiration < _SHORT_EXPIRATION_MS:
            yield Check(
                "id-expiration", "warn", f"transactional.id.expiration.ms={expiration}",
                "after so long without a batch only the log can prove a decided one; set it to a day or more",
            )  # fmt: skip

    def _timeout(self, cap: str | None) -> Check:
        asked = self.options.transaction_timeout_ms
        try:
            # Reads settings only; the error is the driver's own.
            driver_for(self.cluster, self.options, query_id="")
        except OptionsError as error:
            return Check("timeouts", "fail", error.message, "lower the one or raise the other", error=error)
        except UnsupportedVersion:
            return Check("timeouts", "unknown", "no run begins on this cluster", "see versions")
        used = asked if asked is not None else min(int(cap or LONGEST_TRANSACTION_MS), LONGEST_TRANSACTION_MS)
        margin = self.options.transaction_margin_ms
        seen = f"transactions may last {used} ms (cap {cap}), of which {margin} ms must be left to decide"
        if margin >= used:
            too_long = OptionsError(
                f"transaction.margin.ms={margin} is not below the transactions' timeout of {used} ms: no batch could be "
                "decided; nothing was written",
                {"margin_ms": margin, "timeout_ms": used},
            )
            return Check("timeouts", "fail", seen, "lower transaction.margin.ms", error=too_long)
        if margin * 2 > used:
            return Check("timeouts", "warn", seen, "batches have less than half of the time; raise the timeout")
        return Check("timeouts", "ok", seen)

    # ---- rights that no answer lists

    def transactional_ids(self) -> Iterator[Check]:
        if not self.exactly_once:
            return
        names = [
            driver_transactional_id(self.options.pipeline),
            batch_transactional_id(self.options.pipeline),
            slot_transactional_id(self.options.pipeline, 0),
        ]
        # DESCRIBE is checked first, by a request that raises without it: a cached coordinator needs no such right.
        Transactions(self.cluster).describe(names)
        answers = {name: rights.may_write_id(self.cluster, name) for name in names}
        denied = [name for name, allowed in answers.items() if allowed is False]
        prefix = f"grant WRITE and DESCRIBE on transactional ids with the prefix {prefix_of(self.options.pipeline)}"
        if denied:
            message = f"no right to write under transactional id {', '.join(denied)}; {prefix}"
            error = AuthorizationFailed(f"{message}; nothing was written", {"transactional_ids": tuple(denied)})
            yield Check("transactional-ids", "fail", message.partition(";")[0], prefix, error=error)
        elif None in answers.values():
            yield Check("transactional-ids", "unknown", "the coordinator gave no definite answer", "ask again")
        else:
            yield Check("transactional-ids", "ok", f"WRITE and DESCRIBE on {', '.join(names)}")

    def cluster_rights(self) -> Iterator[Check]:
        if self.options.guarantee != "at-least-once":
            return
        found = rights.cluster_rights(self.cluster)
        if found is None:
            yield Check("idempotent-write", "unknown", "no right to describe the cluster", "grant DESCRIBE on it")
        elif "IDEMPOTENT_WRITE" in found:
            yield Check("idempotent-write", "ok", "IDEMPOTENT_WRITE on the cluster")
        else:
            yield Check(
                "idempotent-write", "warn", "no IDEMPOTENT_WRITE on the cluster",
                "since Kafka 2.8, WRITE on any topic is enough; before that, grant IDEMPOTENT_WRITE",
            )  # fmt: skip

    # ---- topics

    def outputs(self) -> Iterator[Check]:
        topics = [each for each in (self.options.topic, self.options.dead_letter_topic) if each is not None]
        if not topics:
            said = "no topic was given: each row names its own, so the topics are unknown until rows arrive"
            yield Check("topic", "ok", said, "where the job has one, give it: -o topic=NAME")
        views = rights.topics(self.cluster, topics) if topics else {}
        for name in topics:
            yield from output(self.cluster, views[name], self.options.max_request_bytes)
        if self.options.dead_letter_topic is not None and views[self.options.dead_letter_topic].exists:
            yield from self._dead_letters(self.options.dead_letter_topic)

    def _dead_letters(self, name: str) -> Iterator[Check]:
        try:
            # Asks for settings only; the error is the driver's own.
            require_topic(self.cluster, name)
        except OptionsError as error:
            do = f"raise max.message.bytes of topic {name} to {LEAST_DEAD_LETTER_BYTES} or more"
            yield Check("dead-letters", "fail", error.message.partition(";")[0], do, name, error)

    # ---- the ledger, and who else uses the pipeline's name

    def ledger(self) -> Iterator[Check]:
        name = self.options.ledger_topic
        if not self.exactly_once:
            return
        view = yield from self._topic_of_ours("ledger", name, ledger.PARTITIONS, ledger.SETTINGS)
        if view is not None:
            # It exists, so this only judges its policy.
            Ledger(self.cluster, name, self.options.pipeline).prepare()
            settings = settings_of(self.cluster, name)
            seen, status, do = replication(view, settings)
            if not settings:
                yield Check(
                    "ledger", "unknown", f"cannot check whether it is compacted; {seen}",
                    f"grant DESCRIBE_CONFIGS on topic {name}: where it is not compacted, retention deletes decisions", name,
                )  # fmt: skip
                return
            yield Check("ledger", status, f"compacted; {seen}", do, name)

    def turns(self) -> Iterator[Check]:
        if not self.exactly_once or self.options.scope != "batch":
            return
        name = turn_log.turns_topic(self.options.ledger_topic)
        view = yield from self._topic_of_ours("turns", name, turn_log.PARTITIONS, turn_log.SETTINGS)
        if view is not None:
            seen, status, do = replication(view, settings_of(self.cluster, name))
            yield Check("turns", status, seen, do, name)

    def _topic_of_ours(
        self, check: str, name: str, partitions: int, settings: dict[str, str]
    ) -> Generator[Check, None, TopicView | None]:
        """A topic that the first run creates. Yields what is wrong with it; returns its view where it exists and may be
        used.
        """
        # Before a first run the topic is usually missing, which is no fault.
        view = rights.topics(self.cluster, [name], patience_ms=0)[name]
        if not view.exists and view.rights != frozenset():
            refused = rights.may_create(self.cluster, name, partitions=partitions, settings=settings)
            if refused is None:
                yield Check(check, "ok", "it does not exist yet; the first run creates it", "", name)
                return None
            do = f"create it ({', '.join(f'{key}={value}' for key, value in settings.items())}) or grant CREATE"
            error = AuthorizationFailed(
                f"no right to create {check} topic {name!r} ({refused}); {do}; nothing was written",
                {"topic": name},
            )
            yield Check(check, "fail", f"it does not exist and cannot be created: {refused}", do, name, error)
            return None
        lost = missing(view, "WRITE", check) or missing(view, "READ", check)
        if lost is not None:
            yield lost
            return None
        return view

    def pipeline(self) -> Iterator[Check]:
        if self.exactly_once:
            yield from newest_decision(self.cluster, self.options)

    def leftovers(self) -> Iterator[Check]:
        pipeline = self.options.pipeline
        found = find_leftovers(self.cluster, pipeline)
        busy = [each for each in found if each.unsettled]
        if busy:
            yield Check(
                "id-collisions", "warn", "; ".join(map(_owner, busy)),
                "a run is active under this name, or was killed; a new run fences it and aborts its undecided transactions; inspect "
                f"them with: kafka-eos transactions explain {pipeline}", pipeline,
            )  # fmt: skip
            return
        seen = f"{len(found)} transactional ids, none with an open transaction" if found else "no id is in use"
        yield Check("id-collisions", "ok", seen, "", pipeline)

    def group(self) -> Iterator[Check]:
        if not self.exactly_once:
            return
        name = self.options.offsets_group
        if not name:
            yield Check("group", "ok", "none: offsets.group is empty, so no group gets the source's offsets")
            return
        view = rights.group(self.cluster, name)
        if view.rights is not None and "READ" not in view.rights:
            do = f"grant READ on group {name}"
            error = AuthorizationFailed(
                f"no right to commit offsets for group {name!r}; {do}; nothing was written", {"group": name}
            )
            yield Check("group", "fail", "no READ on the group", do, name, error)
        elif view.members:
            yield Check(
                "group", "warn", f"it has {view.members} members of its own ({view.state})",
                "they commit offsets for the same group; give the pipeline another offsets.group", name,
            )  # fmt: skip
        else:
            yield Check("group", "ok", f"READ; {'new' if view.state == 'Dead' else 'no members'}", "", name)


def _owner(each: Leftover) -> str:
    since = f" for {span(each.age_ms)}" if each.age_ms is not None else ""
    return f"{each.transactional_id} is {each.state}{since} ({each.identity})"


__all__ = ["Check", "examine"]
