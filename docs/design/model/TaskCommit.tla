---------------------------- MODULE TaskCommit ----------------------------
(* transaction.scope=task: micro-batches whose slots are one transaction each, decided by the driver's own transaction.

   The log of a slot is the sequence of what was written under its transactional id: which batch, and in each partition
   whether a marker has ended it ("o" open, "C" committed, "A" aborted, "-" nothing was written there).  A marker ends all
   that is open in its partition, as a broker's does.  A coordinator knows an epoch, a state and the partitions of what is
   ongoing.  An end may forget the marker of one partition and call the transaction complete all the same.

   A request is atomic, and its answer may be lost: the caller then asks again.  An EndTxn may also stay in `flight` and
   be delivered at any later moment, any number of times, also after its sender has died.

   Runs are Spark applications, one after the other; an older one may go on as a zombie.  Each begins with the batch behind
   Spark's commit log (`done`).

   Above an action stands which rows of connector/pyspark_kafka_eos/commit/machine/per_task.py it is; tests/test_model.py compares.
   docs/design/model.md says what is left out. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Slots, Parts,        \* model values; each slot writes to each of its own Parts
  Runs, Batches,       \* how many: 1..Runs, 1..Batches
  TV,                  \* transaction version: with 2 every end raises the epoch
  MaxTimeouts, MaxZombies, MaxForgets, MaxFlight, MaxExpiries, MaxGiveUps, MaxStale,
  MaxWrites,           \* of one slot
  \* ---- the rules
  CheckAlive,          \* before the decision: every transaction is open under its sealed identity
  CheckWhole,          \* before the decision: nothing older is open in a sealed partition
  CheckRepair,         \* the same before a repair is recorded
  DecideFirst,         \* no slot is ended before the decision is durable
  OffsetsInside,       \* the source offsets are in the decision's transaction
  OneTransaction,      \* one identity carries one transaction: a task always initialises anew
  FenceFirst,          \* the driver's id is initialised before the ledger is read for good
  SettleFirst,         \* a decision without a marker is settled before the driver's id is initialised
  NoteSettled,         \* a settled decision is noted before its marker is mended
  OwnMarker,           \* a run decides its next batch only when its last decision has its own marker
  AskUnknown,          \* a decision without an answer is asked for, not taken for refused
  Prove,               \* an EndTxn that is refused proves nothing: the coordinator or the log does
  EveryPartition,      \* the proof asks every partition, not one
  AskAgain,            \* what the log of one leader lacks is asked of others before anything follows from it
  KeepEpoch,           \* a seal has the epoch of the leader that acknowledged it: an earlier one's word does not count
  AwaitMarkers,        \* a slot is done when nothing of it is open, not when EndTxn is answered
  NoteMending,         \* a mending is noted before it holds anything
  FinishFirst,         \* a decided batch is finished before leftovers are aborted
  ClearHanging,        \* what hangs of undecided batches is aborted before anything is written
  Repair,              \* a decided slot that was aborted is written again
  RecordRepair,        \* the seals of a repair are in the ledger before they are ended
  EndedLast,           \* the note "ended" is written when every marker was seen
  UseEnded,            \* what is noted as ended is not proven again
  WrestFirst           \* who gives a batch up takes the driver's id away before it reads the ledger

VARIABLES
  co,       \* slot -> [ep, st, ps]: its coordinator
  log,      \* slot -> sequence of [b, f]
  drv,      \* the coordinator of the driver's id: [ep, st]
  led,      \* the ledger: sequence of [b, e, rep, seals, f]
  group,    \* the batch up to which the source offsets are committed
  decided,  \* ghost: the batches whose decision a coordinator has committed
  mend,     \* notes: slot -> the identity that only writes markers
  settled,  \* notes: decisions (places in led) that are committed without a marker
  ended,    \* note: the place in led of the decision whose every marker was seen
  d,        \* the runs
  give,     \* the process that gives a run's batch up, beside it: [pc, of]
  flight,   \* EndTxn(commit) that may arrive at any time: <<slot or "drv", epoch>>
  used,     \* how many timeouts, zombies, forgotten markers, expiries, stale answers there were
  gone,     \* the batch whose ids have expired and whose records retention has taken
  done      \* Spark's commit log

vars == <<co, log, drv, led, group, decided, mend, settled, ended, d, give, flight, used, gone, done>>

NoSeal == [n |-> 0, e |-> 0, ps |-> {}]
NoSeals == [s \in Slots |-> NoSeal]
Off == [pc |-> "off", b |-> 0, ep |-> 0, at |-> 0, seals |-> NoSeals, todo |-> {}, lost |-> {}, rec |-> FALSE]

Init ==
  /\ co = [s \in Slots |-> [ep |-> 0, st |-> "Empty", ps |-> {}]]
  /\ log = [s \in Slots |-> <<>>]
  /\ drv = [ep |-> 0, st |-> "Empty"]
  /\ led = <<>> /\ group = 0 /\ decided = {}
  /\ mend = [s \in Slots |-> 0] /\ settled = {} /\ ended = 0
  /\ d = [x \in 1..Runs |-> Off]
  /\ give = [pc |-> "off", of |-> 0]
  /\ flight = {} /\ gone = 0 /\ done = 0
  /\ used = [t |-> 0, z |-> 0, f |-> 0, x |-> 0, w |-> 0]

\* ---- logs and coordinators

\* What a marker does to a slot's log.
Marked(L, ps, m) == [n \in DOMAIN L |->
  [L[n] EXCEPT !.f = [p \in Parts |-> IF p \in ps /\ @[p] = "o" THEN m ELSE @[p]]]]
OpenIn(s, p) == {n \in DOMAIN log[s] : log[s][n].f[p] = "o"}
OpenParts(s) == {p \in Parts : OpenIn(s, p) # {}}
\* The partitions in which a sealed transaction has not ended.
OpenOf(s, seal) == {p \in seal.ps : log[s][seal.n].f[p] = "o"}
Fates(s, seal) == {log[s][seal.n].f[p] : p \in seal.ps}

\* Which markers of these partitions a broker may forget.
Forgets(ps) == {{}} \cup (IF used.f < MaxForgets THEN {{p} : p \in ps} ELSE {})
Forgot(F) == [used EXCEPT !.f = @ + Cardinality(F)]
InTransaction(s) == IF co[s].st = "Ongoing" THEN co[s].ps ELSE {}

\* InitProducerId raises the epoch, once more where it first has to abort what is ongoing.
NextEpoch(c) == c.ep + (IF c.st = "Ongoing" THEN 2 ELSE 1)

\* The log of a slot behind InitProducerId, which aborts what is ongoing.
Initialised(s, F) == IF co[s].st = "Ongoing" THEN Marked(log[s], co[s].ps \ F, "A") ELSE log[s]

Ends(s, e) == co[s].ep = e /\ co[s].st = "Ongoing"
\* EndTxn(commit) takes effect.  A mending is of the classic class, which does not raise the epoch.
Commit(s, F) ==
  /\ log' = [log EXCEPT ![s] = Marked(@, co[s].ps \ F, "C")]
  /\ co' = [co EXCEPT ![s] = [ep |-> IF TV = 2 /\ mend[s] # @.ep THEN @.ep + 1 ELSE @.ep, st |-> "Commit", ps |-> {}]]
SaysYes(s, e) == co[s].st = "Commit" /\ (co[s].ep = e \/ (TV = 2 /\ co[s].ep = e + 1))

\* connector/pyspark_kafka_eos/commit/proof.py
ByCoordinator(s, seal) ==
  CASE co[s].ep = seal.e /\ co[s].st = "Ongoing" -> "open"
    [] SaysYes(s, seal.e) -> "committed"
    [] TV = 2 /\ co[s].ep = seal.e + 1 /\ co[s].st = "Abort" -> "aborted"
    [] OTHER -> "ask"
ByLog(s, seal) ==
  LET found == IF EveryPartition \/ Fates(s, seal) = {"o"} THEN Fates(s, seal)
               ELSE {CHOOSE m \in Fates(s, seal) : m # "o" /\ ("C" \in Fates(s, seal) => m = "C")}
  IN CASE "C" \in found /\ "A" \in found -> "torn"
       [] "C" \in found -> "committed"
       [] "A" \in found -> "aborted"
       [] \A p \in seal.ps : OpenIn(s, p) = {seal.n} -> "whole"
       [] OTHER -> "unknown"
Verdict(s, seal, b) ==
  IF gone = b THEN "unknown"
  ELSE IF ByCoordinator(s, seal) # "ask" THEN ByCoordinator(s, seal) ELSE ByLog(s, seal)

\* ---- the ledger
OpenDecisions == {r \in DOMAIN led : led[r].f = "o"}
Least(S) == CHOOSE r \in S : \A q \in S : r <= q
Greatest(S) == CHOOSE r \in S : \A q \in S : q <= r
MarkedLed(m) == [r \in DOMAIN led |-> IF led[r].f = "o" THEN [led[r] EXCEPT !.f = m] ELSE led[r]]
Known == {r \in DOMAIN led : led[r].f = "C"} \cup settled
Newest == IF Known = {} THEN 0 ELSE Greatest(Known)
NewestBatch == IF Newest = 0 THEN 0 ELSE led[Newest].b

\* The driver's transaction is committed: the ledger's marker may be forgotten (fl).
CommitDriver(fl) ==
  /\ led' = IF fl THEN led ELSE MarkedLed("C")
  /\ drv' = [ep |-> IF TV = 2 THEN drv.ep + 1 ELSE drv.ep, st |-> "Commit"]
  /\ LET mine == {r \in DOMAIN led : led[r].e = drv.ep} IN
       /\ decided' = decided \cup {led[r].b : r \in mine}
       /\ group' = IF OffsetsInside /\ mine # {} THEN led[Greatest(mine)].b ELSE group
  /\ used' = [used EXCEPT !.f = IF fl THEN @ + 1 ELSE @]
ForgetLedger == IF used.f < MaxForgets THEN BOOLEAN ELSE {FALSE}

Step(x, pc) == d' = [d EXCEPT ![x].pc = pc]

\* ---- the start of a run

NewRun(x) ==
  /\ d[x].pc = "off" /\ (x > 1 => d[x - 1].pc # "off") /\ done < Batches
  /\ d' = [d EXCEPT ![x].pc = "look", ![x].b = done + 1]
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* Refused without fencing anybody; else open mendings that are noted are committed.
Look(x) ==
  /\ d[x].pc = "look"
  /\ LET noted == {s \in Slots : co[s].st = "Ongoing" /\ mend[s] = co[s].ep /\ mend[s] > 0} IN
       IF NewestBatch > d[x].b
       THEN Step(x, "dead") /\ UNCHANGED <<co, log, used>>
       ELSE IF noted = {}
       THEN Step(x, IF SettleFirst /\ OpenDecisions # {} THEN "settle" ELSE "fence") /\ UNCHANGED <<co, log, used>>
       ELSE \E s \in noted : \E F \in Forgets(co[s].ps) :
              Commit(s, F) /\ used' = Forgot(F) /\ UNCHANGED d
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

Shown(r) == \E s \in Slots : led[r].seals[s].n > 0 /\ Verdict(s, led[r].seals[s], led[r].b) \in {"committed", "torn"}
SaysCommitted(r) == drv.st = "Commit" /\ drv.ep \in {led[r].e, led[r].e + 1}

AfterSettle == IF SettleFirst THEN "fence" ELSE "read"

\* Decisions without a marker.  The next marker of the driver's id ends all of them, so it commits where each is decided.
\* What is decided is noted before that.  What the coordinator has open under its present epoch is another's to end.
\* `at` is where the oldest stands, and `rec` that they are committed.
IsDecided(r) == r \in settled \/ ended = r \/ Shown(r) \/ SaysCommitted(r)

Settle(x) ==
  /\ d[x].pc = "settle"
  /\ IF OpenDecisions = {}
     THEN Step(x, AfterSettle) /\ UNCHANGED <<drv, led, group, decided, settled, used>>
     ELSE LET judged == {r \in OpenDecisions : ~(drv.st = "Ongoing" /\ led[r].e = drv.ep)}
              known == {r \in judged : IsDecided(r)}
              commit == judged = known
          IN /\ settled' = IF NoteSettled THEN settled \cup known ELSE settled
             /\ IF drv.st = "Ongoing"
                THEN /\ Step(x, AfterSettle)
                     /\ IF commit /\ judged = OpenDecisions
                        THEN \E fl \in ForgetLedger : CommitDriver(fl)
                        ELSE UNCHANGED <<drv, led, group, decided, used>>
                ELSE /\ d' = [d EXCEPT ![x].pc = "mendDecision", ![x].at = Least(OpenDecisions), ![x].rec = commit]
                     /\ UNCHANGED <<drv, led, group, decided, used>>
  /\ UNCHANGED <<co, log, mend, ended, give, flight, gone, done>>

\* InitProducerId and AddPartitions of the transaction that mends; what was ongoing meanwhile is aborted.
MendDecision(x) ==
  /\ d[x].pc = "mendDecision"
  /\ led' = IF drv.st = "Ongoing" THEN MarkedLed("A") ELSE led
  /\ drv' = [ep |-> NextEpoch(drv), st |-> "Ongoing"]
  /\ d' = [d EXCEPT ![x].pc = "endDecisionMend", ![x].ep = NextEpoch(drv)]
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, give, flight, used, gone, done>>

EndDecisionMend(x) ==
  /\ d[x].pc = "endDecisionMend"
  /\ IF drv = [ep |-> d[x].ep, st |-> "Ongoing"]
     THEN /\ led' = MarkedLed(IF d[x].rec THEN "C" ELSE "A")
          /\ drv' = [drv EXCEPT !.st = IF d[x].rec THEN "Commit" ELSE "Abort"]
          /\ d' = [d EXCEPT ![x].pc = AfterSettle, ![x].at = 0, ![x].rec = FALSE]
     ELSE Step(x, "dead") /\ UNCHANGED <<led, drv>>
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* What the ledger's decision at r means to a run.
Begun(x, r) ==
  LET b == IF r = 0 THEN 0 ELSE led[r].b
  IN [d[x] EXCEPT
       !.pc = IF b > d[x].b THEN "dead"
              ELSE IF b < d[x].b THEN "clear"
              ELSE IF UseEnded /\ ended = r THEN "return"
              ELSE IF FinishFirst THEN "finish" ELSE "clearFirst",
       !.seals = IF b = d[x].b THEN led[r].seals ELSE NoSeals,
       !.todo = IF b = d[x].b THEN {s \in Slots : led[r].seals[s].n > 0} ELSE {},
       !.at = r, !.lost = {}, !.rec = FALSE]

\* InitProducerId of the driver's id: no older run can decide any more.
Fence(x) ==
  /\ d[x].pc \in (IF FenceFirst THEN {"fence"} ELSE {"fenceLate"})
  /\ IF drv.st = "Ongoing"
     THEN \E fl \in ForgetLedger :
            led' = (IF fl THEN led ELSE MarkedLed("A")) /\ used' = [used EXCEPT !.f = IF fl THEN @ + 1 ELSE @]
     ELSE UNCHANGED <<led, used>>
  /\ drv' = [ep |-> NextEpoch(drv), st |-> "Empty"]
  /\ d' = [d EXCEPT ![x] = IF FenceFirst THEN [@ EXCEPT !.pc = IF SettleFirst \/ OpenDecisions = {} THEN "read" ELSE "settle",
                                                          !.ep = NextEpoch(drv)]
                           ELSE [Begun(x, d[x].at) EXCEPT !.ep = NextEpoch(drv)]]
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, give, flight, gone, done>>

\* The ledger read for good, which waits for open decisions.
\* A decided batch is resumed: `resume` of the machine.
Read(x) ==
  /\ d[x].pc \in (IF FenceFirst THEN {"read"} ELSE {"fence"})
  /\ FenceFirst => OpenDecisions \subseteq settled
  /\ d' = [d EXCEPT ![x] = IF FenceFirst THEN Begun(x, Newest) ELSE [@ EXCEPT !.pc = "fenceLate", !.at = Newest]]
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* Leftovers of earlier runs are aborted, and what hangs of them.
Clear(x) ==
  /\ d[x].pc \in {"clear", "clearFirst"}
  /\ LET touched == {s \in Slots : co[s].st = "Ongoing" \/ (ClearHanging /\ OpenParts(s) # {})} IN
       /\ log' = [s \in Slots |-> IF ClearHanging THEN Marked(log[s], Parts, "A")
                                  ELSE Marked(log[s], InTransaction(s), "A")]
       /\ co' = [s \in Slots |-> IF s \in touched THEN [ep |-> NextEpoch(co[s]), st |-> "Empty", ps |-> {}] ELSE co[s]]
  /\ Step(x, IF d[x].pc = "clear" THEN "write" ELSE "finish")
       \* the tasks begin
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* ---- one batch

Writing(b, ps) == [b |-> b, f |-> [p \in Parts |-> IF p \in ps THEN "o" ELSE "-"]]

\* A task of a slot: InitProducerId, Produce, all acknowledged.  Nothing of it shows before its end, so it is one step.
\* rows: GATHERING/Sealed, GATHERING/TasksFinished
WriteSlot(x, s) ==
  /\ d[x].pc = "write" /\ d[x].seals[s].n = 0 /\ Len(log[s]) < MaxWrites
  /\ \E F \in Forgets(InTransaction(s)) :
       LET again == OneTransaction \/ co[s].st = "Ongoing" \/ co[s].ep = 0
           e == IF again THEN NextEpoch(co[s]) ELSE co[s].ep
           seals == [d[x].seals EXCEPT ![s] = [n |-> Len(log[s]) + 1, e |-> e, ps |-> Parts]]
       IN /\ log' = [log EXCEPT ![s] = Append(Initialised(s, F), Writing(d[x].b, Parts))]
          /\ co' = [co EXCEPT ![s] = [ep |-> e, st |-> "Ongoing", ps |-> Parts]]
          /\ used' = Forgot(F)
          /\ d' = [d EXCEPT ![x].seals = seals,
                            ![x].pc = IF \A t \in Slots : seals[t].n > 0
                                      THEN (IF DecideFirst THEN "check" ELSE "finish") ELSE @,
                            ![x].todo = IF DecideFirst THEN {} ELSE Slots]
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

\* rows: GATHERING/TasksFailed
TasksFail(x) ==
  /\ d[x].pc = "write" /\ used.t < MaxTimeouts
  /\ used' = [used EXCEPT !.t = @ + 1]
  /\ Step(x, "abort")
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

Alive(x) == \A s \in Slots : co[s].ep = d[x].seals[s].e /\ co[s].st = "Ongoing"
Whole(x, slots) == \A s \in slots : \A p \in d[x].seals[s].ps : OpenIn(s, p) = {d[x].seals[s].n}

\* No decision of the driver's id stands without its marker: the next one's marker would end both.
OwnMarked == OwnMarker => OpenDecisions = {}

\* rows: CHECKING/AllAlive, CHECKING/NotAlive
Check(x) ==
  /\ d[x].pc = "check"
  /\ Step(x, IF (CheckAlive => Alive(x)) /\ (CheckWhole => Whole(x, Slots)) /\ OwnMarked THEN "decide" ELSE "abort")
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* Definitely not decided: a batch is aborted, a repair stops for now.
Refused(x) == Step(x, IF d[x].rec THEN "dead" ELSE "abort")

\* The decision's record, and with it the source offsets, are in the driver's transaction.  On version 1 its epoch is
\* raised first (KIP-360).
\* rows: DECIDING/DecisionRefused, RECORDING/DecisionRefused
Decide(x) ==
  /\ d[x].pc = "decide"
  /\ IF drv.ep = d[x].ep /\ drv.st # "Ongoing"
     THEN LET e == IF TV = 1 /\ drv.st # "Empty" THEN drv.ep + 1 ELSE drv.ep
              rep == IF d[x].rec THEN led[d[x].at].rep + 1 ELSE 0
          IN /\ drv' = [ep |-> e, st |-> "Ongoing"]
             /\ led' = Append(led, [b |-> d[x].b, e |-> e, rep |-> rep, seals |-> d[x].seals, f |-> "o"])
             /\ d' = [d EXCEPT ![x].pc = "endDecision", ![x].ep = e, ![x].at = Len(led) + 1]
     ELSE Refused(x) /\ UNCHANGED <<drv, led>>
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* From here on nothing aborts.  A repair ends the slots that it wrote.
Durable(x) == d' = [d EXCEPT
  ![x].pc = "finish", ![x].todo = IF d[x].rec THEN d[x].lost ELSE Slots, ![x].lost = {}, ![x].rec = FALSE,
  ![x].ep = IF TV = 2 THEN @ + 1 ELSE @]

MyDecision(x) == drv = [ep |-> d[x].ep, st |-> "Ongoing"]

\* EndTxn of the decision takes effect and is answered, or its answer is lost, or it is on its way for long.
\* rows: DECIDING/DecisionDurable, DECIDING/DecisionUnanswered, RECORDING/DecisionDurable, RECORDING/DecisionUnanswered
EndDecision(x) ==
  /\ d[x].pc = "endDecision"
  /\ \/ /\ MyDecision(x)
        /\ \E fl \in ForgetLedger : CommitDriver(fl)
        /\ Durable(x) \/ Step(x, "unknown")
        /\ UNCHANGED flight
     \/ /\ Step(x, "unknown")
        /\ flight' = IF Cardinality(flight) < MaxFlight THEN flight \cup {<<"drv", d[x].ep>>} ELSE flight
        /\ UNCHANGED <<drv, led, group, decided, used>>
  /\ UNCHANGED <<co, log, mend, settled, ended, give, gone, done>>

Decided(x) == led[d[x].at].f = "C" \/ (drv.st = "Commit" /\ drv.ep \in {d[x].ep, d[x].ep + TV - 1})

\* connector/pyspark_kafka_eos/commit/decision.py: ask_decision.  While it is open under its identity, EndTxn is sent again.
\* rows: DECISION_UNKNOWN/DecisionDurable, DECISION_UNKNOWN/DecisionUnanswered, DECISION_UNKNOWN/DecisionRefused
\* rows: RECORD_UNKNOWN/DecisionDurable, RECORD_UNKNOWN/DecisionUnanswered, RECORD_UNKNOWN/DecisionRefused
AskDecision(x) ==
  /\ d[x].pc = "unknown"
  /\ IF ~AskUnknown
     THEN Refused(x) /\ UNCHANGED <<drv, led, group, decided, used>>
     ELSE IF Decided(x)
     THEN /\ UNCHANGED <<drv, led, group, decided, used>>
          /\ Durable(x)
     ELSE IF MyDecision(x)
     THEN (\E fl \in ForgetLedger : CommitDriver(fl)) /\ Durable(x)
     ELSE IF led[d[x].at].f = "A"
     THEN Refused(x) /\ UNCHANGED <<drv, led, group, decided, used>>
     ELSE Step(x, "dead") /\ UNCHANGED <<drv, led, group, decided, used>>
  /\ UNCHANGED <<co, log, mend, settled, ended, give, flight, gone, done>>

Aborted(s, e, F) ==
  /\ log' = [log EXCEPT ![s] = Marked(@, co[s].ps \ F, "A")]
  /\ co' = [co EXCEPT ![s] = [ep |-> IF TV = 2 THEN e + 1 ELSE e, st |-> "Abort", ps |-> {}]]
  /\ used' = Forgot(F)

\* EndTxn(abort) of the own seals.  Then the batch is done again by who still owns the pipeline; where the driver's own
\* transaction timed out, or its last decision has no marker, the run starts over.
\* rows: ABORTING/AbortFinished
Abort(x) ==
  /\ d[x].pc = "abort"
  /\ IF \E s \in Slots : Ends(s, d[x].seals[s].e) /\ d[x].seals[s].n > 0
     THEN /\ \E s \in Slots : /\ Ends(s, d[x].seals[s].e) /\ d[x].seals[s].n > 0
                              /\ \E F \in Forgets(co[s].ps) : Aborted(s, co[s].ep, F)
          /\ UNCHANGED d
     ELSE /\ d' = [d EXCEPT ![x].seals = NoSeals, ![x].todo = {},
                     ![x].pc = IF drv.ep = d[x].ep /\ drv.st # "Ongoing" THEN (IF OwnMarked THEN "clear" ELSE "look")
                               ELSE IF drv = [ep |-> d[x].ep + 1, st |-> "Abort"] THEN "look" ELSE "dead"]
          /\ UNCHANGED <<co, log, used>>
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

\* ---- after the decision

Seal(x, s) == d[x].seals[s]
Sure(x, s) == AwaitMarkers => OpenOf(s, Seal(x, s)) = {}
\* A slot is looked at.  When all are, the lost ones are written again.
Looked(x, s, lost) ==
  LET left == d[x].todo \ {s}
      again == IF Repair THEN d[x].lost \cup lost ELSE {}
  IN d' = [d EXCEPT ![x].todo = IF left = {} THEN again ELSE left, ![x].lost = again,
                    ![x].pc = IF left # {} THEN @ ELSE IF again = {} THEN "note" ELSE "rewrite"]

\* EndTxn(commit) of a slot takes effect, or is on its way for long.  Its answer is read in SlotEnded.
\* rows: FINISHING/SlotUnanswered, FINISHING/SlotUnsure
EndSlot(x, s) ==
  /\ d[x].pc = "finish" /\ s \in d[x].todo
  /\ \/ /\ Ends(s, Seal(x, s).e)
        /\ \E F \in Forgets(co[s].ps) : Commit(s, F) /\ used' = Forgot(F)
        /\ UNCHANGED flight
     \/ /\ Cardinality(flight) < MaxFlight /\ <<s, Seal(x, s).e>> \notin flight
        /\ flight' = flight \cup {<<s, Seal(x, s).e>>}
        /\ UNCHANGED <<co, log, used>>
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, d, give, gone, done>>

\* rows: FINISHING/SlotEnded
SlotEnded(x, s) ==
  /\ d[x].pc = "finish" /\ s \in d[x].todo
  /\ SaysYes(s, Seal(x, s).e) /\ Sure(x, s)
  /\ Looked(x, s, {})
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* rows: FINISHING/SlotProven
SlotProven(x, s) ==
  /\ d[x].pc = "finish" /\ s \in d[x].todo
  /\ LET v == Verdict(s, Seal(x, s), d[x].b)
     IN \/ Prove /\ v = "committed" /\ Sure(x, s) /\ Looked(x, s, {})
        \/ Prove /\ v = "aborted" /\ Looked(x, s, {s})
        \/ Prove /\ v = "torn" /\ Sure(x, s) /\ Looked(x, s, {s})
        \/ Prove /\ v = "unknown" /\ Step(x, "broken")
        \* without the rule an EndTxn that is refused means that the slot is lost
        \/ ~Prove /\ ~Ends(s, Seal(x, s).e) /\ ~SaysYes(s, Seal(x, s).e) /\ Looked(x, s, {s})
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* The log is asked of a leader that was replaced without noticing, whose log ends before what is sealed.  Without AskAgain
\* nothing is there, so nothing is left to prove; without KeepEpoch another broker says the same, so an election took it.
\* With both nothing follows: a leader that can know is looked for.
\* rows: FINISHING/SlotProven
SlotUnseen(x, s) ==
  /\ d[x].pc = "finish" /\ s \in d[x].todo
  /\ used.w < MaxStale /\ ByCoordinator(s, Seal(x, s)) = "ask"
  /\ used' = [used EXCEPT !.w = @ + 1]
  /\ IF ~AskAgain THEN Looked(x, s, {}) ELSE IF ~KeepEpoch THEN Looked(x, s, {s}) ELSE UNCHANGED d
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

\* Missing markers: an open mending that is noted is committed; else a new one is begun, which aborts what a late attempt has open.
Mend(x, s) ==
  /\ d[x].pc = "finish" /\ s \in d[x].todo /\ AwaitMarkers
  /\ LET seal == Seal(x, s) IN
       /\ OpenOf(s, seal) # {} /\ Verdict(s, seal, d[x].b) \in {"committed", "torn", "whole"}
       /\ IF co[s].st = "Ongoing" /\ mend[s] = co[s].ep
          THEN \E F \in Forgets(co[s].ps) : Commit(s, F) /\ used' = Forgot(F) /\ UNCHANGED mend
          ELSE \E F \in Forgets(InTransaction(s)) :
                 /\ log' = [log EXCEPT ![s] = Initialised(s, F)]
                 /\ co' = [co EXCEPT ![s] = [ep |-> NextEpoch(@), st |-> "Ongoing", ps |-> OpenOf(s, seal)]]
                 /\ mend' = [mend EXCEPT ![s] = IF NoteMending THEN NextEpoch(co[s]) ELSE @]
                 /\ used' = Forgot(F)
  /\ UNCHANGED <<drv, led, group, decided, settled, ended, d, give, flight, gone, done>>

\* A lost slot: what hangs of it is aborted, its task writes the lost partitions again.
\* rows: REWRITING/Rewritten
Rewrite(x, s) ==
  /\ d[x].pc = "rewrite" /\ s \in d[x].todo /\ Len(log[s]) < MaxWrites
  /\ \E F \in Forgets(InTransaction(s)) :
       LET old == Seal(x, s)
           torn == Prove /\ {"C", "A"} \subseteq Fates(s, old)
           ps == IF torn THEN {p \in old.ps : log[s][old.n].f[p] = "A"} ELSE old.ps
           before == Marked(Initialised(s, F), OpenOf(s, old), "A")
       IN /\ log' = [log EXCEPT ![s] = Append(before, Writing(d[x].b, ps))]
          /\ co' = [co EXCEPT ![s] = [ep |-> NextEpoch(@), st |-> "Ongoing", ps |-> ps]]
          /\ used' = Forgot(F)
          /\ d' = [d EXCEPT ![x].seals[s] = [n |-> Len(log[s]) + 1, e |-> NextEpoch(co[s]), ps |-> ps],
                            ![x].todo = @ \ {s}, ![x].rec = TRUE]
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, give, flight, gone, done>>

