"""The bugs: what each takes back, where, and under which faults it shows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.planting import Change, Planted

RUN = "pyspark_kafka_eos.commit.run:Run"
PER_TASK = "pyspark_kafka_eos.commit.per_task:PerTask"
SHELL = "pyspark_kafka_eos.commit.shell:CommitShell"
WHOLE = "pyspark_kafka_eos.commit.whole_batch.driver:WholeBatch"
DECIDING = "pyspark_kafka_eos.commit.decision:Deciding"
MENDER = "pyspark_kafka_eos.commit.markers:Mender"
PROOF = "pyspark_kafka_eos.commit.proof"
TASK = "pyspark_kafka_eos.commit.machine.per_task"


@dataclass(frozen=True, kw_only=True)
class Bug(Planted):
    """`takes_back` is the rule or the mended finding that is gone, `recipe` the faults under which that shows. `job`: a
    name of `SHAPES`.
    `life`: of so many batches, struck as `long_life` says. Not `watched`: records are lost, which no look at the logs
    allows, so only the end is judged.
    """

    takes_back: str
    recipe: str
    scope: str = "task"
    transaction_version: int = 2
    slots: int = 2
    first: int = 0
    job: str = ""
    life: int = 0
    watched: bool = True


BUGS = (
    # ---- the start of a run
    Bug(
        "a decided batch is written again after a restart", f"{PER_TASK}._begin",
        "return report if resumed else None", "return None",
        takes_back="the newest decision is finished, not repeated", recipe="driver killed after the ends",
    ),
    Bug(
        "the same with one transaction for a batch", f"{PER_TASK}._begin",
        "return report if resumed else None", "return None",
        takes_back="the newest decision is finished, not repeated", recipe="driver killed after the decision", scope="batch",
    ),
    Bug(
        "a decided batch counts as done, unended", f"{PER_TASK}.finish",
        "shell.run(cm.resume(decision.seals))", "pass",
        takes_back="a decided batch is proven and ended", recipe="driver killed after the decision",
    ),
    Bug(
        "a decided batch is not looked at by the start of a later one", f"{PER_TASK}._begin",
        "if run.newest is not None:", "if resumed:",
        takes_back="a run finishes the newest decision first, whatever batch it is of", recipe="commit log moved on behind a decision",
    ),
    Bug(
        "leftovers are aborted before the decided batch is finished", f"{PER_TASK}._begin",
        "ids = run.take_over(batch_id, source_offsets)", "ids = run.take_over(batch_id, source_offsets)\nrun.fence_leftovers()",
        takes_back="a run finishes the decided batch first", recipe="driver killed after the decision",
    ),
    Bug(
        "the ledger is not read again behind the fence", f"{RUN}.take_over",
        "view = self._behind_a_fence()", "view = view",
        takes_back="DESIGN: the second reading comes after the fence", recipe="a zombie decides while its successor waits for the fence",
    ),
    Bug(
        "stale answers about lost decisions are believed", f"{RUN}._refuse_lost_ledger",
        "if after.newest != before.newest:\n                return False\n            # A coordinator that was replaced shows an "
        "earlier commit than the newest decision names.\n            if not unnamed_commits(after, shown):\n                break", "break",
        takes_back="seed 248", recipe="a zombie ends its batch while its successor judges the ledger",
    ),
    Bug(
        "a decision without a marker is looked for too late", f"{RUN}.take_over",
        "ids, view = self._settled_ids()",
        "ids = self._slot_ids()\nview = self.ledger.look()\nself._refuse_lost_ledger(batch_id, ids, view)\n"
        "ids, view = self._settled_ids()",
        takes_back="A10", recipe="a marker of the ledger forgotten, driver killed after the ends",
    ),
    Bug(
        "a decision without a marker is taken for undecided", f"{MENDER}.is_decided",
        "return (\n    (record == view.open", "return False and (\n    (record == view.open",
        takes_back="A2", recipe="a marker of the ledger forgotten, driver killed",
    ),
    Bug(
        "a decision without a marker is not mended", f"{MENDER}.settle_decision",
        "view = self._ledger.look()\nif view.open is None:\n    if", "return\nif True:\n    if",
        takes_back="A2", recipe="a marker of the ledger forgotten, driver killed",
    ),
    Bug(
        "a try that is open behind a decision without its marker is committed", f"{MENDER}.settle_decision",
        "if busy:\n    return", "if busy:\n    self._end(name, views[name].identity, commit=True)\n    return",
        takes_back="found by the simulation, seed 7000309",
        recipe="a marker of the ledger forgotten, driver killed in the next batch's tasks", scope="batch",
    ),
    Bug(
        "a run does not look whether its last decision has its marker", f"{MENDER}.misses_marker",
        "while states is not None:", "return False\nwhile states is not None:",
        takes_back="found by the model", recipe="a marker of the ledger forgotten, driver frozen in the next decision",
    ),
    Bug(
        "the older driver does a batch again without asking who owns it", f"{RUN}.require_ownership",
        'if mine is not None and view.state == "NotFound":', "return\nif False:",
        takes_back="ownership is checked before a batch is repeated", recipe="a short zombie over its batch",
    ),
    # ---- before the decision
    Bug(
        "the transactions are not looked at before the decision", f"{SHELL}._check_alive",
        'crash_points.reached("before-check")', 'crash_points.reached("before-check")\nreturn [ev.AllAlive()]',
        takes_back="the check before the decision", recipe="driver frozen before the check",
    ),
    Bug(
        "an earlier transaction without its marker is not looked for", f"{SHELL}._check_alive",
        "broken_part(seals, states.result())", "None",
        takes_back="every transaction begins at the seal's first offset", recipe="a task killed, the marker of its abort forgotten",
    ),
    Bug(
        "a repair does not look whether its transactions stand alone", f"{SHELL}._require_alone",
        "if broken is not None:", "if False:",
        takes_back="found by the model",
        recipe="driver frozen before the ends, a task of the repair killed, the marker of its abort forgotten",
    ),
    Bug(
        "the time that is left does not count", f"{DECIDING}._late",
        "if left_ms >= margin_ms:", "if True:",
        takes_back="the margin before the timeout", recipe="driver held up before the check",
    ),
    Bug(
        "the source offsets are not part of the decision", "pyspark_kafka_eos.commit.decision:write_decision",
        "producer.send_offsets(group, offsets)", "pass",
        takes_back="the group's offsets are part of the decision", recipe="none",
    ),
    Bug(
        "a driver that was held up counts as fenced", f"{RUN}.fenced_by_timeout",
        "self._timed_out = mine\nreturn True", "return False",
        takes_back="A11", recipe="driver frozen in the decision",
    ),
    # ---- a decision without an answer
    Bug(
        "a decision without an answer counts as refused", f"{DECIDING}.record",
        "return ev.DecisionUnanswered(str(error))", "return self._refused(error, release)",
        takes_back="not knowing is a state", recipe="the decision's answer held up",
    ),
    Bug(
        "a decision without an answer counts as durable", f"{DECIDING}.record",
        "return ev.DecisionUnanswered(str(error))", "return ev.DecisionDurable()",
        takes_back="not knowing is a state", recipe="the decision held up",
    ),
    Bug(
        "whoever asks for the decision gets no", f"{DECIDING}.ask",
        "if committed:", "if False:",
        takes_back="a decision without an answer is asked for", recipe="the decision's answer held up",
    ),
    Bug(
        "an aborted decision that was asked for counts as made", f"{DECIDING}.ask",
        "if committed:", "if True:",
        takes_back="a decision without an answer is asked for", recipe="the decision held up",
    ),
    Bug(
        "a repair without an answer counts as durable", f"{TASK}:on_repair_unanswered",
        "return replace(value, state=CommitState.RECORD_UNKNOWN, reason=event.reason), (ev.AskDecision(),)",
        "return on_repair_durable(value, event)",
        takes_back="RECORD_UNKNOWN is a state", recipe="driver frozen before the ends, the repair held up",
    ),
    # ---- the ends
    Bug(
        "only the first slot is ended", f"{SHELL}._end",
        "requests = _ends(seals, commit=True)", "rest = seals[1:]\nseals = seals[:1]\nrequests = _ends(seals, commit=True)",
        takes_back="every slot is ended", recipe="none",
    ),
    Bug(
        "an EndTxn that proves nothing counts as done", "pyspark_kafka_eos.client.requests.ends:_read_end",
        "return EndAnswer(False, code=answer.error_code, reason=name_of(answer.error_code))", "return EndAnswer(True)",
        takes_back="an answer is definite or proves nothing", recipe="driver frozen before the ends",
    ),
    Bug(
        "an EndTxn that is to be repeated counts as done", "pyspark_kafka_eos.client.requests.ends:_read_end",
        "if action is Action.RETRY:\n    return None", "if action is Action.RETRY:\n    return EndAnswer(True)",
        takes_back="a retriable answer is asked again", recipe="an end refused for now",
    ),
    Bug(
        "markers that the broker forgot are not looked for", f"{MENDER}.await_markers",
        "left = [seal for seal in seals if seal.identity is not None]", "return False",
        takes_back="a batch is done when it is open in no partition", recipe="a marker of the output forgotten",
    ),
    Bug(
        "a marker is not waited for", f"{MENDER}.await_markers",
        "left = [seal for seal in seals if seal.identity is not None]", "return False",
        takes_back="a batch is done when it is open in no partition", recipe="a marker of the output late",
    ),
    Bug(
        "missing markers are written as aborts", f"{MENDER}._mend",
        "self.write_markers(seal.transactional_id, partitions, commit=commit, owner=owner)",
        "self.write_markers(seal.transactional_id, partitions, commit=False, owner=owner)",
        takes_back="A1", recipe="a marker of the output forgotten",
    ),
    Bug(
        "a mending that another process began is not gone on with", f"{MENDER}._is_noted",
        "return note is not None and found.is_open_under(note.identity)", "return False",
        takes_back="A1", recipe="a marker of the output forgotten, driver killed while mending",
    ),
    Bug(
        "a mending is not noted", f"{MENDER}.write_markers",
        "if commit:\n    self._ledger.note", "if False:\n    self._ledger.note",
        takes_back="A1", recipe="a marker of the output forgotten, driver killed while mending",
    ),
    Bug(
        "the proof believes the first partition", f"{PROOF}:judge",
        "Proof(Outcome.ABORTED, lost)\nif lost\nelse replace(", "replace(",
        takes_back="A1", recipe="a marker of the output forgotten, driver frozen while mending", scope="batch",
    ),
    # ---- proof and repair
    Bug(
        "an open slot counts as committed", f"{PROOF}:_by_coordinator",
        "return Outcome.OPEN", "return Outcome.COMMITTED",
        takes_back="an open slot is ended", recipe="driver killed after the decision",
    ),
    Bug(
        "a lost slot counts as done", f"{TASK}:on_slot_proven",
        "if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE):",
        "if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE, ev.Outcome.ABORTED):",
        takes_back="a lost slot is written again", recipe="driver frozen before the ends",
    ),
    Bug(
        "a slot without an answer is written again unproven", f"{TASK}:on_slot_unanswered",
        "return replace(after, tries={**value.tries, event.slot: tries}), (ev.ProveSlots((seal,)),)",
        "return _conclude(_with(value, event.slot, ParticipantState.LOST))",
        takes_back="an unanswered end is proven", recipe="the ends' answers held up",
    ),
    Bug(
        "a repair is not recorded before it is ended", f"{TASK}:_record_repair",
        "return after, (*drop, ev.RecordRepair(_seals(seals, seals)))", "return on_repair_durable(after, None)",
        takes_back="new seals are durable before they are ended", recipe="driver frozen before the ends",
    ),
    Bug(
        "a repair is recorded with the lost seals", f"{SHELL}._carry_out",
        "self.decision = self.decision.repaired_by(effect.seals, ledger.last_commits)",
        "self.decision = replace(self.decision, repaired=self.decision.repaired + 1)",
        takes_back="the ledger names the new seals", recipe="driver frozen before the ends",
    ),
    Bug(
        "an identity is used for two tries", f"{WHOLE}._renew",
        "identity: ProducerIdentity | None = None", "identity = self._identity",
        takes_back="one identity carries one try", recipe="executor killed at a step", scope="batch",
    ),
    Bug(
        "a batch without an answer counts as refused", f"{DECIDING}.record",
        "return ev.DecisionUnanswered(str(error))", "return self._refused(error, release)",
        takes_back="not knowing is a state", recipe="the decision's answer held up", scope="batch",
    ),
    Bug(
        "a batch without an answer counts as durable", f"{DECIDING}.record",
        "return ev.DecisionUnanswered(str(error))", "return ev.DecisionDurable()",
        takes_back="not knowing is a state", recipe="the decision held up", scope="batch",
    ),
    Bug(
        "a task may start again after it wrote", "pyspark_kafka_eos.slot.turns:on_begun",
        "if earlier in value.granted:", "if False:",
        takes_back="the first start that is granted a turn owns the task", recipe="executor killed at a step", scope="batch",
    ),
    Bug(
        "a turn begins at sequence 0", "pyspark_kafka_eos.slot.turns:on_passed",
        "return _grant(value, event.where, Turn(following, event.next_sequence, tuple(others)))",
        "return _grant(value, event.where, Turn(following, 0, tuple(others)))",
        takes_back="the next turn begins where the last one ended", recipe="none", scope="batch", slots=4,
    ),
    # ---- findings of an attack (findings.md)
    Bug(
        "an open slot is ended without a look at its records", f"{PROOF}:prove",
        "return proofs | _lost_while_open(cluster, opened, settle_ms, look) if opened else proofs", "return proofs",
        also=(Change(
            f"{SHELL}._end", "unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)",
            "unsure = {seal.slot for seal in seals} if not sure else set()",
        ),),
        takes_back="A3: a decided slot that is open without its records is written again",
        recipe="records lost in an election, driver killed before the ends", watched=False,
    ),
    Bug(
        "an answered end is believed whatever leader came since", f"{SHELL}._end",
        "unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)",
        "unsure = {seal.slot for seal in seals} if not sure else set()",
        takes_back="A3: records that are lost while their batch is ended", recipe="records lost in an election before the ends",
        watched=False,
    ),
    Bug(
        "the word of an older leader counts", "pyspark_kafka_eos.client.reading.absence:_behind",
        "return [where for where, known in places.items() if cluster.leader_epoch(where) < known.leader_epoch]", "return []",
        takes_back="A1: a leader of an older epoch proves nothing",
        recipe="driver killed before the note, ids expired, a former leader of the output answers",
    ),
    Bug(
        "an answer without records is the log's end", "pyspark_kafka_eos.commit.fates:_read",
        "if absence.ends(cluster, {where: known})[where] <= offset:", "if True:",
        takes_back="A2: a high watermark that lags is waited out",
        recipe="driver killed before the note, ids expired, a new leader of the output lags",
    ),
    Bug(
        "what a mending left is not carried on", "pyspark_kafka_eos.commit.ledger.topic:Ledger.left_at",
        "self.last_commits[transactional_id] = identity", "pass",
        also=(Change("pyspark_kafka_eos.commit.ledger.lost:with_every_mending", "if not unnamed_commits(view, shown):", "if True:"),),
        takes_back="L1: where a mending left an id is in each later decision", recipe="long life", life=20, first=2,
    ),
    Bug(
        "what is ended is proven again", f"{PER_TASK}.finish",
        "if run.newest_ended:", "if False:",
        takes_back="L3: a batch that is ended is never proven again", recipe="driver killed behind the note, ids expired, records removed",
        job="handed over",
    ),
    Bug(
        "a repair that is due is called broken", "pyspark_kafka_eos.commit.handover.phases:_Written.__call__",
        "raise RepairPending(", 'raise __import__("kafka_core.errors").errors.DecisionBroken(',
        takes_back="L7: what a restart repairs is RepairPending",
        recipe="the process that commits frozen before the ends, nobody there to ask", job="handed over", watched=False,
    ),
    Bug(
        "the key's partition alone says that there is no decision", "pyspark_kafka_eos.commit.ledger.places:Places.look",
        "while view.moved is not None or self._unsure(view):", "while view.moved is not None:",
        takes_back="P5: a key is looked for in every partition", recipe="driver killed after the ends, the ledger has more partitions",
    ),
    # ---- one broker of three that does not know, or does not answer (findings.md, C)
    Bug(
        "a question has the time of one request", "pyspark_kafka_eos.client.cluster:Cluster.budget",
        "self.settings.api_timeout_ms", "self.settings.request_timeout_ms",
        also=(Change(
            "pyspark_kafka_eos.client.elsewhere:at_coordinators", "now = cluster.look_for_coordinators(kind, wanted)",
            "now: dict[str, int] = {}",
        ),),
        takes_back="C1: a broker that hangs is asked about elsewhere, in a time of its own",
        recipe="one broker frozen for longer than a request",
    ),
    # ---- the broker
    Bug(
        "the broker forgets after a restart which ends were prepared", "embedded_kafka.transactions.coordinator:TransactionCoordinator._resume",
        "if transaction.state in _PREPARED:", "if False:",
        takes_back="prepared ends are carried out after a restart", recipe="a marker of the output late, broker killed meanwhile",
    ),
    Bug(
        "the broker gives an identity twice", "embedded_kafka.transactions.machine.moves:on_init",
        "return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)",
        "return _prepare(value, epoch=max(entry.epoch, 0), last_epoch=last_epoch, **fresh)",
        takes_back="InitProducerId raises the epoch", recipe="executor killed at a step",
    ),
    Bug(
        "the broker takes a batch twice", "embedded_kafka.log.producer_state:judge",
        "return Duplicate(written)", "return Accepted(after_batch(state, batch, now_ms))",
        takes_back="a repeated batch is a duplicate", recipe="Produce: answers lost",
    ),
)  # fmt: skip


def bug(name: str) -> Bug:
    """The one of that name."""
    (found,) = (each for each in BUGS if each.name == name)
    return found


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
    ("A13: a topic that was deleted", "topics deleted and recreated"),
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
