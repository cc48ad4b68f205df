"""Breaches of: what people do, and what the matrices found (findings H1 to H10, M1 to M8)."""

from __future__ import annotations

from tests.rules.table import Breach

PARTITIONS = "connector/pyspark_kafka_eos/spark/source/source_partitions.py"
WRITE = "connector/pyspark_kafka_eos/commit/dataframe_write.py"
FIRST_START = "connector/pyspark_kafka_eos/commit/start/first_start.py"
IDENTITY = "connector/pyspark_kafka_eos/spark/sink/query_identity.py"
START = "connector/pyspark_kafka_eos/operations/source_start.py"
CONFIG = "connector/pyspark_kafka_eos/jobs/config.py"
RULES_SEEN = "connector/pyspark_kafka_eos/client/requests/topic_settings.py"
PER_TASK = "connector/pyspark_kafka_eos/commit/per_task.py"

PATTERN = "H1: A pattern leaves out"
LOOP = "H2: A query that reads what it writes"
OTHER_ROWS = "H4: Other rows under a number"
RENAMED = "H8: A renamed pipeline"
DOCTOR = "H9: The doctor judges"
WHOSE = "H10: A writer's option"
CHANGED = "M3: A refusal by settings"
AS_DECIDED = "M4: What was aborted"
ENDS_ELSEWHERE = "M5: A checkpoint whose offset log"
CLOCK = "M6: A record of the driver"