Rewritten(x) ==
  /\ d[x].pc = "rewrite" /\ d[x].todo = {}
  /\ d' = IF (CheckRepair /\ ~Whole(x, d[x].lost)) \/ ~OwnMarked THEN [d EXCEPT ![x].pc = "dead"]
          ELSE IF RecordRepair THEN [d EXCEPT ![x].pc = "decide"]
          ELSE [d EXCEPT ![x].pc = "finish", ![x].todo = d[x].lost, ![x].lost = {}, ![x].rec = FALSE]
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* The note is written, or not: it is best effort.  Without EndedLast it may be written as soon as the batch is decided.
NoteEnded(x) ==
  /\ d[x].pc \in (IF EndedLast THEN {"note"} ELSE {"note", "finish"})
  /\ \/ ended' = d[x].at /\ (IF d[x].pc = "note" THEN Step(x, "return") ELSE UNCHANGED d)
     \/ d[x].pc = "note" /\ Step(x, "return") /\ UNCHANGED ended
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, give, flight, used, gone, done>>

\* Without OffsetsInside the source offsets are committed here.
Return(x) ==
  /\ d[x].pc = "return"
  /\ done' = IF d[x].b > done THEN d[x].b ELSE done
  /\ group' = IF OffsetsInside THEN group ELSE d[x].b
  /\ d' = [d EXCEPT ![x] = IF d[x].b < Batches
       THEN [@ EXCEPT !.pc = "write", !.b = @ + 1, !.seals = NoSeals, !.todo = {}, !.lost = {}, !.rec = FALSE, !.at = 0]
       ELSE [Off EXCEPT !.pc = "dead"]]
  /\ UNCHANGED <<co, log, drv, led, decided, mend, settled, ended, give, flight, used, gone>>

