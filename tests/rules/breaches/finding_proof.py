"""Breaches of: the proof (findings V1 to V4)."""

from __future__ import annotations

from tests.rules.table import Breach

AUDIT = "connector/pyspark_kafka_eos/operations/audit.py"
COUNTING = "connector/pyspark_kafka_eos/operations/counting.py"
UNDECIDED = "connector/pyspark_kafka_eos/operations/undecided.py"

MORE = "V1: A commit of the pipeline's producers"
NO_SEAL = "V1: A partition that no seal names"
REMOVED = "V2: What a cleaner removed"

BREACHES = (
    Breach(
        MORE,
        "only the partitions that a seal names are read",
        AUDIT,
        "        for number in range(len(cluster.topic(topic).leaders))\n    }",
        "        for number in ()\n    }",
    ),
    Breach(
        MORE,
        "other commits are passed over",
        COUNTING,
        "        elif info.producer_id in self._watch.producers:\n            self._note(batch)",
        "        elif False:\n            self._note(batch)",
    ),
    Breach(
        MORE,
        "records of a marker that say they are older are not looked for",
        COUNTING,
        "        for marker in self._markers:",
        "        for marker in ():",
    ),
    Breach(
        MORE,
        "an id that no seal of the batch names is not watched",
        UNDECIDED,
        "            self.names[end.producer_id] = name\n",
        "",
    ),
    Breach(
        NO_SEAL,
        "a transaction that a decision names may have records anywhere",
        UNDECIDED,
        "        elif commit.where in decided:",
        "        else:",
    ),
    Breach(
        NO_SEAL,
        "what is older than the oldest known decision is undecided",
        UNDECIDED,
        "            if not later:\n                return None",
        "            if not later and self.pipeline == str():\n                return None",
    ),
    Breach(
        NO_SEAL,
        "the ledger is not read again for what was decided meanwhile",
        AUDIT,
        "KnownCommits(newer(name) or next(",
        "KnownCommits(next(",
    ),
    Breach(
        NO_SEAL,
        "an aborted transaction counts as a commit",
        COUNTING,
        "        if kind is MarkerKind.OTHER:\n            return\n        written = self._others.pop(info.producer_id, None)",
        "        written = self._others.pop(info.producer_id, None)\n        kind = MarkerKind.COMMIT",
    ),
    Breach(
        REMOVED,
        "less than was decided differs, whoever removed it",
        COUNTING,
        "            if kind is MarkerKind.COMMIT and thinned and self.records < self.expected:",
        "            if False:",
    ),
    Breach(
        REMOVED,
        "the next marker of the producer is this transaction's",
        COUNTING,
        "        if thinned and not self.records and info.producer_epoch > self.last_marker_epoch:",
        "        if False:",
    ),
    Breach(
        REMOVED,
        "records of a later epoch are this transaction's",
        COUNTING,
        "        elif thinned and info.producer_epoch != self.identity.epoch:",
        "        elif False:",
    ),
    Breach(
        "V3: Dead letters beside rows",
        "a dead letter is digested with its time, as the rows are",
        COUNTING,
        "                self.buried_more += plain - stamped",
        "                pass",
    ),
    Breach(
        "V4: A command that nobody answers",
        "a command says who acts in a query",
        "connector/pyspark_kafka_eos/cli/documents.py",
        '        "who_acts": error.who_acts_at_the_end or error.who_acts,',
        '        "who_acts": error.who_acts,',
    ),
)
