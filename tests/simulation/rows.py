"""Why some rows of the machines' tables are reached by no history.

Owns: the reasons, one for each such row. A reason is true of the product as it is: where it changes, a history may
reach the row, and the report of a campaign says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.coverage import Row

_ONE_QUERY = (
    "The job is one query with a deterministic plan. It takes a query that adopts the unfinished batch of another one, or a repair "
    "that puts rows into other partitions."
)
_ASKED = (
    "Each failure of the question is an answer without proof (DecisionUnanswered), so the step itself does not fail."
)
_REFUSED = (
    "A refusal is the decision's answer, and the abort after it raises nothing: each failure of EndTxn is an answer."
)
_NEVER_COMMITS = "Tasks seal and the driver commits: no session does both."
_FENCED = "Producer steps Fenced while it initialises and in a transaction only: each other answer of a coordinator is a question's result, not an event."
_SESSION = "Producer steps SessionFailed while it initialises only: in a transaction every failure but a fence makes it abortable."
_ONCE = "Producer steps a failure in a transaction only, so a second one changes nothing."
_NO_EVENT_AFTER = "Producer raises where the session fails. One thread uses it, and steps nothing after that."
_LIVE_BUT_TWO = (
    "READY",
    "SEALED",
    "COMMITTING",
    "ABORTING",
    "OUTCOME_UNKNOWN",
    "ABORTABLE_ERROR",
)
_LATE = ("PartitionsAdded", "TransactionFailed", "Fenced", "SessionFailed", "EndUnanswered")

NOT_REACHED: Mapping[Row, str] = {
    Row("commit", "REWRITING", "RewriteFailed"): _ONE_QUERY,
    **{Row("commit", state, "StepFailed"): _ASKED for state in ("DECISION_UNKNOWN", "RECORD_UNKNOWN")},
    **{Row("commit", state, "StepFailed"): _REFUSED for state in ("DECIDING", "RECORDING")},
    Row("batch commit", "UNKNOWN", "StepFailed"): _ASKED,
    Row("batch commit", "DECIDING", "StepFailed"): (
        "A refusal is the decision's answer, and the producer is only stopped after it: nothing is asked that could fail."
    ),
    Row("producer", "SEALED", "CommitRequested"): _NEVER_COMMITS,
    Row("producer", "SEALED", "TransactionFailed"): _ONCE,
    Row("producer", "COMMITTING", "EndNotSent"): (
        "Only a refusal to name the coordinator is met before EndTxn leaves, and the coordinator is known: "
        "whatever loses it between two requests finds it again before the next one."
    ),
    Row("producer", "ABORTABLE_ERROR", "PartitionsAdded"): (
        "One thread asks for partitions and waits for the answer, so no failure comes between the two."
    ),
    Row("producer", "ABORTABLE_ERROR", "TransactionFailed"): _ONCE,
    **{Row("producer", state, "Fenced"): _FENCED for state in _LIVE_BUT_TWO},
    **{Row("producer", state, "SessionFailed"): _SESSION for state in (*_LIVE_BUT_TWO, "IN_TRANSACTION")},
    **{Row("producer", state, late): _NO_EVENT_AFTER for state in ("FENCED", "FATAL") for late in _LATE},
    Row("sequences", "IDLE", "SendNext"): (
        "Delivery asks only for partitions with a batch that waits: it strikes one off its list where the last such batch is sent."
    ),
    Row("sequences", "REJECTED", "SendNext"): (
        "The answer that rejects a batch makes the whole delivery fail, under the same lock, and then nothing is sent any more."
    ),
}
"""Row -> one sentence, or two."""
