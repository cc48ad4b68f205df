"""Breaches of: one broker of several that hangs, is elsewhere, or is of another version (findings C1 to C13)."""

from __future__ import annotations

from tests.support.planting import Planted

ELSEWHERE = "pyspark_kafka_eos.client.elsewhere"
GROUP = "pyspark_kafka_eos.spark.source.source_group"
CLUSTER = "pyspark_kafka_eos.client.cluster"
DELIVERY = "pyspark_kafka_eos.client.writing.delivery"
FETCHER = "pyspark_kafka_eos.client.reading.fetcher"
VERSIONS = "pyspark_kafka_eos.client.wire.versions"
ADDRESSES = "pyspark_kafka_eos.client.net.addresses"
CONNECTION = "pyspark_kafka_eos.client.net.connection"
KNOWN = "pyspark_kafka_eos.client.net.known"
OPENING = "pyspark_kafka_eos.client.net.opening"
POOL = "pyspark_kafka_eos.client.net.pool"

BREACHES = {
    "C10: A former coordinator's fence": (
        Planted(
            "the one that was asked is believed",
            "pyspark_kafka_eos.client.asking:ask_coordinator",
            "if not is_replaced(cluster, kind, key, asked):",
            "if True:",
        ),
        Planted(
            "any broker's word moves a coordinator",
            "pyspark_kafka_eos.client.every_broker:_most",
            "2 * votes > len(cluster.network.brokers())",
            "votes == 1",
        ),
        Planted(
            "whoever fences is taken for replaced",
            "pyspark_kafka_eos.client.every_broker:is_replaced",
            "!= asked",
            "> 0",
        ),
    ),
    "C10: An end that a former": (
        Planted(
            "its refusal is the answer",
            "pyspark_kafka_eos.client.requests.ends:_read_end",
            "if replaced[asked]:",
            "if False:",
        ),
        Planted(
            "whoever refuses is taken for replaced",
            "pyspark_kafka_eos.client.requests.ends:_read_end",
            "elif asked not in replaced:",
            "elif replaced.setdefault(asked, True) is None:",
        ),
    ),
    "C10: Who coordinates is asked": (
        Planted(
            "the broker that is left is asked",
            f"{CLUSTER}:Cluster.forget_coordinator",
            "self._left[kind, key] = found[0]",
            "pass",
        ),
    ),
    "C11: What a former coordinator tells": (
        Planted(
            "an earlier commit is a decision that the ledger has lost",
            "pyspark_kafka_eos.commit.run:Run._refuse_lost_ledger",
            "describe(asked, sure=sure or begins)",
            "describe(asked)",
        ),
        Planted(
            "a batch that is decided while its successor is asked is lost",
            "pyspark_kafka_eos.commit.run:Run._refuse_lost_ledger",
            "after = self.ledger.look()",
            "after = after if sure else self.ledger.look()",
        ),
        Planted(
            "the same, by doctor",
            "pyspark_kafka_eos.operations.standing:_committed",
            "describe(slots, sure=True)",
            "describe(slots)",
        ),
        Planted(
            "the commit before it made an open decision",
            "pyspark_kafka_eos.commit.markers:Mender.settle_decision",
            "describe([driver_id, whole], sure=True)",
            "describe([driver_id, whole])",
        ),
        Planted(
            "the same, by a command",
            "pyspark_kafka_eos.operations.standing:newest_decided",
            "describe([name, whole], sure=True)",
            "describe([name, whole])",
        ),
        Planted(
            "offsets are aborted as the transaction before theirs was",
            "pyspark_kafka_eos.commit.markers:Mender._settle_offsets",
            "describe([name], sure=True)",
            "describe([name])",
        ),
        Planted(
            "a query begins where its group was",
            "pyspark_kafka_eos.spark.source.committed_start:committed_start",
            "offsets.committed(group, partitions, sure=True)",
            "offsets.committed(group, partitions)",
        ),
    ),
    "C12: Behind a fence": (
        Planted(
            "a run reads the ledger at the leader that it knew",
            "pyspark_kafka_eos.commit.run:Run._behind_a_fence",
            "self.ledger.find_leaders()",
            "pass",
        ),
        Planted(
            "an operator's command does",
            "pyspark_kafka_eos.operations.ending:take_over",
            "ledger.find_leaders()\n    return",
            "return",
        ),
    ),
    "C13: A coordinator that goes on": (
        Planted(
            "one that asks for patience is never left",
            "pyspark_kafka_eos.client.asking:ask_coordinator",
            "doubt.asked_to_wait([key])",
            "pass",
        ),
        Planted(
            "of many ids none is looked for elsewhere",
            "pyspark_kafka_eos.client.asking:ask_coordinators.attempt",
            "doubt.asked_to_wait(missing)",
            "pass",
        ),
        Planted(
            "an end is asked of the former one for ever",
            "pyspark_kafka_eos.client.requests.ends:end_many.attempt",
            "doubt.asked_to_wait(requests[i].transactional_id for i in waiting if answers[i] is None)",
            "pass",
        ),
        Planted(
            "all brokers are asked at every answer",
            "pyspark_kafka_eos.client.every_broker:Doubt.asked_to_wait",
            "self._wait_s *= 2",
            "self._wait_s = 0.0",
        ),
    ),
    "C13: A leader that was cut off": (
        Planted(
            "a produce is sent to it again and again",
            "kafka_core.protocol.error_codes:_OVERRIDES",
            "Code.REQUEST_TIMED_OUT: Action.REDISCOVER",
            "Code.REQUEST_TIMED_OUT: Action.RETRY",
        ),
    ),
    "C14: A marker or a note": (
        Planted(
            "the coordinator that was asked first says that a marker is missing",
            "pyspark_kafka_eos.commit.markers:Mender.await_markers",
            "describe([seal.transactional_id for seal in left], sure=sure)",
            "describe([seal.transactional_id for seal in left])",
        ),
        Planted(
            "a former leader's word that a marker is missing counts",
            "pyspark_kafka_eos.commit.markers:Mender.await_markers",
            "ask_every_broker(self._cluster, {where.topic for where in partitions_of(missing)})",
            "pass",
        ),
        Planted(
            "the coordinator that was asked first proves a commit",
            "pyspark_kafka_eos.commit.proof:prove",
            "for seal in waiting], sure=True)",
            "for seal in waiting])",
        ),
        Planted(
            "a note is looked for at the ledger's leader that was known",
            "pyspark_kafka_eos.commit.ledger.topic:Ledger.look_anew",
            "self.find_leaders()",
            "pass",
        ),
    ),
    "C15: What a former coordinator tells": (
        Planted(
            "a view that is not as it should be is taken as it is",
            "pyspark_kafka_eos.client.requests.transactions:Transactions.describe",
            "views |= self._views_of(doubted, budget, sure=True)",
            "pass",
        ),
        Planted(
            "a slot that is not open gives its batch up, whoever says so",
            "pyspark_kafka_eos.commit.shell:CommitShell._check_alive",
            "expected=lambda view: view.is_open_under(sealed[view.transactional_id])",
            "expected=None",
        ),
        Planted(
            "a batch's transaction that is not as it was sealed gives it up, whoever says so",
            "pyspark_kafka_eos.commit.whole_batch.driver:WholeBatch.view_of",
            "expected=lambda view: is_as_sealed(seal, view)",
            "expected=None",
        ),
        Planted(
            "a run is displaced by whoever says so",
            "pyspark_kafka_eos.commit.run:Run.require_ownership",
            ", expected=lambda view: view.identity == mine",
            "",
        ),
        Planted(
            "a successor's first abort is this run's timeout, where nobody knows more",
            "pyspark_kafka_eos.commit.run:Run._aborted_under_next_epoch",
            ", sure=True",
            "",
        ),
        Planted(
            "a first start goes by one coordinator's word",
            "pyspark_kafka_eos.commit.run:Run._refuse_lost_ledger",
            "sure=sure or begins",
            "sure=sure",
        ),
        Planted(
            "a mending is finished where one coordinator knows it",
            "pyspark_kafka_eos.commit.markers:Mender.finish",
            ", sure=True",
            "",
        ),
        Planted(
            "the coordinator that was asked first says that a decision lacks its marker",
            "pyspark_kafka_eos.commit.markers:Mender.misses_marker",
            "sure=sure",
            "sure=False",
        ),
        Planted(
            "a former leader of the ledger says that a decision lacks its marker",
            "pyspark_kafka_eos.commit.markers:Mender.misses_marker",
            "ask_every_broker(self._cluster, {self._ledger.partition.topic})",
            "pass",
        ),
        Planted(
            "the pipeline's producer ids are those that one coordinator knows",
            "pyspark_kafka_eos.commit.ledger.writers:Writers.ask_coordinators",
            "sure=again",
            "sure=False",
        ),
        Planted(
            "a task's batch is over where one coordinator says so",
            "pyspark_kafka_eos.slot.writer:_require_undecided",
            ", expected=undecided",
            "",
        ),
        Planted(
            "what is open is listed as one coordinator has it",
            "pyspark_kafka_eos.operations.leftovers:find_leftovers",
            "sorted(own), sure=True",
            "sorted(own)",
        ),
        Planted(
            "who holds a topic back is listed as one coordinator has it",
            "pyspark_kafka_eos.operations.leftovers:find_strangers",
            "if number in names), sure=True",
            "if number in names)",
        ),
    ),
    "C16: Who coordinates is asked of most brokers": (
        Planted(
            "a sure answer is sure of the first try alone",
            "pyspark_kafka_eos.client.requests.transactions:Transactions.describe",
            "views = self._views_of(transactional_ids, budget, sure=sure)",
            "views = self._views_of(transactional_ids, budget, sure=bool(require_coordinators(self.cluster, "
            "CoordinatorKind.TRANSACTION, transactional_ids if sure else [])))",
        ),
        Planted(
            "a second word is sure of its first try alone",
            "pyspark_kafka_eos.client.requests.transactions:Transactions.describe",
            "views |= self._views_of(doubted, budget, sure=True)",
            "views |= self._views_of(doubted, budget, sure=bool(require_coordinators(self.cluster, CoordinatorKind.TRANSACTION, doubted)))",
        ),
        Planted(
            "where nobody can tell, the coordinator that is known is believed",
            "pyspark_kafka_eos.client.every_broker:require_coordinators",
            "if not unknown:",
            "if True:",
        ),
        Planted(
            "a fence that nobody can judge is believed",
            "pyspark_kafka_eos.client.every_broker:is_replaced",
            "raise _no_majority(cluster, kind, key)",
            "return False",
        ),
        Planted(
            "a query begins where the coordinator that is looked up again has its group",
            "pyspark_kafka_eos.client.asking:ask_coordinator",
            "if sure:",
            "if False:",
        ),
        Planted(
            "a former coordinator's word that an id is unknown ends a batch",
            "pyspark_kafka_eos.client.asking:ask_coordinator",
            "except (ProducerFenced, AbortableError) as error:",
            "except ProducerFenced as error:",
        ),
    ),
    "C16: What a log or a list lacks": (
        Planted(
            "a former leader's word that a decided slot has no end counts",
            "pyspark_kafka_eos.commit.proof:prove",
            "ask_every_broker(cluster, {where.topic for where in partitions_of(anew)})",
            "pass",
        ),
        Planted(
            "a former leader of the ledger says that a decision has no end",
            "pyspark_kafka_eos.commit.decision:ask_decision",
            "ledger.find_leaders()",
            "pass",
        ),
        Planted(
            "ids are listed by the brokers that one broker names",
            "pyspark_kafka_eos.client.every_broker:brokers_by_most",
            "answers = answers_of_all(cluster, [])",
            "answers = answers_of_all(cluster, [])[:1] * len(cluster.network.brokers())",
        ),
        Planted(
            "one broker's word that the ledger is not there counts",
            "pyspark_kafka_eos.commit.ledger.topic:Ledger.prepare",
            "self.find_leaders()",
            "pass",
        ),
        Planted(
            "a query without a position ends where one broker's leader ends",
            "pyspark_kafka_eos.spark.source.source_partitions:SourcePartitions._partitions_of",
            "ask_every_broker(self.offsets.cluster, names := sorted(set(topics)))",
            "names = sorted(set(topics))",
        ),
        Planted(
            "a pattern matches the topics that one broker names",
            "pyspark_kafka_eos.spark.source.source_partitions:SourcePartitions._there",
            "topic_names(of_all=first)",
            "topic_names()",
        ),
        Planted(
            "a pattern matches what a broker names that was cut off before it was deleted",
            "pyspark_kafka_eos.spark.source.source_partitions:SourcePartitions._there",
            "absence.topics_there(self.offsets.cluster, matched) if first else matched",
            "matched",
        ),
    ),
    "C9: A topic that one broker lacks": (
        Planted(
            "one broker's word is taken",
            f"{CLUSTER}:Cluster.refresh_topics",
            "known = bool(new_topic_ms) and self._known_elsewhere(names)",
            "known = False",
        ),
        Planted(
            "what the others have is not taken",
            f"{CLUSTER}:Cluster._known_elsewhere",
            "if self.take_metadata(answer, names):",
            "if False:",
        ),
        Planted(
            "that another one lacks it ends the patience",
            f"{CLUSTER}:Cluster._known_elsewhere",
            "answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]",
            "pass",
        ),
    ),
    "C9: A group's offsets": (
        Planted(
            "the first broker's word counts",
            f"{GROUP}:_of_these_topics",
            "ask_every_broker(cluster, [topic])",
            "pass",
        ),
        Planted(
            "the leader that is known first counts",
            f"{GROUP}:_there",
            "ask_every_broker(cluster, [topic])",
            "pass",
        ),
        Planted(
            "nobody's topic is this cluster's",
            f"{GROUP}:_there",
            "if not _reaches(cluster, topic, here):",
            "if False:",
        ),
    ),
    "C9: One broker's word": (
        Planted(
            "the silence of the others is consent",
            f"{CLUSTER}:Cluster._known_elsewhere",
            "return False if 2 * lacking > brokers or brokers < 2 else None",
            "return False",
        ),
        Planted(
            "no majority is enough",
            f"{CLUSTER}:Cluster._known_elsewhere",
            "return False if 2 * lacking > brokers or brokers < 2 else None",
            "return None",
        ),
    ),
    "C1: While a broker hangs": (
        Planted(
            "nobody is asked who coordinates now",
            f"{ELSEWHERE}:at_coordinators",
            "now = cluster.look_for_coordinators(kind, wanted)",
            "now: dict[str, int] = {}",
        ),
        Planted(
            "a coordinator that is slow is given up",
            f"{ELSEWHERE}:at_coordinators",
            "if key in now",
            "if now.setdefault(key, -1) >= -1",
        ),
        Planted(
            "nobody is asked who leads now",
            f"{ELSEWHERE}:at_leaders",
            "if cluster.leader(where) not in (-1, leaders[index])",
            "if cluster.leader(where) < -1",
        ),
        Planted(
            "a broker that is not in the cluster any more is waited for",
            f"{ELSEWHERE}:among_brokers",
            "if listed and brokers[index] not in listed",
            "if not listed",
        ),
        Planted(
            "what any broker can answer is asked of one",
            f"{CLUSTER}:Cluster.call_any",
            "answer = self._others.ask(request, {node})",
            "answer = None",
        ),
        Planted(
            "a fetch that hangs is waited for",
            f"{FETCHER}:Fetcher._next_answer",
            "for index, why in watched(range(len(waiting))).items():",
            "for index, why in ():",
        ),
    ),
    "C1: A question has a budget": (
        Planted(
            "a question has the time of one request",
            f"{CLUSTER}:Cluster.budget",
            "self.settings.api_timeout_ms",
            "self.settings.request_timeout_ms",
        ),
        Planted(
            "a request takes all of the time",
            "pyspark_kafka_eos.client.definite:Budget.request_ms",
            "return int(min(most_ms, max(self.left_ms, LEAST_REQUEST_MS)))",
            "return int(self.total_ms)",
        ),
    ),
    "C1: Batches that a silent leader": (
        Planted(
            "they wait for the silent leader",
            f"{DELIVERY}:Delivery._look_elsewhere",
            "if leader in (-1, each.node):",
            "if leader >= -1:",
        ),
        Planted(
            "a leader that is slow and not replaced gets its batches twice",
            f"{DELIVERY}:Delivery._look_elsewhere",
            "if leader in (-1, each.node):",
            "if leader == -1:",
        ),
        Planted(
            "what the former leader says later counts",
            f"{DELIVERY}:Delivery._take_answer",
            "if where in moved:",
            "if not sent and where is None:",
        ),
    ),
    "C2: Where no known broker": (
        Planted(
            "the bootstrap servers are asked once",
            f"{POOL}:Pool.refresh",
            "return bool((unreachable or failing_s >= _NOT_ANSWERING_S) and await self.bootstrap())",
            "return False",
        ),
        Planted(
            "brokers that take connections and do not answer are asked for ever",
            f"{POOL}:Pool.refresh",
            "return bool((unreachable or failing_s >= _NOT_ANSWERING_S) and await self.bootstrap())",
            "return bool(unreachable and await self.bootstrap())",
        ),
        Planted(
            "another cluster is used",
            f"{KNOWN}:Known.take",
            "if cluster_id and self.cluster_id and cluster_id != self.cluster_id:",
            "if cluster_id is self.cluster_id is None:",
        ),
        Planted(
            "a broker that has the client begin again is an answer like any",
            f"{POOL}:Pool.take",
            "== Code.REBOOTSTRAP_REQUIRED",
            "< 0",
        ),
    ),
    "C3: A silent address": (
        Planted(
            "the next address is tried when the one before has failed",
            f"{ADDRESSES}:_first",
            "timeout=_NEXT_AFTER_S if left else None",
            "timeout=None",
        ),
        Planted(
            "the last address alone is told",
            f"{ADDRESSES}:_first",
            'raise ConnectionFailed("; ".join(failures))',
            "raise ConnectionFailed(failures[-1])",
        ),
    ),
    "C4: A connection that was still": (
        Planted(
            "idle connections stay",
            f"{POOL}:Pool._close_idle",
            "now - connection.heard_at >= idle_s",
            "now - connection.heard_at >= 1e9",
        ),
        Planted(
            "a connection is trusted however long it was still",
            f"{CONNECTION}:BrokerConnection.send",
            "runtime.monotonic() - self.heard_at < _STILL_S",
            "self.heard_at >= 0",
        ),
    ),
    "C5: An address that only": (
        Planted(
            "an address is not told from one that somebody has set",
            f"{KNOWN}:Known.only_advertised",
            "place not in self._ever_reached and (place.host, place.port) not in given",
            "place in given",
        ),
        Planted(
            "the doctor advises what is right already",
            "pyspark_kafka_eos.operations.checks:_remedy",
            'if (address := error.facts.get("advertised")) is not None:',
            "if (address := None) is not None:",
        ),
        Planted(
            "nobody looks for what a listener speaks",
            f"{POOL}:Pool._look_behind",
            "explained = await self.explain(place, connection, failure)",
            "explained = failure",
        ),
    ),
    "C6: An address follows": (
        Planted(
            "a connection is used wherever its broker is",
            f"{POOL}:Pool.connection",
            "if held[1] == place:",
            "if held:",
        ),
        Planted(
            "a broker is not asked whether it is the one that is meant",
            f"{OPENING}:Opener.learn_versions",
            "version = min(_NAMES_BROKER if named else _ASKED_WITHOUT_NAME, self.newest_api_versions)",
            "version = min(_ASKED_WITHOUT_NAME, self.newest_api_versions)",
        ),
    ),
    "C8: Each broker is asked": (
        Planted(
            "a request is in the highest version of this package, whatever the broker has",
            f"{VERSIONS}:Versions.of",
            "best = min(highest, m.HIGHEST[key])",
            "best = m.HIGHEST[key]",
        ),
    ),
    "C8: The cluster's features": (
        Planted(
            "the last broker to be asked has the last word",
            f"{OPENING}:Opener.learn_versions",
            "if answer.finalized_features_epoch >= self._features_epoch:",
            "if answer.finalized_features_epoch >= -1:",
        ),
    ),
    "C8: Transactions without a timeout": (
        Planted(
            "the first broker speaks for all",
            f"{CLUSTER}:Cluster.speaks_two_phase",
            "return all(each.supports(*wanted) for each in self._versions_of_all())",
            "return True",
        ),
        Planted(
            "a version that is sent for this alone counts as one that nobody sends",
            f"{VERSIONS}:Versions.supports",
            "return lowest <= version <= highest",
            "return lowest <= version <= min(highest, m.HIGHEST[request.API_KEY])",
        ),
    ),
}