BREACHES = (
    Breach(
        PATTERN,
        "a pattern reads every topic that it matches",
        PARTITIONS,
        "        return names - self._own",
        "        return names",
    ),
    Breach(
        PATTERN,
        "the mark of this package's topics is not looked for",
        PARTITIONS,
        "            own = marked(self.offsets.cluster, new)",
        "            own: set[str] = set()",
    ),
    Breach(
        PATTERN,
        "a topic without the mark is a user's, whatever its name",
        PARTITIONS,
        "        self._own = set(OWN_NAMES)",
        "        self._own: set[str] = set()",
    ),
    Breach(
        PATTERN,
        "the marks are asked for at every plan",
        PARTITIONS,
        "            self._users |= new - own\n",
        "",
    ),
    Breach(
        LOOP,
        "no batch says so",
        "connector/pyspark_kafka_eos/spark/source/source_group.py",
        "    for topic in sorted(read & written):",
        "    for topic in ():",
    ),
    Breach(
        LOOP,
        "a topic of the same name on another cluster is a loop",
        "connector/pyspark_kafka_eos/spark/source/source_group.py",
        "        if mine and each.cluster_id == mine:",
        "        if True:",
    ),
    Breach(
        LOOP,
        "the doctor does not say so",
        "connector/pyspark_kafka_eos/operations/topic_checks.py",
        "    for topic in sorted(found) if len(ids) == 1 else ():",
        "    for topic in ():",
    ),
    Breach(
        "H3: df.write with a pipeline",
        "a write inside a micro-batch needs no number",
        "connector/pyspark_kafka_eos/spark/sink/batch_sink.py",
        "    if batch_id is None or options.batch_id is not None",
        "    if True or options.batch_id is not None",
    ),
    Breach(
        OTHER_ROWS,
        "whatever rows come under a committed number, all is well",
        WRITE,
        "    elif decided.differ(again):",
        "    elif False:",
    ),
    Breach(
        OTHER_ROWS,
        "as many rows are the same rows",
        WRITE,
        "        return self.records != other.records or (comparable and self.digest != other.digest)",
        "        return self.records != other.records",
    ),
    Breach(
        OTHER_ROWS,
        "the option to fail has no consequence",
        WRITE,
        '    if options.rows_differ == "fail":',
        "    if False:",
    ),
    Breach(
        OTHER_ROWS,
        "rows that cannot be measured are other rows",
        WRITE,
        "    if failures or len(seals) < tasks:",
        "    if False:",
    ),
    Breach(
        OTHER_ROWS,
        "dead letters are compared by their digest",
        WRITE,
        "        comparable = not self.dead_letters and not other.dead_letters",
        "        comparable = True",
    ),
    Breach(
        "H5: A writer that is called in a thread",
        "only the calling thread tells the query",
        "connector/pyspark_kafka_eos/spark/sink/query_identity.py",
        "        query = _query_of_session(spark) if query_id is None else running_query",
        "        query = None if query_id is None else running_query",
    ),
    Breach(
        "H6: One pipeline name on two clusters",
        "a name is a pipeline, wherever it is",
        "connector/pyspark_kafka_eos/spark/sink/foreach_batch.py",
        "        cluster.cluster_id() or str(options.client.bootstrap_servers),\n",
        '        "",\n',
    ),
    Breach(
        RENAMED,
        "the names that the query had are not looked for",
        FIRST_START,
        "    for name in [each for each in names if each not in beside]:\n        former",
        "    for name in ():\n        former",
    ),
    Breach(
        RENAMED,
        "what this run writes beside counts as a former name",
        FIRST_START,
        "[each for each in names if each not in beside]",
        "list(names)",
    ),
    Breach(
        RENAMED,
        "another query's pipeline counts as a former name",
        FIRST_START,
        "    return newest.batch_id if newest is not None and newest.query_id == query_id else None",
        "    return newest.batch_id if newest is not None else None",
    ),
    Breach(
        RENAMED,
        "the cluster that the checkpoint's offsets are of is not named",
        FIRST_START,
        "    if elsewhere:\n",
        "    if False:\n",
    ),
    Breach(
        DOCTOR,
        "an offset beyond the end is good",
        START,
        "        if offset > highest[where]:",
        "        if False:",
    ),
    Breach(
        DOCTOR,
        "offsets of some of the partitions are good",
        START,
        "exactly(option, given, partitions)",
        "{where: given[where.topic][where.partition] for where in partitions if where.partition in given[where.topic]}",
    ),
    Breach(
        DOCTOR,
        "a time behind every record is good",
        START,
        "        if source.fail_on_no_match:",
        "        if False:",
    ),
    Breach(
        DOCTOR,
        "an offset that is deleted is good",
        START,
        "        if offset < earliest[where]:",
        "        if False:",
    ),
    Breach(
        DOCTOR,
        "a file's fields may have any names",
        CONFIG,
        "    for name in sorted(map(str, body.keys() - ours)):",
        "    for name in ():",
    ),
    Breach(
        DOCTOR,
        "the last line says yes, whatever fails",
        "connector/pyspark_kafka_eos/cli/documents.py",
        "    can_start = {FINE: True, WRONG: False}.get(code)",
        "    can_start = True",
    ),
    Breach(
        WHOSE,
        "the ids of the two queries are not compared",
        IDENTITY,
        "        if found != self.query_id:",
        "        if False:",
    ),
    Breach(
        WHOSE,
        "the option goes before Spark's word",
        IDENTITY,
        "        self.checkpoint = checkpoint or named",
        "        self.checkpoint = named or checkpoint",
    ),
    Breach(
        WHOSE,
        "where Spark does not tell the query, its checkpoint's commit log is not asked",
        IDENTITY,
        "            if is_committed(spark, named, batch_id):",
        "            if False:",
    ),
    Breach(
        WHOSE,
        "a run does not ask whose checkpoint it is",
        "connector/pyspark_kafka_eos/spark/sink/foreach_batch.py",
        "            identity.require_own_checkpoint(frame.sparkSession, batch_id)",
        "            pass",
    ),
    Breach(
        "M1: A dead letter says nothing",
        "a dead letter names its slot",
        "connector/pyspark_kafka_eos/slot/dead_letters.py",
        "            # Not the slot:",
        '            "slot": self._origin.slot,\n            # Not the slot:',
    ),
    Breach(
        CHANGED,
        "a limit that a worker read once is the topic's",
        RULES_SEEN,
        "        if moved:",
        "        if False:",
    ),
    Breach(
        CHANGED,
        "a batch that the topic takes no more is the author's",
        "connector/pyspark_kafka_eos/client/requests/topic_settings.py",
        "    rules = dict(used.topics).get(topic) if isinstance(topic, str) else None",
        "    rules = None",
    ),
    Breach(
        AS_DECIDED,
        "a repair takes the query's options of now",
        PER_TASK,
        "        return replace(plan, **decided)",
        "        return plan",
    ),
    Breach(
        AS_DECIDED,
        "rows that named their topics go to the one of the option",
        PER_TASK,
        "    if then.topic is None and now.topic is not None:",
        "    if False:",
    ),
    Breach(
        ENDS_ELSEWHERE,
        "what the offset log has for earlier batches is not compared",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    if not logged or tuple(logged) == newest.source_offsets:",
        "    if True:",
    ),
    Breach(
        ENDS_ELSEWHERE,
        "a run does not ask for it",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    return (*adopted, *judge_earlier(options, query_id, newest, batch_id, earlier))",
        "    return adopted",
    ),
    Breach(
        "M14: Another batch under the number",
        "the time of the plan is not compared",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    if decided and planned is not None and then is not None and planned != then:",
        "    if False:",
    ),
    Breach(
        "M14: Another batch under the number",
        "every source's text counts as telling its rows",
        "connector/pyspark_kafka_eos/spark/offset_log.py",
        "    return LoggedOffsets(sources, None if all(map(_tells, sources)) else _planned_ms(lines[1]))",
        "    return LoggedOffsets(sources, None)",
    ),
    Breach(
        "M15: A checkpoint that is adopted",
        "a checkpoint is adopted wherever it begins",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    if not found:\n        return ()\n    places",
        "    if True:\n        return ()\n    places",
    ),
    Breach(
        "M15: A checkpoint that is adopted",
        "where the batch itself says to begin is not read",
        "connector/pyspark_kafka_eos/spark/offset_log.py",
        "    begins |= lowest(placed_of(each.began, each.cluster_id) for each in sources if each.began is not None)",
        "    begins |= {}",
    ),
    Breach(
        "M15: A checkpoint that is adopted",
        "a topic of the same name is the same",
        "connector/pyspark_kafka_eos/spark/offset_log.py",
        "        if begin is None or not end.topic_id or of(begin) != of(end):",
        "        if begin is None:",
    ),
    Breach(
        "M17: A start under a name",
        "a name with a decision is not asked for",
        FIRST_START,
        "        if view.renamed is not None and view.renamed.query_id == query_id:",
        "        if False:",
    ),
    Breach(
        "M17: A start under a name",
        "the former names get no note",
        FIRST_START,
        "    for former in left:\n",
        "    for former in ():\n",
    ),
    Breach(
        "M18: What is confirmed of one batch",
        "a confirmed start is as good as an unused pipeline",
        FIRST_START,
        "    unused = view.forgotten or (began is not None and not began.adopted)",
        "    unused = view.forgotten or began is not None",
    ),
    Breach(
        "M18: What is confirmed of one batch",
        "all jobs have one number",
        FIRST_START,
        "    now = now if options.batch_id is None else replace(now, batch_id=options.batch_id)\n",
        "",
    ),
    Breach(
        "M19: By hand nothing is taken away",
        "the commands do not ask",
        "connector/pyspark_kafka_eos/cli/app.py",
        '        lost = None if command == "commit" else lost_ledger(cluster, options, options.pipeline)',
        "        lost = None",
    ),
    Breach(
        "M19: By hand nothing is taken away",
        "ids without a first start are no sign",
        "connector/pyspark_kafka_eos/operations/standing.py",
        "    return refused or first_start.known_elsewhere(options, view, known)",
        "    return refused",
    ),
    Breach(
        "M20: A tombstone under a pipeline",
        "commits without a decision are always a lost ledger",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    if newest is None and shown and view.forgotten:",
        "    if False:",
    ),
    Breach(
        "M20: A tombstone under a pipeline",
        "ids without a first start are always another ledger's",
        FIRST_START,
        "    if view.forgotten:\n        return ended_by_tombstone(",
        "    if False:\n        return ended_by_tombstone(",
    ),
    Breach(
        "M16: A batch that is committed under",
        "who adopts is not asked",
        FIRST_START,
        "        if isinstance(until, int) and until >= batch_id:",
        "        if isinstance(until, int) and until >= batch_id and not options.adopt_checkpoint:",
    ),
    Breach(
        "M16: A batch that is committed under",
        "the first batch of a query is nobody's",
        FIRST_START,
        "    if offset_log is not None or behind:",
        "    if behind:",
    ),
    Breach(
        "M16: A batch that is committed under",
        "frames of df.write are one query",
        FIRST_START,
        "    if offset_log is not None or behind:",
        "    if True:",
    ),
    Breach(
        CLOCK,
        "the driver calls it a bad row",
        "connector/pyspark_kafka_eos/commit/decision.py",
        "    except WrongClock as error:",
        "    except ProducerFenced as error:",
    ),
    Breach(
        CLOCK,
        "a task does not name the clock",
        "connector/pyspark_kafka_eos/client/writing/appending.py",
        "        if code == Code.INVALID_TIMESTAMP:",
        "        if False:",
    ),
    Breach(
        CLOCK,
        "a row without a time of its own is called a bad row",
        "connector/pyspark_kafka_eos/client/writing/produce_refusals.py",
        "            by_clock = self.machine_time and self.code == Code.INVALID_TIMESTAMP",
        "            by_clock = False",
    ),
    Breach(
        "M8: A batch in one transaction",
        "a batch without a row has no fate",
        "connector/pyspark_kafka_eos/commit/fates.py",
        "    return {slot: {where: each.known() for where, each in parts.items()} for slot, parts in found.items()}",
        "    return {slot: {where: each.known() for where, each in parts.items()} for slot, parts in found.items() if parts}",
    ),
)
