"""Breaches of: places without what they stand on (findings P1 to P8)."""

from __future__ import annotations

from tests.rules.table import Breach

LOGS = "connector/pyspark_kafka_eos/spark/source/source_logs.py"
VIEW = "connector/pyspark_kafka_eos/spark/source/source_view.py"
PLACES = "connector/pyspark_kafka_eos/commit/ledger/places.py"

ANOTHER_CLUSTER = "P1: The offsets of another cluster"
MADE_ANEW = "P1: A topic that was made anew"
OLDER = "P2: The end of an older leader"
ROUTES = "P4: A repair routes by"
EVERY_PARTITION = "P5: A key is looked for in every partition"
NEWER = "P5: An older decision in the key's partition"
GROUP = "P1: A group's offset says what it stands on"
LOCAL = "P7: A time without a zone"
PRESENT = "P8: A decision names the topic that its records are in"

BREACHES = (
    Breach(
        ANOTHER_CLUSTER,
        "a checkpoint of another cluster is taken as it is",
        LOGS,
        "        if position.cluster_id != options.adopt_cluster:",
        "        if False:",
    ),
    Breach(
        ANOTHER_CLUSTER,
        "adopt.cluster stands for whatever cluster the checkpoint is of",
        LOGS,
        "        if position.cluster_id != options.adopt_cluster:",
        "        if not options.adopt_cluster:",
    ),
    Breach(
        MADE_ANEW,
        "nobody compares the topic's id with that of the offsets",
        LOGS,
        "            if log.topic_id and cluster.topic_id(where.topic)",
        "            if False and cluster.topic_id(where.topic)",
    ),
    Breach(
        MADE_ANEW,
        "the batch that Spark has logged is read of whatever topic has the name",
        VIEW,
        "        return set(found)",
        "        return set()",
    ),
    Breach(
        MADE_ANEW,
        "the offsets do not name their topics' ids",
        "connector/pyspark_kafka_eos/spark/offset_json.py",
        "        if told:",
        "        if False:",
    ),
    Breach(
        "P1: No offset of a topic that was made anew",
        "the group gets the offsets of any topic that has the name",
        "connector/pyspark_kafka_eos/spark/source/source_group.py",
        '            if here in ("", read):',
        "            if True:",
    ),
    Breach(
        GROUP,
        "the group's offsets say nothing of their topic",
        "connector/pyspark_kafka_eos/model/group_offset.py",
        "        if not (self.topic_id and self.cluster_id):",
        "        if True:",
    ),
    Breach(
        GROUP,
        "the group's offsets say nothing of their leader",
        "connector/pyspark_kafka_eos/spark/offset_log.py",
        "GroupOffset(offset, log.leader_epoch, log.topic_id, source.cluster_id or cluster_id)",
        "GroupOffset(offset, -1, log.topic_id, source.cluster_id or cluster_id)",
    ),
    Breach(
        GROUP,
        "a query begins in whatever log is there",
        VIEW,
        "        others = self.logs.other_logs(self.offsets.cluster, here, ends, {})",
        "        others = self.logs.other_logs(self.offsets.cluster, Position({}), ends, {})",
    ),
    Breach(
        GROUP,
        "another client's epoch is not compared",
        VIEW,
        "        newer = {where for where, epoch in marks.items() if epoch > cluster.leader_epoch(where)}",
        "        newer: set[TopicPartition] = set()",
    ),
    Breach(
        GROUP,
        "a mirror's metadata count on the cluster that has the copy",
        "connector/pyspark_kafka_eos/spark/source/committed_start.py",
        '    if at.cluster_id not in ("", cluster.cluster_id()):',
        "    if False:",
    ),
    Breach(
        OLDER,
        "the leader's epoch is not compared with that of the position",
        "connector/pyspark_kafka_eos/client/reading/offsets.py",
        '            return log.leader_epoch if log.topic_id == self.cluster.topic_id(where.topic) != "" else -1',
        "            return -1",
    ),
    Breach(
        OLDER,
        "an end below the position is taken at the first word",
        VIEW,
        "            if not below.keys() - held.keys() or time.monotonic() >= give_up:",
        "            if True:",
    ),
    Breach(
        OLDER,
        "an end below a group's offsets is taken at the first word",
        VIEW,
        "                and ends[where].offset < at\n",
        "                and ends[where].offset < at and where in position.logs\n",
    ),
    Breach(
        "P2: A log that a newer leader has cut",
        "a log that was cut is planned from its first record",
        "connector/pyspark_kafka_eos/spark/source/source.py",
        "            if begin.logs.get(where, _UNKNOWN).topic_id:",
        "            if False:",
    ),
    Breach(
        "P2: A log that a newer leader has cut",
        "where a log was cut, as its leader reports it, is not where the query goes on",
        VIEW,
        "        elsewhere = {where: other.go_on for where, other in others.items() if other.go_on is not None}",
        "        elsewhere = {where: 0 for where, other in others.items() if other.go_on is not None}",
    ),
    Breach(
        "P2: A position is dropped only where",
        "the broker that answers is believed when the patience is over",
        "connector/pyspark_kafka_eos/spark/source/source_partitions.py",
        "                if not missing or (late and not self._still_there(missing)):",
        "                if not missing or late:",
    ),
    Breach(
        "P3: The seals of two attempts",
        "what Spark says of a second attempt has no consequence",
        "connector/pyspark_kafka_eos/spark/sink/stage_attempts.py",
        "        elif newest > 0:",
        "        elif newest > 1:",
    ),
    Breach(
        "P3: The seals of two attempts",
        "any numbers of tasks count as those of one attempt",
        "connector/pyspark_kafka_eos/spark/sink/stage_attempts.py",
        "    return between < _BETWEEN",
        "    return True",
    ),
    Breach(
        "P3: The seals of two attempts",
        "numbers without a gap prove nothing",
        "connector/pyspark_kafka_eos/spark/sink/stage_attempts.py",
        "    return between < _BETWEEN",
        "    return False",
    ),
    Breach(
        "P3: The seals of two attempts",
        "by format nobody asks",
        "connector/pyspark_kafka_eos/spark/sink/sink.py",
        "            require_one_attempt(seals, ask_driver())",
        "            pass",
    ),
    Breach(
        "P3: The seals of two attempts",
        "by df.write nobody asks",
        "connector/pyspark_kafka_eos/spark/sink/batch_sink.py",
        "            require_one_attempt(seals, ask_driver())",
        "            pass",
    ),
    Breach(
        "P3: The seals of two attempts",
        "by foreachBatch nobody asks",
        "connector/pyspark_kafka_eos/spark/sink/foreach_batch.py",
        '                require_one_attempt(seals, ask_spark(getattr(frame.sparkSession, "_sc", None)))',
        "                pass",
    ),
    Breach(
        ROUTES,
        "a repair is planned without what the batch was routed by",
        "connector/pyspark_kafka_eos/commit/per_task.py",
        "            sticky_bytes, basis, routes = newest.sticky_bytes, newest.basis, newest.routes",
        "            sticky_bytes, basis = newest.sticky_bytes, newest.basis",
    ),
    Breach(
        ROUTES,
        "a row is routed by the partitions that the topic has by now",
        "connector/pyspark_kafka_eos/slot/routing.py",
        "        return replace(now, partitions=decided.partitions)",
        "        return now",
    ),
    Breach(
        ROUTES,
        "dead letters are routed by the partitions that their topic has by now",
        "connector/pyspark_kafka_eos/slot/writer.py",
        "        routed = routed_as_decided(cluster, topic, plan, self.slot)",
        '        routing = __import__("pyspark_kafka_eos.slot.routing", fromlist=["routed_topic"])\n'
        "        routed = routing.routed_topic(cluster, topic, refresh=True)",
    ),
    Breach(
        EVERY_PARTITION,
        "the key's partition alone says that there is no decision",
        PLACES,
        "        while view.moved is not None or (view.newest is None and not self._fresh):",
        "        while view.moved is not None:",
    ),
    Breach(
        NEWER,
        "a decision in the key's partition is the newest one, whatever note is behind it",
        PLACES,
        "        while view.moved is not None or (view.newest is None and not self._fresh):",
        "        while view.newest is None and not self._fresh:",
    ),
    Breach(
        NEWER,
        "a run that moves leaves no note behind the decision before",
        "connector/pyspark_kafka_eos/commit/ledger/topic.py",
        "        if (left := self._places.leaves()) is not None:",
        "        if (left := self._places.leaves()) is not None and not self.pipeline:",
    ),
    Breach(
        "P6: The hand-over names the partition",
        "the process that commits ends the turns where the key is by now",
        "connector/pyspark_kafka_eos/commit/whole_batch/driver.py",
        "        self._identity, self._turns_begin = handover.shared, handover.turns",
        "        self._identity, turns = handover.shared, handover.turns\n"
        "        self._turns_begin = turns and replace(turns, where=self._prepare_turns())",
    ),
    Breach(
        LOCAL,
        "a local time is taken for one of UTC",
        "connector/pyspark_kafka_eos/spark/sink/rows.py",
        "        read = pa.array(instants(known, zone), pa.int64(), mask=nulls)",
        "        read = pa.array(known, pa.int64(), mask=nulls)",
    ),
    Breach(
        LOCAL,
        "a repair takes the session's zone instead of the decision's",
        "connector/pyspark_kafka_eos/slot/plan.py",
        "        return self if known else replace(self, basis=replace(self.basis, time_zone=session_zone))",
        "        return replace(self, basis=replace(self.basis, time_zone=session_zone or known))",
    ),
    Breach(
        LOCAL,
        "a task takes its session's zone instead of the decision's",
        "connector/pyspark_kafka_eos/spark/sink/tasks.py",
        "    times = LocalTimes(settings.basis.time_zone or context.getLocalProperty(SESSION_ZONE))",
        "    times = LocalTimes(context.getLocalProperty(SESSION_ZONE) or settings.basis.time_zone)",
    ),
    Breach(
        LOCAL,
        "a zone that is not known is UTC",
        "connector/pyspark_kafka_eos/spark/sink/rows.py",
        "        if not self._zone:\n",
        '        if not self._zone:\n            return zone_of("UTC")\n        if False:\n',
    ),
    Breach(
        LOCAL,
        "of a time that comes twice the second one is meant",
        "connector/pyspark_kafka_eos/records/local_times.py",
        "    offset = local.utcoffset()",
        "    offset = local.replace(fold=1).utcoffset()",
    ),
    Breach(
        PRESENT,
        "the tasks of a retry route by what their workers know",
        "connector/pyspark_kafka_eos/slot/routing.py",
        "    doubted = decided is not None or plan.doubts(topic, cluster.topic_id(topic))",
        "    doubted = decided is not None",
    ),
    Breach(
        PRESENT,
        "what one seal names is what all of them name",
        "connector/pyspark_kafka_eos/commit/gone/made_anew.py",
        "        others = (now.get(topic.name) or ids[topic.name]) - {topic.topic_id}",
        "        others = now.get(topic.name, set()) - {topic.topic_id}",
    ),
    Breach(
        PRESENT,
        "a log that begins anew is no reason to ask",
        "connector/pyspark_kafka_eos/commit/gone/made_anew.py",
        "    doubted |= ids.keys() & _begun_anew(seals, states, before)\n",
        "",
    ),
    Breach(
        PRESENT,
        "partitions whose topics have different ids are asked about as if of one",
        "connector/pyspark_kafka_eos/client/reading/absence.py",
        "        by_id.setdefault(known.topic_id, set()).add(where)",
        "        by_id.setdefault(max(each.topic_id for each in places.values()), set()).add(where)",
    ),
)