\* ---- another process of the same run gives its batch up (connector/pyspark_kafka_eos/commit/handover/phases.py)

\* The driver's id is taken away from whoever commits beside it.
Wrest(x) ==
  /\ give.pc = "off" /\ MaxGiveUps > 0 /\ d[x].pc \in {"check", "decide", "endDecision", "unknown", "finish"} /\ ~d[x].rec
  /\ IF WrestFirst
     THEN /\ drv.ep = d[x].ep
          /\ led' = IF drv.st = "Ongoing" THEN MarkedLed("A") ELSE led
          /\ drv' = [ep |-> NextEpoch(drv) + 1, st |-> "Empty"]
     ELSE UNCHANGED <<led, drv>>
  /\ give' = [pc |-> "read", of |-> x]
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, d, flight, used, gone, done>>

\* A decided batch is left alone; an open decision is waited for.
GiveUpRead ==
  /\ give.pc = "read"
  /\ WrestFirst => OpenDecisions \subseteq settled
  /\ give' = [give EXCEPT !.pc = IF NewestBatch >= d[give.of].b THEN "over" ELSE "abort"]
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, d, flight, used, gone, done>>

GiveUpAbort ==
  /\ give.pc = "abort"
  /\ IF \E s \in Slots : Ends(s, d[give.of].seals[s].e) /\ d[give.of].seals[s].n > 0
     THEN \E s \in Slots : /\ Ends(s, d[give.of].seals[s].e) /\ d[give.of].seals[s].n > 0
                           /\ Aborted(s, co[s].ep, {}) /\ UNCHANGED give
     ELSE give' = [give EXCEPT !.pc = "over"] /\ UNCHANGED <<co, log, used>>
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, d, flight, gone, done>>

