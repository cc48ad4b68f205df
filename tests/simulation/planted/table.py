"""The bugs: what each takes back, where, and under which faults it shows."""

from __future__ import annotations

from dataclasses import dataclass

RUN = "pyspark_kafka_eos.commit.run:Run"
PER_TASK = "pyspark_kafka_eos.commit.per_task:PerTask"
SHELL = "pyspark_kafka_eos.commit.shell:CommitShell"
WHOLE = "pyspark_kafka_eos.commit.whole_batch.driver:WholeBatch"
DECIDING = "pyspark_kafka_eos.commit.decision:Deciding"
MENDER = "pyspark_kafka_eos.commit.markers:Mender"
PROOF = "pyspark_kafka_eos.commit.proof"
TASK = "pyspark_kafka_eos.commit.machine.per_task"


@dataclass(frozen=True)
class Bug:
    """`name` says what the product does wrong, `takes_back` the rule or the mended finding that is gone. `also`: a second change, where
    the mend has two layers. `job`: a name of `SHAPES`. `life`: of so many batches, struck as `long_life` says. Not `watched`: records
    are lost, which no look at the logs allows, so only the end is judged."""

    name: str
    takes_back: str
    function: str
    old: str
    new: str
    recipe: str
    scope: str = "task"
    transaction_version: int = 2
    slots: int = 2
    first: int = 0
    job: str = ""
    also: tuple[str, str, str] | None = None
    life: int = 0
    watched: bool = True


