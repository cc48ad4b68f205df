"""Breaches of: rows that only the broker refuses, and rows that it takes and loses (findings R1 to R5)."""

from __future__ import annotations

from tests.rules.table import Breach

JUDGING = "connector/pyspark_kafka_eos/records/judging.py"
ROUTING = "connector/pyspark_kafka_eos/slot/routing.py"
CODES = "connector/kafka_core/protocol/error_codes.py"
SEQUENCES = "connector/pyspark_kafka_eos/client/writing/sequences.py"

SETTINGS = "R1: A row that its topic's settings refuse"
LEADER = "R1: What the broker alone can judge"
REPLAY = "R1: A replay judges rows"
EXPIRED = "R2: Rows that their topic does not keep"
REMOVED = "R2: Records that are removed"
EARLY = "R3: A time before 1970"
ONE_LIMIT = "R4: Sink and source have one limit"
FIRST = "R5: Until the first batch"

BREACHES = (
    Breach(
        SETTINGS,
        "a row without a key goes to a compacted topic",
        JUDGING,
        "        found.append((NO_KEY, without & (by_row([each.needs_keys for each in rules]) == 1)))",
        "        pass",
    ),
    Breach(
        SETTINGS,
        "a row goes to a topic that does not take its time",
        JUDGING,
        "        found += [(TOO_OLD, stamps < first), (TOO_NEW, stamps > last), (EXPIRED,",
        "        found += [(EXPIRED,",
    ),
    Breach(
        SETTINGS,
        "the error does not say which setting refuses the row",
        ROUTING,
        '            facts["key"] = _readable(key)',
        '            facts["key"] = _readable(key)\n            facts.pop("setting", None)',
    ),
    Breach(
        SETTINGS,
        "what one topic takes holds for the rows of all",
        JUDGING,
        "        return np.asarray(values, dtype=np.int64)[topic_index]",
        "        return np.resize(np.asarray(values[:1], dtype=np.int64), rows)",
    ),
    Breach(
        LEADER,
        "the records that an answer names are not looked at",
        "connector/pyspark_kafka_eos/client/writing/produce_refusals.py",
        "        if self.code in (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP):",
        "        if False:",
    ),
    Breach(
        LEADER,
        "what a policy refuses is tried again for ever",
        CODES,
        "        Code.POLICY_VIOLATION: Action.REFUSE,",
        "        Code.POLICY_VIOLATION: Action.ABORT,",
    ),
    Breach(
        REPLAY,
        "a replay judges by what its topics take by now",
        "connector/pyspark_kafka_eos/commit/per_task.py",
        "            sticky_bytes, basis, routes = newest.sticky_bytes, newest.basis, newest.routes",
        "            sticky_bytes, routes = newest.sticky_bytes, newest.routes",
    ),
    Breach(
        REPLAY,
        "a replay judges by the moment of its own planning",
        ROUTING,
        "        self._judged_ms = plan.basis.judged_ms or plan.planned_ms or int(runtime.time() * 1000)",
        "        self._judged_ms = plan.planned_ms or int(runtime.time() * 1000)",
    ),
    Breach(
        REPLAY,
        "a decision keeps no rules of its topics",
        "connector/pyspark_kafka_eos/model/basis.py",
        "        topics = {name: rules for each in known for name, rules in each.topics}",
        "        topics: dict[str, TopicRules] = {}",
    ),
    Breach(
        EXPIRED,
        "nobody says that rows are older than their topic keeps them",
        JUDGING,
        "        if each.keeps_ms is None or stamps.min() >= judged_ms - each.keeps_ms:",
        "        if True:",
    ),
    Breach(
        EXPIRED,
        "the option to refuse such rows has no consequence",
        JUDGING,
        "_or_ever(each.keeps_ms if each.must_keep else None)",
        "_or_ever(None)",
    ),
    Breach(
        REMOVED,
        "a task seals what the answers show to be removed",
        "connector/pyspark_kafka_eos/client/writing/producer.py",
        "        self._writing().require_kept()\n",
        "",
    ),
    Breach(
        REMOVED,
        "where a log begins is not looked at before an open slot is ended",
        "connector/pyspark_kafka_eos/commit/open_parts.py",
        "            if starts.get(where, 0) > part.first_offset >= 0:",
        "            if False:",
    ),
    Breach(
        EARLY,
        "a time before 1970 is one like another",
        JUDGING,
        "    if len(stamps) and stamps.min() < 0:",
        "    if False:",
    ),
    Breach(
        EARLY,
        "where rows are judged for dead letters a time before 1970 is good",
        JUDGING,
        "        mark(stamps < 0, BEFORE_1970)\n",
        "",
    ),
    Breach(
        EARLY,
        "an error without a code ends the session",
        CODES,
        "        Code.UNKNOWN_SERVER_ERROR: Action.ABORT,",
        "        Code.UNKNOWN_SERVER_ERROR: Action.BUG,",
    ),
    Breach(
        ONE_LIMIT,
        "a large batch is a damaged one",
        "connector/kafka_core/compression.py",
        "                raise too_large(max_bytes)\n            if size",
        '                raise CorruptBatch("a batch is larger than any", {"codec": name})\n            if size',
    ),
    Breach(
        ONE_LIMIT,
        "the source reads by a limit of its own",
        "connector/pyspark_kafka_eos/client/reading/fetched_columns.py",
        "max_bytes=max_unpacked_bytes):",
        "max_bytes=DEFAULT_UNPACKED_BYTES):",
    ),
    Breach(
        ONE_LIMIT,
        "the sink packs by a limit of its own",
        ROUTING,
        "            alone = self.plan.max_unpacked_bytes",
        "            alone = 2**28",
    ),
    Breach(
        "R4: What columns take beside",
        "the columns of a batch are made whatever they take",
        "connector/pyspark_kafka_eos/records/batch.py",
        "        if _beside_values(totals) - before > max_bytes:",
        "        if False:",
    ),
    Breach(
        FIRST,
        "five are in flight before the first one is acknowledged",
        SEQUENCES,
        " or _first_is_on_its_way(value):",
        ":",
    ),
    Breach(
        FIRST,
        "behind other tasks' batches one waits too",
        SEQUENCES,
        "    return not value.acknowledged and any(batch.base_sequence == 0 for batch in value.in_flight)",
        "    return not value.acknowledged and bool(value.in_flight)",
    ),
)