\* ---- the environment

\* Killed, or stopped by an error that the next run mends: nothing is aborted, nothing ended.
\* rows: REWRITING/RewriteFailed, FINISHING/SlotDenied, CHECKING/StepFailed, DECIDING/StepFailed
\* rows: DECISION_UNKNOWN/StepFailed, FINISHING/StepFailed, REWRITING/StepFailed, RECORDING/StepFailed, RECORD_UNKNOWN/StepFailed
Crash(x) ==
  /\ d[x].pc \notin {"off", "dead", "broken"}
  /\ d' = [d EXCEPT ![x] = [Off EXCEPT !.pc = "dead"]]
  /\ give.of # x
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, give, flight, used, gone, done>>

\* An EndTxn(commit) that was sent long ago, or is sent twice.
Late(m) ==
  /\ m \in flight
  /\ IF m[1] = "drv"
     THEN /\ drv = [ep |-> m[2], st |-> "Ongoing"]
          /\ \E fl \in ForgetLedger : CommitDriver(fl)
          /\ UNCHANGED <<co, log>>
     ELSE /\ Ends(m[1], m[2])
          /\ \E F \in Forgets(co[m[1]].ps) : Commit(m[1], F) /\ used' = Forgot(F)
          /\ UNCHANGED <<drv, led, group, decided>>
  /\ UNCHANGED <<mend, settled, ended, d, give, flight, gone, done>>