BUGS = (
    # ---- the start of a run
    Bug(
        "a decided batch is written again after a restart", "the newest decision is finished, not repeated",
        f"{PER_TASK}._begin", "return report if resumed else None", "return None",
        "driver killed after the ends",
    ),
    Bug(
        "the same with one transaction for a batch", "the newest decision is finished, not repeated",
        f"{PER_TASK}._begin", "return report if resumed else None", "return None",
        "driver killed after the decision", scope="batch",
    ),
    Bug(
        "a decided batch counts as done, unended", "a decided batch is proven and ended",
        f"{PER_TASK}.finish", "shell.run(cm.resume(decision.seals))", "pass",
        "driver killed after the decision",
    ),
    Bug(
        "a decided batch is not looked at by the start of a later one", "a run finishes the newest decision first, whatever batch it is of",
        f"{PER_TASK}._begin", "if run.newest is not None:", "if resumed:",
        "commit log moved on behind a decision",
    ),
    Bug(
        "leftovers are aborted before the decided batch is finished", "a run finishes the decided batch first",
        f"{PER_TASK}._begin", "    ids = run.take_over(batch_id, source_offsets)\n",
        "    ids = run.take_over(batch_id, source_offsets)\n    run.fence_leftovers()\n",
        "driver killed after the decision",
    ),
    Bug(
        "the ledger is not read again behind the fence", "DESIGN: the second reading comes after the fence",
        f"{RUN}.take_over", "    view = self.ledger.settled()\n", "    view = view\n",
        "a zombie decides while its successor waits for the fence",
    ),
    Bug(
        "stale answers about lost decisions are believed", "seed 248",
        f"{RUN}._refuse_lost_ledger", "if after.newest != before.newest:", "if False:",
        "a zombie ends its batch while its successor judges the ledger",
    ),
    Bug(
        "a decision without a marker is looked for too late", "A10",
        f"{RUN}.take_over",
        "    self.mender.settle_decision(self.driver_id, self.options.offsets_group)\n    ids = self._slot_ids()\n"
        "    view = self.ledger.look()\n",
        "    ids = self._slot_ids()\n    view = self.ledger.look()\n"
        "    self._refuse_lost_ledger(batch_id, ids, view)\n"
        "    self.mender.settle_decision(self.driver_id, self.options.offsets_group)\n",
        "a marker of the ledger forgotten, driver killed after the ends",
    ),
    Bug(
        "a decision without a marker is taken for undecided", "A2",
        f"{MENDER}.is_decided", "    return (\n        (record == view.open", "    return False and (\n        (record == view.open",
        "a marker of the ledger forgotten, driver killed",
    ),
    Bug(
        "a decision without a marker is not mended", "A2",
        f"{MENDER}.settle_decision", "    view = self._ledger.look()\n    if view.open is None:\n        if", "    return\n    if True:\n        if",
        "a marker of the ledger forgotten, driver killed",
    ),
    Bug(
        "a try that is open behind a decision without its marker is committed", "found by the simulation, seed 7000309",
        f"{MENDER}.settle_decision", "begun = not decision.in_one_transaction and all(", "begun = all(",
        "a marker of the ledger forgotten, driver killed in the next batch's tasks", scope="batch",
    ),
    Bug(
        "a run does not look whether its last decision has its marker", "found by the model",
        f"{MENDER}.misses_marker", "while states is not None:", "return False\n    while states is not None:",
        "a marker of the ledger forgotten, driver frozen in the next decision",
    ),
    Bug(
        "the older driver does a batch again without asking who owns it", "ownership is checked before a batch is repeated",
        f"{RUN}.require_ownership", "if mine is not None and view.state == \"NotFound\":", "return\n    if False:",
        "a short zombie over its batch",
    ),
    # ---- before the decision
    Bug(
        "the transactions are not looked at before the decision", "the check before the decision",
        f"{SHELL}._check_alive", "crash_points.reached(\"before-check\")",
        "crash_points.reached(\"before-check\")\n    return [ev.AllAlive()]",
        "driver frozen before the check",
    ),
    Bug(
        "an earlier transaction without its marker is not looked for", "every transaction begins at the seal's first offset",
        f"{SHELL}._check_alive", "broken_part(seals, states.result())", "None",
        "a task killed, the marker of its abort forgotten",
    ),
    Bug(
        "a repair does not look whether its transactions stand alone", "found by the model",
        f"{SHELL}._require_alone", "if broken is not None:", "if False:",
        "driver frozen before the ends, a task of the repair killed, the marker of its abort forgotten",
    ),
    Bug(
        "the time that is left does not count", "the margin before the timeout",
        f"{DECIDING}._late", "if left_ms >= margin_ms:", "if True:",
        "driver held up before the check",
    ),
    Bug(
        "the source offsets are not part of the decision", "the group's offsets are part of the decision",
        "pyspark_kafka_eos.commit.decision:write_decision", "producer.send_offsets(group, offsets)", "pass",
        "none",
    ),
    Bug(
        "a driver that was held up counts as fenced", "A11",
        f"{RUN}.fenced_by_timeout", "self._timed_out = mine\n    return True", "return False",
        "driver frozen in the decision",
    ),
    # ---- a decision without an answer
    Bug(
        "a decision without an answer counts as refused", "not knowing is a state",
        f"{DECIDING}.record", "return ev.DecisionUnanswered(str(error))", "return self._refused(error, release)",
        "the decision's answer held up",
    ),
    Bug(
        "a decision without an answer counts as durable", "not knowing is a state",
        f"{DECIDING}.record", "return ev.DecisionUnanswered(str(error))", "return ev.DecisionDurable()",
        "the decision held up",
    ),
    Bug(
        "whoever asks for the decision gets no", "a decision without an answer is asked for",
        f"{DECIDING}.ask", "if committed:", "if False:",
        "the decision's answer held up",
    ),
    Bug(
        "an aborted decision that was asked for counts as made", "a decision without an answer is asked for",
        f"{DECIDING}.ask", "if committed:", "if True:",
        "the decision held up",
    ),
    Bug(
        "a repair without an answer counts as durable", "RECORD_UNKNOWN is a state",
        f"{TASK}:on_repair_unanswered", "return replace(value, state=State.RECORD_UNKNOWN, reason=event.reason), (ev.AskDecision(),)",
        "return on_repair_durable(value, event)",
        "driver frozen before the ends, the repair held up",
    ),
    # ---- the ends
    Bug(
        "only the first slot is ended", "every slot is ended",
        f"{SHELL}._end", "requests = _ends(seals, commit=True)\n",
        "rest = seals[1:]\n    seals = seals[:1]\n    requests = _ends(seals, commit=True)\n",
        "none",
    ),
    Bug(
        "an EndTxn that proves nothing counts as done", "an answer is definite or proves nothing",
        "pyspark_kafka_eos.client.requests.ends:_read_end", "return EndAnswer(False, code=answer.error_code, reason=name_of(answer.error_code))",
        "return EndAnswer(True)",
        "driver frozen before the ends",
    ),
    Bug(
        "an EndTxn that is to be repeated counts as done", "a retriable answer is asked again",
        "pyspark_kafka_eos.client.requests.ends:_read_end", "if action is Action.RETRY:\n        return None", "if action is Action.RETRY:\n        return EndAnswer(True)",
        "an end refused for now",
    ),
    Bug(
        "markers that the broker forgot are not looked for", "a batch is done when it is open in no partition",
        f"{MENDER}.await_markers", "left = [seal for seal in seals if seal.identity is not None]", "return False",
        "a marker of the output forgotten",
    ),
    Bug(
        "a marker is not waited for", "a batch is done when it is open in no partition",
        f"{MENDER}.await_markers", "left = [seal for seal in seals if seal.identity is not None]", "return False",
        "a marker of the output late",
    ),
    Bug(
        "missing markers are written as aborts", "A1",
        f"{MENDER}._mend", "self.write(seal.transactional_id, partitions, commit=commit, owner=owner)",
        "self.write(seal.transactional_id, partitions, commit=False, owner=owner)",
        "a marker of the output forgotten",
    ),
    Bug(
        "a mending that another process began is not gone on with", "A1",
        f"{MENDER}._is_noted",
        'return found.state == "Ongoing" and note is not None and note.identity == found.identity',
        "return False",
        "a marker of the output forgotten, driver killed while mending",
    ),
    Bug(
        "a mending is not noted", "A1",
        f"{MENDER}.write", "if commit:\n        self._ledger.note", "if False:\n        self._ledger.note",
        "a marker of the output forgotten, driver killed while mending",
    ),
    Bug(
        "the proof believes the first partition", "A1",
        f"{PROOF}:judge", "Proof(Outcome.ABORTED, lost)\n            if lost\n            else replace(", "replace(",
        "a marker of the output forgotten, driver frozen while mending", scope="batch",
    ),
    # ---- proof and repair
    Bug(
        "an open slot counts as committed", "an open slot is ended",
        f"{PROOF}:_by_coordinator", "return Outcome.OPEN", "return Outcome.COMMITTED",
        "driver killed after the decision",
    ),
    Bug(
        "a lost slot counts as done", "a lost slot is written again",
        f"{TASK}:on_slot_proven", "if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE):",
        "if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE, ev.Outcome.ABORTED):",
        "driver frozen before the ends",
    ),
    Bug(
        "a slot without an answer is written again unproven", "an unanswered end is proven",
        f"{TASK}:on_slot_unanswered",
        "return replace(after, tries={**value.tries, event.slot: tries}), (ev.ProveSlots((seal,)),)",
        "return _conclude(_with(value, event.slot, Progress.LOST))",
        "the ends' answers held up",
    ),
    Bug(
        "a repair is not recorded before it is ended", "new seals are durable before they are ended",
        f"{TASK}:_record_repair", "return after, (*drop, ev.RecordRepair(_seals(seals, seals)))",
        "return on_repair_durable(after, None)",
        "driver frozen before the ends",
    ),
    Bug(
        "a repair is recorded with the lost seals", "the ledger names the new seals",
        f"{SHELL}._carry_out", "self.decision = self.decision.repaired_by(effect.seals, ledger.last_commits)",
        "self.decision = replace(self.decision, repaired=self.decision.repaired + 1)",
        "driver frozen before the ends",
    ),
    Bug(
        "an identity is used for two tries", "one identity carries one try",
        f"{WHOLE}._renew", "identity: ProducerIdentity | None = None", "identity = self._identity",
        "executor killed at a step", scope="batch",
    ),
    Bug(
        "a batch without an answer counts as refused", "not knowing is a state",
        f"{DECIDING}.record", "return ev.DecisionUnanswered(str(error))", "return self._refused(error, release)",
        "the decision's answer held up", scope="batch",
    ),
    Bug(
        "a batch without an answer counts as durable", "not knowing is a state",
        f"{DECIDING}.record", "return ev.DecisionUnanswered(str(error))", "return ev.DecisionDurable()",
        "the decision held up", scope="batch",
    ),
    Bug(
        "a task may start again after it wrote", "the first start that is granted a turn owns the task",
        "pyspark_kafka_eos.slot.turns:on_begun", "if earlier in value.granted:", "if False:",
        "executor killed at a step", scope="batch",
    ),
    Bug(
        "a turn begins at sequence 0", "the next turn begins where the last one ended",
        "pyspark_kafka_eos.slot.turns:on_passed", "return _grant(value, event.where, Turn(following, event.next_sequence, tuple(others)))",
        "return _grant(value, event.where, Turn(following, 0, tuple(others)))",
        "none", scope="batch", slots=4,
    ),
    # ---- findings of an attack (findings.md)
    Bug(
        "an open slot is ended without a look at its records", "A3: a decided slot that is open without its records is written again",
        f"{PROOF}:prove", "return proofs | _lost_while_open(cluster, opened, settle_ms, look) if opened else proofs", "return proofs",
        "records lost in an election, driver killed before the ends", watched=False,
        also=(
            f"{SHELL}._end", "unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)",
            "unsure = {seal.slot for seal in seals} if not sure else set()",
        ),
    ),
    Bug(
        "an answered end is believed whatever leader came since", "A3: records that are lost while their batch is ended",
        f"{SHELL}._end", "unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)",
        "unsure = {seal.slot for seal in seals} if not sure else set()",
        "records lost in an election before the ends", watched=False,
    ),
    Bug(
        "the word of an older leader counts", "A1: a leader of an older epoch proves nothing",
        "pyspark_kafka_eos.client.reading.absence:_behind",
        "return [where for where, known in places.items() if cluster.leader_epoch(where) < known.leader_epoch]", "return []",
        "driver killed before the note, ids expired, a former leader of the output answers",
    ),
    Bug(
        "an answer without records is the log's end", "A2: a high watermark that lags is waited out",
        "pyspark_kafka_eos.commit.fates:_read", "if absence.ends(cluster, {where: known})[where] <= offset:", "if True:",
        "driver killed before the note, ids expired, a new leader of the output lags",
    ),
    Bug(
        "what a mending left is not carried on", "L1: where a mending left an id is in each later decision",
        "pyspark_kafka_eos.commit.ledger.topic:Ledger.left_at", "self.last_commits[transactional_id] = identity", "pass",
        "long life",
        also=("pyspark_kafka_eos.commit.ledger.lost:with_every_mending", "if not unnamed_commits(view, shown):", "if True:"), life=20, first=2,
    ),
    Bug(
        "what is ended is proven again", "L3: a batch that is ended is never proven again",
        f"{PER_TASK}.finish", "if run.newest_ended:", "if False:",
        "driver killed behind the note, ids expired, records removed", job="handed over",
    ),
    Bug(
        "a repair that is due is called broken", "L7: what a restart repairs is RepairPending",
        "pyspark_kafka_eos.commit.handover.phases:_Written.__call__", "raise RepairPending(",
        'raise __import__("kafka_core.errors").errors.DecisionBroken(',
        "the process that commits frozen before the ends, nobody there to ask", job="handed over", watched=False,
    ),
    Bug(
        "the key's partition alone says that there is no decision", "P5: a key is looked for in every partition",
        "pyspark_kafka_eos.commit.ledger.places:Places.look", "while view.moved is not None or (view.newest is None and not self._fresh):",
        "while view.moved is not None:",
        "driver killed after the ends, the ledger has more partitions",
    ),
    # ---- the broker
    Bug(
        "the broker forgets after a restart which ends were prepared", "prepared ends are carried out after a restart",
        "embedded_kafka.transactions.coordinator:TransactionCoordinator.load", "if transaction.state in _PREPARED:", "if False:",
        "a marker of the output late, broker killed meanwhile",
    ),
    Bug(
        "the broker gives an identity twice", "InitProducerId raises the epoch",
        "embedded_kafka.transactions.machine.moves:on_init", "return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)",
        "return _prepare(value, epoch=max(entry.epoch, 0), last_epoch=last_epoch, **fresh)",
        "executor killed at a step",
    ),
    Bug(
        "the broker takes a batch twice", "a repeated batch is a duplicate",
        "embedded_kafka.log.producer_state:judge", "return Duplicate(written)", "return Accepted(after_batch(state, batch, now_ms))",
        "Produce: answers lost",
    ),
)  # fmt: skip

