"""Breaches of: what people do, and what the matrices found (findings H1 to H10, M1 to M21)."""

from __future__ import annotations

from tests.support.planting import Planted

PARTITIONS = "pyspark_kafka_eos.spark.source.source_partitions"
WRITE = "pyspark_kafka_eos.commit.dataframe_write"
FIRST_START = "pyspark_kafka_eos.commit.start.first_start"
IDENTITY = "pyspark_kafka_eos.spark.sink.query_identity"
START = "pyspark_kafka_eos.operations.source_start"
CONFIG = "pyspark_kafka_eos.jobs.config"
RULES_SEEN = "pyspark_kafka_eos.client.requests.topic_settings"
MARKERS = "pyspark_kafka_eos.commit.markers"
PER_TASK = "pyspark_kafka_eos.commit.per_task"

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

BREACHES = {
    PATTERN: (
        Planted(
            "a pattern reads every topic that it matches", f"{PARTITIONS}:SourcePartitions._without_own",
            "return names - self._own", "return names",
        ),
        Planted(
            "the mark of this package's topics is not looked for", f"{PARTITIONS}:SourcePartitions._without_own",
            "own = marked(self.offsets.cluster, new)", "own: set[str] = set()",
        ),
        Planted(
            "a topic without the mark is a user's, whatever its name", f"{PARTITIONS}:SourcePartitions.__init__",
            "self._own = set(OWN_NAMES)", "self._own: set[str] = set()",
        ),
        Planted(
            "the marks are asked for at every plan", f"{PARTITIONS}:SourcePartitions._without_own",
            "self._users |= new - own", "",
        ),
    ),
    LOOP: (
        Planted(
            "no batch says so", "pyspark_kafka_eos.spark.source.source_group:warn_of_a_loop",
            "for topic in sorted(read & written):", "for topic in ():",
        ),
        Planted(
            "a topic of the same name on another cluster is a loop", "pyspark_kafka_eos.spark.source.source_group:warn_of_a_loop",
            "if mine and each.cluster_id == mine:", "if True:",
        ),
        Planted(
            "the doctor does not say so", "pyspark_kafka_eos.operations.topic_checks:loops",
            "for topic in sorted(found) if len(ids) == 1 else ():", "for topic in ():",
        ),
    ),
    "H3: df.write with a pipeline": (
        Planted(
            "a write inside a micro-batch needs no number", "pyspark_kafka_eos.spark.sink.batch_sink:_refuse_unnumbered",
            "batch_id is None", "True",
        ),
    ),
    OTHER_ROWS: (
        Planted(
            "whatever rows come under a committed number, all is well", f"{WRITE}:compare",
            "elif decided.differ(again):", "elif False:",
        ),
        Planted(
            "as many rows are the same rows", f"{WRITE}:Rows.differ",
            "or (comparable and self.digest != other.digest)", "",
        ),
        Planted(
            "the option to fail has no consequence", f"{WRITE}:compare",
            'if options.rows_differ == "fail":', "if False:",
        ),
        Planted(
            "rows that cannot be measured are other rows", f"{WRITE}:compare",
            "if failures or len(seals) < tasks:", "if False:",
        ),
        Planted(
            "dead letters are compared by their digest", f"{WRITE}:Rows.differ",
            "comparable = not self.dead_letters and not other.dead_letters", "comparable = True",
        ),
    ),
    "H5: A writer that is called in a thread": (
        Planted(
            "only the calling thread tells the query", f"{IDENTITY}:QueryIdentity.of_session",
            "_query_of_session(spark)", "None",
        ),
    ),
    "H6: One pipeline name on two clusters": (
        Planted(
            "a name is a pipeline, wherever it is", "pyspark_kafka_eos.spark.sink.foreach_batch:_name_of",
            "cluster.cluster_id() or str(options.client.bootstrap_servers)", '""',
        ),
    ),
    RENAMED: (
        Planted(
            "the names that the query had are not looked for", f"{FIRST_START}:_judge_names",
            "for name in [each for each in names if each not in beside]:", "for name in ():",
        ),
        Planted(
            "what this run writes beside counts as a former name", f"{FIRST_START}:_judge_names",
            "for name in [each for each in names if each not in beside]:", "for name in list(names):",
        ),
        Planted(
            "another query's pipeline counts as a former name", f"{FIRST_START}:_newest_of",
            "and newest.query_id == query_id", "",
        ),
        Planted(
            "the cluster that the checkpoint's offsets are of is not named", f"{FIRST_START}:warn_of_gap",
            "if elsewhere:", "if False:",
        ),
    ),
    DOCTOR: (
        Planted("an offset beyond the end is good", f"{START}:_offsets", "if offset > highest[where]:", "if False:"),
        Planted(
            "offsets of some of the partitions are good", f"{START}:start",
            "exactly(option, given, partitions)",
            "{where: given[where.topic][where.partition] for where in partitions if where.partition in given[where.topic]}",
        ),
        Planted("a time behind every record is good", f"{START}:_times", "if source.fail_on_no_match:", "if False:"),
        Planted("an offset that is deleted is good", f"{START}:_offsets", "if offset < earliest[where]:", "if False:"),
        Planted(
            "a file's fields may have any names", f"{CONFIG}:wrong_fields",
            "for name in sorted(map(str, body.keys() - ours)):", "for name in ():",
        ),
        Planted(
            "the last line says yes, whatever fails", "pyspark_kafka_eos.cli.documents:doctor",
            "can_start = {FINE: True, WRONG: False}.get(code)", "can_start = True",
        ),
    ),
    WHOSE: (
        Planted(
            "the ids of the two queries are not compared", f"{IDENTITY}:QueryIdentity.require_own_checkpoint",
            "if found != self.query_id:", "if False:",
        ),
        Planted(
            "the option goes before Spark's word", f"{IDENTITY}:QueryIdentity.__init__",
            "self.checkpoint = checkpoint or named", "self.checkpoint = named or checkpoint",
        ),
        Planted(
            "where Spark does not tell the query, its checkpoint's commit log is not asked",
            f"{IDENTITY}:QueryIdentity.require_own_checkpoint",
            "if is_committed(spark, named, batch_id):", "if False:",
        ),
        Planted(
            "a run does not ask whose checkpoint it is", "pyspark_kafka_eos.spark.sink.foreach_batch:ExactlyOnceWriter.__call__",
            "identity.require_own_checkpoint(frame.sparkSession, batch_id)", "pass",
        ),
    ),
    "M1: A dead letter says nothing": (
        Planted(
            "a dead letter names its slot", "pyspark_kafka_eos.slot.dead_letters:DeadLetters._why",
            '"batch": self._origin.batch_id', '"batch": self._origin.batch_id,\n"slot": self._origin.slot',
        ),
    ),
    CHANGED: (
        Planted("a limit that a worker read once is the topic's", f"{RULES_SEEN}:judged_again", "if moved:", "if False:"),
        Planted(
            "a batch that the topic takes no more is the author's", f"{RULES_SEEN}:judged_again",
            "rules = dict(used.topics).get(topic) if isinstance(topic, str) else None", "rules = None",
        ),
    ),
    AS_DECIDED: (
        Planted(
            "a repair takes the query's options of now", f"{PER_TASK}:PerTask.plan",
            "return replace(plan, **decided)", "return plan",
        ),
        Planted(
            "rows that named their topics go to the one of the option", f"{PER_TASK}:_as_decided",
            "if then.topic is None and now.topic is not None:", "if False:",
        ),
    ),
    ENDS_ELSEWHERE: (
        Planted(
            "what the offset log has for earlier batches is not compared", "pyspark_kafka_eos.commit.start.admission:judge_earlier",
            "if not logged or tuple(logged) == newest.source_offsets:", "if True:",
        ),
        Planted(
            "a run does not ask for it", "pyspark_kafka_eos.commit.start.admission:admit",
            "return (*adopted, *judge_earlier(options, query_id, newest, batch_id, earlier))", "return adopted",
        ),
    ),
    "M14: Another batch under the number": (
        Planted(
            "the time of the plan is not compared", "pyspark_kafka_eos.commit.start.admission:refuse_conflict",
            "if decided and planned is not None and then is not None and planned != then:", "if False:",
        ),
        Planted(
            "every source's text counts as telling its rows", "pyspark_kafka_eos.spark.offset_log:parse_offsets",
            "if all(map(_tells, sources)) else _planned_ms(lines[1])", "",
        ),
    ),
    "M15: A checkpoint that is adopted": (
        Planted(
            "a checkpoint is adopted wherever it begins", "pyspark_kafka_eos.commit.start.admission:judge_adopted",
            "if not found:", "if True:",
        ),
        Planted(
            "where the batch itself says to begin is not read", "pyspark_kafka_eos.spark.offset_log:begins_elsewhere",
            "lowest(placed_of(each.began, each.cluster_id) for each in sources if each.began is not None)", "{}",
        ),
        Planted(
            "a topic of the same name is the same", "pyspark_kafka_eos.spark.offset_log:begins_elsewhere",
            "if begin is None or not end.topic_id or of(begin) != of(end):", "if begin is None:",
        ),
    ),
    "M17: A start under a name": (
        Planted(
            "a name with a decision is not asked for", f"{FIRST_START}:admit",
            "if view.renamed is not None and view.renamed.query_id == query_id:", "if False:",
        ),
        Planted("the former names get no note", f"{FIRST_START}:_judge_names", "for former in left:", "for former in ():"),
    ),
    "M18: What is confirmed of one batch": (
        Planted(
            "a confirmed start is as good as an unused pipeline", f"{FIRST_START}:_is_noted",
            "(began is not None and not began.adopted)", "began is not None",
        ),
        Planted(
            "all jobs have one number", f"{FIRST_START}:admit",
            "now = now if options.batch_id is None else replace(now, batch_id=options.batch_id)", "",
        ),
    ),
    "M19: By hand nothing is taken away": (
        Planted(
            "the commands do not ask", "pyspark_kafka_eos.cli.app:_change",
            'lost = None if command == "commit" else lost_ledger(cluster, options, options.pipeline)', "lost = None",
        ),
        Planted(
            "ids without a first start are no sign", "pyspark_kafka_eos.operations.standing:lost_ledger",
            "return refused or first_start.known_elsewhere(options, view, known)", "return refused",
        ),
    ),
    "M20: A tombstone under a pipeline": (
        Planted(
            "commits without a decision are always a lost ledger", "pyspark_kafka_eos.commit.start.admission:refuse_lost_ledger",
            "if newest is None and shown and view.forgotten:", "if False:",
        ),
        Planted(
            "ids without a first start are always another ledger's", f"{FIRST_START}:_by_coordinators",
            "if view.forgotten:", "if False:",
        ),
    ),
    "M16: A batch that is committed under": (
        Planted(
            "who adopts is not asked", f"{FIRST_START}:_judge_names",
            "until >= batch_id", "until >= batch_id and not options.adopt_checkpoint",
        ),
        Planted(
            "the first batch of a query is nobody's", f"{FIRST_START}:admit",
            "if offset_log is not None or behind:", "if behind:",
        ),
        Planted(
            "frames of df.write are one query", f"{FIRST_START}:admit",
            "if offset_log is not None or behind:", "if True:",
        ),
    ),
    CLOCK: (
        Planted(
            "the driver calls it a bad row", "pyspark_kafka_eos.commit.decision:write_decision",
            "except WrongClock as error:", "except ProducerFenced as error:",
        ),
        Planted(
            "a task does not name the clock", "pyspark_kafka_eos.client.writing.appending:append",
            "if code == Code.INVALID_TIMESTAMP:", "if False:",
        ),
        Planted(
            "a row without a time of its own is called a bad row", "pyspark_kafka_eos.client.writing.produce_refusals:RefusedBatch.error",
            "by_clock = self.machine_time and self.code == Code.INVALID_TIMESTAMP", "by_clock = False",
        ),
    ),
    "M21: An undecided repair": (
        Planted(
            "the slots that a repair keeps show it", f"{MARKERS}:Mender._shown",
            "kept = {seal.identity for each in before for seal in each.seals}", "kept = set()",
        ),
        Planted(
            "only a decision that is committed stands before it", f"{MARKERS}:Mender._before",
            "before = [decision for offset, decision in open_ if offset < record.offset]", "before = []",
        ),
        Planted(
            "only a decision that is open stands before it", f"{MARKERS}:Mender._before",
            "before.append(view.newest)", "pass",
        ),
        Planted(
            "no slot shows a repair", f"{MARKERS}:Mender._before", "offset < record.offset", "offset <= record.offset",
        ),
    ),
    "M8: A batch in one transaction": (
        Planted(
            "a batch without a row has no fate", "pyspark_kafka_eos.commit.fates:fates_of",
            "in found.items()", "in found.items() if parts",
        ),
    ),
}  # fmt: skip