\* The coordinator aborts what got too old, under a raised epoch.
Timeout(s) ==
  /\ used.t < MaxTimeouts /\ co[s].st = "Ongoing"
  /\ \E F \in Forgets(co[s].ps) :
       /\ log' = [log EXCEPT ![s] = Marked(@, co[s].ps \ F, "A")]
       /\ used' = [Forgot(F) EXCEPT !.t = @ + 1]
  /\ co' = [co EXCEPT ![s] = [ep |-> @.ep + 1, st |-> "Abort", ps |-> {}]]
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, d, give, flight, gone, done>>

TimeoutDriver ==
  /\ used.t < MaxTimeouts /\ drv.st = "Ongoing"
  /\ led' = MarkedLed("A")
  /\ drv' = [ep |-> drv.ep + 1, st |-> "Abort"]
  /\ used' = [used EXCEPT !.t = @ + 1]
  /\ UNCHANGED <<co, log, group, decided, mend, settled, ended, d, give, flight, gone, done>>

\* An attempt that Spark has given up initialises its slot's id, and may write its batch's rows, which nobody seals.
Zombie(s) ==
  /\ used.z < MaxZombies /\ Len(log[s]) < MaxWrites
  /\ \E x \in 1..Runs : \E F \in Forgets(InTransaction(s)) : \E writes \in BOOLEAN :
       /\ d[x].pc \notin {"off", "dead", "broken", "look", "settle", "fence"}
       /\ log' = [log EXCEPT ![s] = IF writes THEN Append(Initialised(s, F), Writing(d[x].b, Parts)) ELSE Initialised(s, F)]
       /\ co' = [co EXCEPT ![s] = [ep |-> NextEpoch(@), st |-> IF writes THEN "Ongoing" ELSE "Empty",
                                   ps |-> IF writes THEN Parts ELSE {}]]
       /\ used' = [Forgot(F) EXCEPT !.z = @ + 1]
  /\ UNCHANGED <<drv, led, group, decided, mend, settled, ended, d, give, flight, gone, done>>

