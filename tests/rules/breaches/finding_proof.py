"""Breaches of: the proof (findings V1 to V5)."""

from __future__ import annotations

from tests.support.planting import Planted

AUDIT = "pyspark_kafka_eos.operations.audit"
COUNTING = "pyspark_kafka_eos.operations.counting"
UNDECIDED = "pyspark_kafka_eos.operations.undecided"

MORE = "V1: A commit of the pipeline's producers"
NO_SEAL = "V1: A partition that no seal names"
REMOVED = "V2: What a cleaner removed"
BY_OTHERS = "V5: A batch before whose first record"

BREACHES = {
    MORE: (
        Planted(
            "only the partitions that a seal names are read", f"{AUDIT}:_further",
            "for number in range(len(cluster.topic(topic).leaders))", "for number in ()",
        ),
        Planted(
            "other commits are passed over", f"{COUNTING}:_Reading._count_batch",
            "elif info.producer_id in self._watch.producers:", "elif False:",
        ),
        Planted(
            "records of a marker that say they are older are not looked for", f"{COUNTING}:_Reading.read_transactions",
            "for marker in self._markers:", "for marker in ():",
        ),
        Planted(
            "an id that no seal of the batch names is not watched", f"{UNDECIDED}:KnownCommits.__init__",
            "self.names[end.producer_id] = name", "",
        ),
    ),
    NO_SEAL: (
        Planted(
            "a transaction that a decision names may have records anywhere", f"{UNDECIDED}:KnownCommits.undecided",
            "elif commit.where in decided:", "else:",
        ),
        Planted(
            "what is older than the oldest known decision is undecided", f"{UNDECIDED}:KnownCommits.undecided",
            "if not later:", "if not later and self.pipeline == str():",
        ),
        Planted("the ledger is not read again for what was decided meanwhile", f"{AUDIT}:prove", "newer(name) or", ""),
        Planted(
            "an aborted transaction counts as a commit", f"{COUNTING}:_Reading._note",
            "if kind is MarkerKind.OTHER:\n    return\nwritten = self._others.pop(info.producer_id, None)",
            "written = self._others.pop(info.producer_id, None)\nkind = MarkerKind.COMMIT",
        ),
    ),
    REMOVED: (
        Planted(
            "less than was decided differs, whoever removed it", f"{COUNTING}:CountedTransaction.add_batch",
            "if kind is MarkerKind.COMMIT and thinned and self.records < self.expected:", "if False:",
        ),
        Planted(
            "the next marker of the producer is this transaction's", f"{COUNTING}:CountedTransaction.add_batch",
            "if thinned and not self.records and info.producer_epoch > self.last_marker_epoch:", "if False:",
        ),
        Planted(
            "records of a later epoch are this transaction's", f"{COUNTING}:CountedTransaction.add_batch",
            "elif thinned and info.producer_epoch != self.identity.epoch:", "elif False:",
        ),
    ),
    "V3: Dead letters beside rows": (
        Planted(
            "a dead letter is digested with its time, as the rows are", f"{COUNTING}:CountedTransaction.add_batch",
            "self.buried_more += plain - stamped", "pass",
        ),
    ),
    "V4: A command that nobody answers": (
        Planted(
            "a command says who acts in a query", "pyspark_kafka_eos.cli.documents:failed",
            '"who_acts": error.who_acts_at_the_end or error.who_acts', '"who_acts": error.who_acts',
        ),
    ),
    BY_OTHERS: (
        Planted(
            "without READ nobody looks", "pyspark_kafka_eos.commit.decision:Deciding.passed",
            "if states is not None:", "if True:",
        ),
        Planted(
            "without READ nobody looks at a batch of one transaction", "pyspark_kafka_eos.commit.whole_batch.driver:_Try._check",
            "or self._deciding.passed([seal], states)", "",
        ),
        Planted(
            "what is not open in a partition is taken for open", "pyspark_kafka_eos.commit.decision:broken_part",
            "if part.first_offset >= 0 and", "if False and",
        ),
    ),
}  # fmt: skip
