"""Breaches of: places without what they stand on (findings P1 to P8)."""

from __future__ import annotations

from tests.support.planting import Planted

LOGS = "pyspark_kafka_eos.spark.source.source_logs"
VIEW = "pyspark_kafka_eos.spark.source.source_view"
PLACES = "pyspark_kafka_eos.commit.ledger.places"

ANOTHER_CLUSTER = "P1: The offsets of another cluster"
RECREATED = "P1: A topic that was recreated"
OLDER = "P2: The end of an older leader"
ROUTES = "P4: A repair routes by"
EVERY_PARTITION = "P5: A key is looked for in every partition"
NEWER = "P5: An older decision in the key's partition"
GROUP = "P1: A group's offset says what it stands on"
LOCAL = "P7: A time without a zone"
PRESENT = "P8: A decision names the topic that its records are in"

BREACHES = {
    ANOTHER_CLUSTER: (
        Planted(
            "a checkpoint of another cluster is taken as it is", f"{LOGS}:KnownLogs.on_this_cluster",
            "if position.cluster_id != options.adopt_cluster:", "if False:",
        ),
        Planted(
            "adopt.cluster stands for whatever cluster the checkpoint is of", f"{LOGS}:KnownLogs.on_this_cluster",
            "if position.cluster_id != options.adopt_cluster:", "if not options.adopt_cluster:",
        ),
    ),
    RECREATED: (
        Planted(
            "nobody compares the topic's id with that of the offsets", f"{LOGS}:KnownLogs.recreated",
            "log.topic_id and", "False and",
        ),
        Planted(
            "the batch that Spark has logged is read of whatever topic has the name", f"{VIEW}:SourceView.not_as_logged",
            "return set(found)", "return set()",
        ),
        Planted(
            "the offsets do not name their topics' ids", "pyspark_kafka_eos.spark.offset_json:_topic_entries",
            "if told:", "if False:",
        ),
    ),
    "P1: No offset of a topic that was recreated": (
        Planted(
            "the group gets the offsets of any topic that has the name", "pyspark_kafka_eos.spark.source.source_group:_of_these_topics",
            "others[topic] = here", "pass",
        ),
    ),
    GROUP: (
        Planted(
            "the group's offsets say nothing of their topic", "pyspark_kafka_eos.model.group_offset:GroupOffset.metadata",
            "if not (self.topic_id and self.cluster_id):", "if True:",
        ),
        Planted(
            "the group's offsets say nothing of their leader", "pyspark_kafka_eos.spark.offset_log:placed_of",
            "log.leader_epoch", "-1",
        ),
        Planted(
            "a query begins in whatever log is there", f"{VIEW}:SourceView._on_these_logs",
            "cluster, here,", "cluster, Position({}),",
        ),
        Planted(
            "another client's epoch is not compared", f"{VIEW}:SourceView._of_no_leader",
            "= {where for where, epoch in marks.items() if epoch > cluster.leader_epoch(where)}", ": set[TopicPartition] = set()",
        ),
        Planted(
            "a mirror's metadata count on the cluster that has the copy", "pyspark_kafka_eos.spark.source.committed_start:_log_of",
            'if at.cluster_id not in ("", cluster.cluster_id()):', "if False:",
        ),
    ),
    OLDER: (
        Planted(
            "the leader's epoch is not compared with that of the position", "pyspark_kafka_eos.client.reading.offsets:Offsets._list",
            'return log.leader_epoch if log.topic_id == self.cluster.topic_id(where.topic) != "" else -1', "return -1",
        ),
        Planted(
            "an end below the position is taken at the first word", f"{VIEW}:SourceView._ends_at",
            "if not below.keys() - held.keys() or time.monotonic() >= give_up:", "if True:",
        ),
        Planted(
            "an end below a group's offsets is taken at the first word", f"{VIEW}:SourceView._ends_at",
            "and ends[where].offset < at", "and ends[where].offset < at and where in position.logs",
        ),
    ),
    "P2: A log that a newer leader has cut": (
        Planted(
            "a log that was cut is planned from its first record", "pyspark_kafka_eos.spark.source.source:KafkaStreamReader.latestOffset",
            "if begin.logs.get(where, _UNKNOWN).topic_id:", "if False:",
        ),
        Planted(
            "where a log was cut, as its leader reports it, is not where the query goes on", f"{VIEW}:SourceView.look",
            "other.go_on for", "0 for",
        ),
    ),
    "P2: A position is dropped only where": (
        Planted(
            "the broker that answers is believed when the patience is over",
            "pyspark_kafka_eos.spark.source.source_partitions:SourcePartitions.partitions",
            "if not missing or (late and not self._still_there(missing)):", "if not missing or late:",
        ),
    ),
    "P3: The seals of two attempts": (
        Planted(
            "what Spark says of a second attempt has no consequence", "pyspark_kafka_eos.spark.sink.stage_attempts:require_one_attempt",
            "elif newest > 0:", "elif newest > 1:",
        ),
        Planted(
            "any numbers of tasks count as those of one attempt", "pyspark_kafka_eos.spark.sink.stage_attempts:_leave_no_room",
            "return between < _BETWEEN", "return True",
        ),
        Planted(
            "numbers without a gap prove nothing", "pyspark_kafka_eos.spark.sink.stage_attempts:_leave_no_room",
            "return between < _BETWEEN", "return False",
        ),
        Planted(
            "by format nobody asks", "pyspark_kafka_eos.spark.sink.sink:KafkaSinkWriter.commit",
            "require_one_attempt(seals, ask_driver())", "pass",
        ),
        Planted(
            "by df.write nobody asks", "pyspark_kafka_eos.spark.sink.batch_sink:BatchWriter.commit",
            "require_one_attempt(seals, ask_driver())", "pass",
        ),
        Planted(
            "by foreachBatch nobody asks", "pyspark_kafka_eos.spark.sink.foreach_batch:ExactlyOnceWriter._run_slots",
            'require_one_attempt(seals, ask_spark(getattr(frame.sparkSession, "_sc", None)))', "pass",
        ),
    ),
    ROUTES: (
        Planted(
            "a repair is planned without what the batch was routed by", "pyspark_kafka_eos.commit.per_task:PerTask.plan",
            ", routes = newest.sticky_bytes, newest.basis, newest.routes", "= newest.sticky_bytes, newest.basis",
        ),
        Planted(
            "a row is routed by the partitions that the topic has by now", "pyspark_kafka_eos.slot.routing:routed_as_decided",
            "return replace(now, partitions=decided.partitions)", "return now",
        ),
        Planted(
            "dead letters are routed by the partitions that their topic has by now",
            "pyspark_kafka_eos.slot.writer:SlotWriter._dead_letters",
            "routed = routed_as_decided(cluster, topic, plan, self.slot)",
            'routing = __import__("pyspark_kafka_eos.slot.routing", fromlist=["routed_topic"])\n'
            "routed = routing.routed_topic(cluster, topic, refresh=True)",
        ),
    ),
    EVERY_PARTITION: (
        Planted(
            "the key's partition alone says that there is no decision", f"{PLACES}:Places.look",
            "or self._unsure(view)", "",
        ),
    ),
    NEWER: (
        Planted(
            "a decision in the key's partition is the newest one, whatever note is behind it", f"{PLACES}:Places.look",
            "moved is not None or self._unsure(view)", "newest is None and not self._fresh",
        ),
        Planted(
            "a run that moves leaves no note behind the decision before", "pyspark_kafka_eos.commit.ledger.topic:Ledger.add_decision",
            "(left := self._places.leaves()) is not None", "(left := self._places.leaves()) is not None and not self.pipeline",
        ),
    ),
    "P6: The hand-over names the partition": (
        Planted(
            "the process that commits ends the turns where the key is by now",
            "pyspark_kafka_eos.commit.whole_batch.driver:WholeBatch.resume",
            "self._identity, self._turns_begin = handover.shared, handover.turns",
            "self._identity, turns = handover.shared, handover.turns\n"
            "self._turns_begin = turns and replace(turns, where=self._prepare_turns())",
        ),
    ),
    LOCAL: (
        Planted(
            "a local time is taken for one of UTC", "pyspark_kafka_eos.spark.sink.rows:LocalTimes.to_instants",
            "instants(known, zone)", "known",
        ),
        Planted(
            "a repair takes the session's zone instead of the decision's", "pyspark_kafka_eos.slot.plan:WritePlan.in_zone",
            "self if known else replace(self, basis=replace(self.basis, time_zone=session_zone))",
            "replace(self, basis=replace(self.basis, time_zone=session_zone or known))",
        ),
        Planted(
            "a task takes its session's zone instead of the decision's", "pyspark_kafka_eos.spark.sink.tasks:write_as_slot",
            "settings.basis.time_zone or context.getLocalProperty(SESSION_ZONE)",
            "context.getLocalProperty(SESSION_ZONE) or settings.basis.time_zone",
        ),
        Planted(
            "a zone that is not known is UTC", "pyspark_kafka_eos.spark.sink.rows:LocalTimes._require",
            "if not self._zone:", 'if not self._zone:\n    return zone_of("UTC")\nif False:',
        ),
        Planted(
            "of a time that comes twice the second one is meant", "pyspark_kafka_eos.records.local_times:_offset",
            "offset = local.utcoffset()", "offset = local.replace(fold=1).utcoffset()",
        ),
    ),
    PRESENT: (
        Planted(
            "the tasks of a retry route by what their workers know", "pyspark_kafka_eos.slot.routing:routed_as_decided",
            "or plan.doubts(topic, cluster.topic_id(topic))", "",
        ),
        Planted(
            "what one seal names is what all of them name", "pyspark_kafka_eos.commit.gone.recreated:recreated",
            "(now.get(topic.name) or ids[topic.name])", "now.get(topic.name, set())",
        ),
        Planted(
            "a log that begins anew is no reason to ask", "pyspark_kafka_eos.commit.gone.recreated:recreated",
            "doubted |= ids.keys() & _begun_anew(seals, states, before)", "",
        ),
        Planted(
            "partitions whose topics have different ids are asked about as if of one", "pyspark_kafka_eos.client.reading.absence:existing",
            "known.topic_id", "max(each.topic_id for each in places.values())",
        ),
    ),
}  # fmt: skip