\* A pipeline rests for longer than its ids and records are kept.
Expire ==
  /\ used.x < MaxExpiries /\ Newest > 0 /\ ended = Newest /\ \A x \in 1..Runs : d[x].pc \in {"off", "dead"}
  /\ gone' = NewestBatch /\ used' = [used EXCEPT !.x = @ + 1]
  /\ UNCHANGED <<co, log, drv, led, group, decided, mend, settled, ended, d, give, flight, done>>

Next ==
  \/ \E x \in 1..Runs :
       \/ NewRun(x) \/ Look(x) \/ Settle(x) \/ MendDecision(x) \/ EndDecisionMend(x) \/ Fence(x) \/ Read(x) \/ Clear(x)
       \/ TasksFail(x) \/ Check(x) \/ Decide(x) \/ EndDecision(x) \/ AskDecision(x) \/ Abort(x)
       \/ Rewritten(x) \/ NoteEnded(x) \/ Return(x) \/ Crash(x) \/ Wrest(x)
       \/ \E s \in Slots : WriteSlot(x, s) \/ EndSlot(x, s) \/ SlotEnded(x, s) \/ SlotProven(x, s) \/ SlotUnseen(x, s) \/ Mend(x, s) \/ Rewrite(x, s)
  \/ GiveUpRead \/ GiveUpAbort \/ Expire \/ TimeoutDriver
  \/ \E m \in flight : Late(m)
  \/ \E s \in Slots : Timeout(s) \/ Zombie(s)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Slots) \cup Permutations(Parts)

