"""Breaches of: rows that only the broker refuses, and rows that it takes and loses (findings R1 to R5)."""

from __future__ import annotations

from tests.support.planting import Planted

JUDGING = "pyspark_kafka_eos.records.judging"
ROUTING = "pyspark_kafka_eos.slot.routing"
CODES = "kafka_core.protocol.error_codes"
SEQUENCES = "pyspark_kafka_eos.client.writing.sequences"

SETTINGS = "R1: A row that its topic's settings refuse"
LEADER = "R1: What the broker alone can judge"
REPLAY = "R1: A replay judges rows"
EXPIRED = "R2: Rows that their topic does not keep"
REMOVED = "R2: Records that are removed"
EARLY = "R3: A time before 1970"
ONE_LIMIT = "R4: Sink and source have one limit"
FIRST = "R5: Until the first batch"

BREACHES = {
    SETTINGS: (
        Planted(
            "a row without a key goes to a compacted topic", f"{JUDGING}:broken_rules",
            "found.append((NO_KEY, without & (by_row([each.needs_keys for each in rules]) == 1)))", "pass",
        ),
        Planted(
            "a row goes to a topic that does not take its time", f"{JUDGING}:broken_rules",
            "TOO_OLD, stamps < first), (TOO_NEW, stamps > last), (", "",
        ),
        Planted(
            "the error does not say which setting refuses the row", f"{ROUTING}:Router._explain",
            'facts["key"] = _readable(key)', 'facts["key"] = _readable(key)\nfacts.pop("setting", None)',
        ),
        Planted(
            "what one topic takes holds for the rows of all", f"{JUDGING}:broken_rules",
            "asarray(values, dtype=np.int64)[topic_index]", "resize(np.asarray(values[:1], dtype=np.int64), rows)",
        ),
    ),
    LEADER: (
        Planted(
            "the records that an answer names are not looked at", "pyspark_kafka_eos.client.writing.produce_refusals:RefusedBatch.error",
            "if self.code in (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP):", "if False:",
        ),
        Planted(
            "what a policy refuses is tried again for ever", f"{CODES}:_OVERRIDES",
            "Code.POLICY_VIOLATION: Action.REFUSE", "Code.POLICY_VIOLATION: Action.ABORT",
        ),
    ),
    REPLAY: (
        Planted(
            "a replay judges by what its topics take by now", "pyspark_kafka_eos.commit.per_task:PerTask.plan",
            "basis, routes = newest.sticky_bytes, newest.basis", "routes = newest.sticky_bytes",
        ),
        Planted(
            "a replay judges by the moment of its own planning", f"{ROUTING}:Router.__init__",
            "basis.judged_ms or plan.", "",
        ),
        Planted(
            "a decision keeps no rules of its topics", "pyspark_kafka_eos.model.basis:Basis.of_all",
            "= {name: rules for each in known for name, rules in each.topics}", ": dict[str, TopicRules] = {}",
        ),
    ),
    EXPIRED: (
        Planted(
            "nobody says that rows are older than their topic keeps them", f"{JUDGING}:expired",
            "if each.keeps_ms is None or stamps.min() >= judged_ms - each.keeps_ms:", "if True:",
        ),
        Planted(
            "the option to refuse such rows has no consequence", f"{JUDGING}:broken_rules",
            "each.keeps_ms if each.must_keep else", "",
        ),
    ),
    REMOVED: (
        Planted(
            "a task seals what the answers show to be removed", "pyspark_kafka_eos.client.writing.producer:Producer.seal",
            "self._writing().require_kept()", "",
        ),
        Planted(
            "where a log begins is not looked at before an open slot is ended", "pyspark_kafka_eos.commit.open_parts:parts_before",
            "if starts.get(where, 0) > part.first_offset >= 0:", "if False:",
        ),
    ),
    EARLY: (
        Planted(
            "a time before 1970 is one like another", f"{JUDGING}:require_times",
            "if len(stamps) and stamps.min() < 0:", "if False:",
        ),
        Planted(
            "where rows are judged for dead letters a time before 1970 is good", f"{JUDGING}:judge",
            "mark(stamps < 0, BEFORE_1970)", "",
        ),
        Planted(
            "an error without a code ends the session", f"{CODES}:_OVERRIDES",
            "Code.UNKNOWN_SERVER_ERROR: Action.ABORT", "Code.UNKNOWN_SERVER_ERROR: Action.BUG",
        ),
    ),
    ONE_LIMIT: (
        Planted(
            "a large batch is a damaged one", "kafka_core.compression:_unpack_stream",
            "raise too_large(max_bytes)", 'raise CorruptBatch("a batch is larger than any", {"codec": name})',
        ),
        Planted(
            "the source reads by a limit of its own", "pyspark_kafka_eos.client.reading.fetched_columns:columns_of",
            "=max_unpacked_bytes", "=DEFAULT_UNPACKED_BYTES",
        ),
        Planted(
            "the sink packs by a limit of its own", f"{ROUTING}:Router._add_topic",
            "alone = self.plan.max_unpacked_bytes", "alone = 2**28",
        ),
    ),
    "R4: What columns take beside": (
        Planted(
            "the columns of a batch are made whatever they take", "pyspark_kafka_eos.records.batch:_columns",
            "if _beside_values(totals) - before > max_bytes:", "if False:",
        ),
    ),
    FIRST: (
        Planted(
            "five are in flight before the first one is acknowledged", f"{SEQUENCES}:on_send_next",
            "or _first_is_on_its_way(value)", "",
        ),
        Planted(
            "behind other tasks' batches one waits too", f"{SEQUENCES}:_first_is_on_its_way",
            "any(batch.base_sequence == 0 for batch in value.in_flight)", "bool(value.in_flight)",
        ),
    ),
}  # fmt: skip
