"""Breaches of: two readers of one ledger (findings L1 to L7)."""

from __future__ import annotations

from tests.rules.table import Breach

TOPIC = "connector/pyspark_kafka_eos/commit/ledger/topic.py"
HISTORY = "connector/pyspark_kafka_eos/operations/history.py"
STANDING = "connector/pyspark_kafka_eos/operations/standing.py"
STRICT = "connector/pyspark_kafka_eos/model/strict.py"

CARRIED_ON = "L1: What a mending left an id at"
EVERY_NOTE = "L1: Before anybody is accused"
NEWEST = "L2: Every command judges"
TOMBSTONE = "L4: A tombstone"
TAIL = "L5: A ledger that lost its tail"
READ_STRICTLY = "L6: A record that anybody"
PENDING = "L7: A decided batch that the next run"

BREACHES = (
    Breach(
        CARRIED_ON,
        "a run does not keep where it left an id that it mended",
        TOPIC,
        "            self.last_commits[transactional_id] = identity",
        "            pass",
    ),
    Breach(
        CARRIED_ON,
        "a decision names the ids of its own seals alone",
        TOPIC,
        "        return tuple(earlier)",
        "        return ()",
    ),
    Breach(
        CARRIED_ON,
        "a repair names a mended id as it was sealed",
        "connector/pyspark_kafka_eos/commit/shell.py",
        "self.decision.repaired_by(effect.seals, ledger.last_commits)",
        "self.decision.repaired_by(effect.seals)",
    ),
    Breach(
        CARRIED_ON,
        "a mending is carried on behind a later commit of the slot",
        TOPIC,
        "        earlier = sorted((name, each) for name, each in known.items() if name not in now)\n        known |= now",
        "        earlier = sorted(known.items())\n        known |= now",
    ),
    Breach(
        EVERY_NOTE,
        "only the newest decision and the notes behind it count",
        "connector/pyspark_kafka_eos/commit/ledger/lost.py",
        "    return replace(view, mended=view.mended | ledger.mended())",
        "    return view",
    ),
    Breach(
        EVERY_NOTE,
        "a mending accounts for every later commit of its id",
        "connector/pyspark_kafka_eos/commit/ledger/lost.py",
        "(name, identity) not in view.mended",
        "name not in dict(view.mended)",
    ),
    Breach(
        NEWEST,
        "an open decision is none, whatever shows it to be made",
        STANDING,
        "        if mender.is_decided(record, view, by):",
        "        if False:",
    ),
    Breach(
        NEWEST,
        "an open decision is made, whatever shows it to be none",
        STANDING,
        "        if mender.is_decided(record, view, by):",
        "        if True:",
    ),
    Breach(
        NEWEST,
        "a note that an open decision's batch is ended says nothing",
        HISTORY,
        "            return replace(entry, open=False)",
        "            return entry",
    ),
    Breach(
        NEWEST,
        "a decision that lives in a note only is not shown",
        HISTORY,
        "        return Entry(record.pipeline, record.where, note.offset, record.written_ms, decision)",
        "        return None",
    ),
    Breach(
        "L3: A batch that is ended",
        "what the ledger has a note of is proven again",
        "connector/pyspark_kafka_eos/commit/per_task.py",
        "        if run.newest_ended:",
        "        if False:",
    ),
    Breach(
        TOMBSTONE,
        "a run takes a tombstone for a decision that it cannot read",
        "connector/pyspark_kafka_eos/commit/ledger/reader.py",
        "        gone = newest is not None and newest.value is None",
        "        gone = False",
    ),
    Breach(
        TOMBSTONE,
        "the commands take a tombstone for a decision that they cannot read",
        HISTORY,
        "        return self.value is None and not self.open and not self.kind",
        "        return False",
    ),
    Breach(
        TOMBSTONE,
        "what is in front of a tombstone is shown",
        HISTORY,
        "        if name in self._forgotten:",
        "        if record.tombstone:",
    ),
    Breach(
        TOMBSTONE,
        "what is behind a tombstone is no pipeline either",
        "connector/pyspark_kafka_eos/commit/ledger/reader.py",
        "            if newest is None or note.offset > newest.offset:\n                gone = False",
        "            if newest is None or note.offset > newest.offset:\n                pass",
    ),
    Breach(
        TAIL,
        "no command looks for commits that the ledger does not account for",
        STANDING,
        "    if _MADE_UP.fullmatch(pipeline):",
        "    if True:",
    ),
    Breach(
        TAIL,
        "a pipeline without a decision is accused wherever it is seen",
        STANDING,
        " or (view.newest is None and not named):",
        ":",
    ),
    Breach(
        TAIL,
        "a write that has forgotten its name is accused",
        STANDING,
        "    if _MADE_UP.fullmatch(pipeline):",
        "    if False:",
    ),
    Breach(
        READ_STRICTLY,
        "a text of 100,000 brackets is an error of another class",
        STRICT,
        "AttributeError, OverflowError, RecursionError)",
        "AttributeError, OverflowError)",
    ),
    Breach(
        READ_STRICTLY,
        "bytes that are no text are an error of another class",
        STRICT,
        "MALFORMED = (ValueError, TypeError,",
        "MALFORMED = (json.JSONDecodeError, TypeError,",
    ),
    Breach(
        READ_STRICTLY,
        "numbers have no bounds",
        STRICT,
        "    if type(value) is not int or not low <= value <= high:",
        "    if type(value) is not int:",
    ),
    Breach(
        READ_STRICTLY,
        "whatever Python makes a number of is one",
        STRICT,
        "    if type(value) is not int or not low <= value <= high:",
        "    value = int(value)\n    if not low <= value <= high:",
    ),
    Breach(
        READ_STRICTLY,
        "a manifest may name as many parts as a number has",
        "connector/pyspark_kafka_eos/commit/ledger/parts.py",
        'strict.whole(data["parts"], 1, MOST_PARTS)',
        'strict.whole(data["parts"], 1)',
    ),
    Breach(
        READ_STRICTLY,
        "one record that cannot be read ends the reading of all",
        HISTORY,
        "            problem = error.message\n        return Entry(",
        "            raise\n        return Entry(",
    ),
    Breach(
        PENDING,
        "it is DecisionBroken, which restarts do not help",
        "connector/pyspark_kafka_eos/commit/handover/phases.py",
        "from kafka_core.errors import ExactlyOnceError, ProducerFenced, RepairPending\n",
        "from kafka_core.errors import DecisionBroken as RepairPending\nfrom kafka_core.errors import ExactlyOnceError, ProducerFenced\n",
    ),
)