\* ---- what must hold

Times(s, p, b) == Cardinality({n \in DOMAIN log[s] : log[s][n].b = b /\ log[s][n].f[p] = "C"})

TypeOK ==
  /\ \A s \in Slots : co[s].st \in {"Empty", "Ongoing", "Commit", "Abort"} /\ Len(log[s]) <= MaxWrites
  /\ drv.st \in {"Empty", "Ongoing", "Commit", "Abort"} /\ done \in 0..Batches

\* No row shows twice.
NoDuplicate == \A s \in Slots : \A p \in Parts : \A b \in 1..Batches : Times(s, p, b) <= 1
\* Nothing shows that is not decided.
NothingUndecided == \A s \in Slots : \A p \in Parts : \A b \in 1..Batches : Times(s, p, b) > 0 => b \in decided
\* What Spark is told is done shows.
NoLoss == \A s \in Slots : \A p \in Parts : \A b \in 1..done : Times(s, p, b) >= 1
\* The group's offsets are those of the newest batch that was ever decided.
OffsetsFollow == \A b \in decided : b <= group
OffsetsDecided == group > 0 => group \in decided
\* What Spark is told is done is in the ledger, which the next run needs.
LedgerKeeps == \A b \in 1..done : \E r \in DOMAIN led : led[r].b >= b /\ (led[r].f # "A" \/ r \in settled)
\* Nobody stops for what is noted as ended.
NoNeedlessStop == \A x \in 1..Runs : d[x].pc = "broken" => gone = 0

\* ---- what must be possible, or the model would say nothing: each of these is violated on purpose
NeverDone == done < Batches
NeverMended == ~(done = Batches /\ \E s \in Slots : mend[s] > 0)
NeverRepaired == ~(done = Batches /\ \E r \in Known : led[r].rep > 0)
NeverTorn == ~(done = Batches /\ \E r \in Known : \E s \in Slots : led[r].seals[s].ps # Parts /\ led[r].seals[s].n > 0)
NeverSettled == ~(done = Batches /\ settled # {})
=============================================================================