UNREACHED = (
    (
        "slots that are committed are not written again in a repair",
        "none: what was written in vain is aborted",
    ),
    (
        "any epoch's CompleteCommit proves nothing",
        "a later commit of a slot's id beside an aborted decision that names the slot",
    ),
    (
        "leftovers of an earlier run are fenced",
        "a batch with fewer slots after the restart; with the same slots the next attempt fences them",
    ),
    (
        "A4: no error is a refusal once EndTxn may have been sent",
        "a right that is removed between the answer and the repetition",
    ),
    (
        "A5, A6, A17: writers per batch, idle slots, Spark's number of tasks",
        "Spark: the job here calls the driver directly",
    ),
    ("A7: a replay is judged by the batch's totals", "a replay with another number of slots"),
    (
        "A8: a late attempt begins to write",
        "an attempt that Spark has given up and whose executor lives; a repair mends what it does",
    ),
    ("A12: an id that the coordinator forgot is renewed", "transactional.id.expiration.ms"),
    ("A13: a topic that was deleted", "topics deleted and made anew"),
    ("A14: a ledger that lost its tail", "a log that loses acknowledged records"),
    ("A15, A16, A20, B3 to B8", "not of the commit, or of its cost"),
    ("B1, F1 to F7", "the source is not simulated"),
    (
        "B2: offsets count as put in before the request",
        "a transaction that holds offsets and no record; the ledger's record opens it here",
    ),
    ("a replay with other rows is refused", "a plan that is not deterministic"),
    ("a checkpoint that was restored is refused", "a checkpoint that goes back"),
)
"""Rules whose breach no history here can show, each with the fault that is missing."""
