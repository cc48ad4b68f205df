---------------------------- MODULE BatchCommit ----------------------------
(* transaction.scope=batch: one micro-batch in one transaction of `{pipeline}:batch`, whose tasks take turns at its partitions.

   A try of the batch writes under one epoch.  A task of a try is started, and may be started once more; each start decides
   what rows it has (a plan need not be deterministic: a start may have rows for other partitions, or none).  The log of
   turns is one order of events for all, so what all compute from it is one value here, `turns`, which is that of
   connector/pyspark_kafka_eos/slot/turns.py.  Only a holder writes, under the sequence that its turn begins at.  A broker takes
   a batch whose sequence comes next, answers one from before without writing it (a duplicate), and refuses one from behind.

   Runs are Spark applications, one after the other; an older one may go on as a zombie.

   Above an action stands which rows of connector/pyspark_kafka_eos/commit/machine/whole_batch.py (batch) and
   connector/pyspark_kafka_eos/slot/turns.py (turns) it is; tests/test_model.py compares.
   docs/design/model.md says what is left out. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Tasks, Parts,       \* model values
  Runs, MaxTries,     \* 1..Runs, 1..MaxTries over all runs
  TV,                 \* transaction version: with 2 the end raises the epoch
  MaxSeconds,         \* how many starts there are beside the first of each task
  MaxTimeouts,
  \* ---- the rules
  TakeTurns,          \* a turn begins at the sequence that the one before ended with; else each start begins at 0
  BreakOnSecond,      \* a second start of a task whose first was granted a turn ends the try
  EndTurns,           \* before the decision the driver ends the turns where a task had no rows
  CheckWhole,         \* before the decision: the coordinator's partitions and the leaders' last sequences are the seals'
  CheckOpen,          \* before the decision: the transaction is open under the try's identity
  FreshIdentity,      \* each try has an identity of its own
  AskUnknown,         \* an EndTxn without an answer is asked for, not taken for refused
  FenceFirst          \* the ids are initialised before the ledger is read for good

VARIABLES
  co,       \* the coordinator of {pipeline}:batch: [ep, st, ps]
  drv,      \* the epoch of {pipeline}:driver: who owns the pipeline
  seqs,     \* partition -> the next sequence under the newest epoch
  open,     \* partition -> the starts whose rows are in the open transaction
  shown,    \* partition -> the starts whose rows are committed
  turns,    \* of the newest try: [open, starts, granted, holder, next, queue]
  starts,   \* start -> [st, want, try]; a start is <<task, which>>
  seals,    \* of the newest try: task -> <<>> or <<the start whose result Spark has>>
  try,      \* the number of the newest try; its epoch is tryEp
  tryEp,
  d,        \* run -> [pc, ep, try]
  led,      \* whether the ledger has the decision: 0, or the try
  decidedBy,\* ghost: <<try, start>> for each start whose result a driver decided for
  seconds, timeouts,
  late,     \* the epoch of an EndTxn that may arrive at any time, or 0
  done

vars == <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

Ids == Tasks \X {1, 2}
NoOne == <<>>
NoTurns == [open |-> TRUE, starts |-> [t \in Tasks |-> 0], granted |-> {}, holder |-> [p \in Parts |-> NoOne],
            next |-> [p \in Parts |-> 0], queue |-> [p \in Parts |-> <<>>]]
NotStarted == [st |-> "off", want |-> {}, wrote |-> {}]
NoStarts == [i \in Ids |-> NotStarted]

Init ==
  /\ co = [ep |-> 0, st |-> "Empty", ps |-> {}] /\ drv = 0
  /\ seqs = [p \in Parts |-> 0] /\ open = [p \in Parts |-> <<>>] /\ shown = [p \in Parts |-> <<>>]
  /\ turns = NoTurns /\ starts = NoStarts /\ seals = [t \in Tasks |-> NoOne]
  /\ try = 0 /\ tryEp = 0
  /\ d = [x \in 1..Runs |-> [pc |-> "off", ep |-> 0, try |-> 0]]
  /\ led = 0 /\ decidedBy = {} /\ seconds = 0 /\ timeouts = 0 /\ late = 0 /\ done = FALSE

Step(x, pc) == d' = [d EXCEPT ![x].pc = pc]
Mine(x) == d[x].try = try

\* ---- the start of a run

NewRun(x) ==
  /\ d[x].pc = "off" /\ (x > 1 => d[x - 1].pc # "off") /\ ~done
  /\ Step(x, IF FenceFirst THEN "fence" ELSE "read")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

NextEpoch == co.ep + (IF co.st = "Ongoing" THEN 2 ELSE 1)
\* InitProducerId aborts what is ongoing and raises the epoch.
InitBatch ==
  /\ co' = [ep |-> NextEpoch, st |-> "Empty", ps |-> {}]
  /\ open' = [p \in Parts |-> <<>>]
  /\ seqs' = [p \in Parts |-> 0]

\* {pipeline}:driver first, then {pipeline}:batch: two requests.
FenceDriver(x) ==
  /\ d[x].pc = "fence"
  /\ drv' = drv + 1
  /\ d' = [d EXCEPT ![x].pc = "fenceBatch", ![x].ep = drv + 1]
  /\ UNCHANGED <<co, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

FenceBatch(x) ==
  /\ d[x].pc = "fenceBatch"
  /\ InitBatch
  /\ Step(x, IF FenceFirst THEN "read" ELSE "plan")
  /\ UNCHANGED <<drv, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

\* A decided batch is committed; there is nothing to prove.
Read(x) ==
  /\ d[x].pc = "read"
  /\ Step(x, IF FenceFirst /\ drv # d[x].ep THEN "dead"
             ELSE IF led > 0 THEN "return" ELSE IF FenceFirst THEN "plan" ELSE "fence")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

\* A try begins: its identity is new, whoever writes under the old one is fenced.  First it is asked who owns the pipeline.
Plan(x) ==
  /\ d[x].pc = "plan"
  /\ IF drv # d[x].ep THEN Step(x, "dead") /\ UNCHANGED <<co, seqs, open, turns, starts, seals, try, tryEp>>
     ELSE /\ try < MaxTries
          /\ try' = try + 1
          /\ IF FreshIdentity \/ try = 0
             THEN InitBatch /\ tryEp' = NextEpoch
             ELSE UNCHANGED <<co, seqs, open, tryEp>>
          /\ turns' = NoTurns /\ starts' = NoStarts      \* the starts of the try before are fenced
          /\ seals' = [t \in Tasks |-> NoOne]
          /\ d' = [d EXCEPT ![x].pc = "write", ![x].try = try + 1]
  /\ UNCHANGED <<drv, shown, led, decidedBy, seconds, timeouts, late, done>>

\* ---- a start of a task

\* A start has its rows.  One without rows says nothing in the log and is sealed at once; another may be held up.
BeginStart(i) ==
  /\ try > 0 /\ starts[i].st = "off"
  /\ i[2] = 2 => starts[<<i[1], 1>>].st # "off" /\ seconds < MaxSeconds
  /\ seconds' = IF i[2] = 2 THEN seconds + 1 ELSE seconds
  /\ \E want \in SUBSET Parts :
       starts' = [starts EXCEPT ![i] = [st |-> IF want = {} THEN "sealable" ELSE "ready", want |-> want, wrote |-> {}]]
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, seals, try, tryEp, d, led, decidedBy, timeouts, late, done>>

\* What a start says first: that it has begun.
\* rows: turns OPEN/TaskStarted, turns BROKEN/TaskStarted
SayBegun(i) ==
  /\ starts[i].st = "ready"
  /\ LET before == turns.starts[i[1]] IN
       IF ~turns.open
       THEN /\ starts' = [starts EXCEPT ![i].st = "stopped"] /\ UNCHANGED turns
       ELSE IF before # 0 /\ <<i[1], before>> \in turns.granted /\ BreakOnSecond
       THEN /\ turns' = [turns EXCEPT !.open = FALSE]
            /\ starts' = [starts EXCEPT ![i].st = "stopped"]
       ELSE /\ turns' = [turns EXCEPT !.starts[i[1]] = i[2],
                  !.queue = [p \in Parts |-> SelectSeq(@[p], LAMBDA j : j # <<i[1], before>>)]]
            /\ starts' = [starts EXCEPT ![i].st = "begun",
                  ![<<i[1], 3 - i[2]>>].st = IF before # 0 /\ BreakOnSecond THEN "stopped" ELSE @]
  /\ UNCHANGED <<co, drv, seqs, open, shown, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

Valid(i) == turns.starts[i[1]] = i[2]
Waits(i, p) == \E n \in DOMAIN turns.queue[p] : turns.queue[p][n] = i

\* rows: turns OPEN/Wanted, turns BROKEN/Wanted
Want(i, p) ==
  /\ starts[i].st = "begun" /\ p \in starts[i].want \ starts[i].wrote /\ turns.holder[p] # i /\ ~Waits(i, p)
  /\ turns.open /\ Valid(i)
  /\ turns' = IF turns.holder[p] = NoOne
              THEN [turns EXCEPT !.holder[p] = i, !.granted = @ \cup {i}]
              ELSE [turns EXCEPT !.queue[p] = Append(@, i)]
  /\ UNCHANGED <<co, drv, seqs, open, shown, starts, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

\* One batch of records, acknowledged.  A holder that has not read that the try is broken goes on.
Write(i, p) ==
  /\ starts[i].st = "begun" /\ p \in starts[i].want \ starts[i].wrote
  /\ TakeTurns => turns.holder[p] = i
  /\ LET first == IF TakeTurns THEN turns.next[p] ELSE 0 IN
       IF tryEp # co.ep \/ co.st \notin {"Empty", "Ongoing"} \/ first > seqs[p]
       THEN /\ starts' = [starts EXCEPT ![i].st = "stopped"]
            /\ UNCHANGED <<co, seqs, open>>
       ELSE /\ starts' = [starts EXCEPT ![i].wrote = @ \cup {p}]
            /\ co' = [co EXCEPT !.st = "Ongoing", !.ps = @ \cup {p}]
            /\ IF first = seqs[p]
               THEN /\ seqs' = [seqs EXCEPT ![p] = @ + 1] /\ open' = [open EXCEPT ![p] = Append(@, i)]
               ELSE UNCHANGED <<seqs, open>>             \* taken for a duplicate
  /\ UNCHANGED <<drv, shown, turns, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

\* rows: turns OPEN/Passed, turns BROKEN/Passed
Pass(i, p) ==
  /\ turns.open /\ turns.holder[p] = i /\ p \in starts[i].wrote
  /\ turns' = [turns EXCEPT !.next[p] = seqs[p], !.queue[p] = IF @ = <<>> THEN @ ELSE Tail(@),
       !.holder[p] = IF turns.queue[p] = <<>> THEN NoOne ELSE Head(turns.queue[p]),
       !.granted = IF turns.queue[p] = <<>> THEN @ ELSE @ \cup {Head(turns.queue[p])}]
  /\ UNCHANGED <<co, drv, seqs, open, shown, starts, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

\* A start fails and says so, or is lost without a word (its executor is).
\* rows: turns OPEN/Stopped, turns BROKEN/Stopped
Fail(i) ==
  /\ starts[i].st \in {"begun", "ready"} /\ seconds < MaxSeconds
  /\ \/ /\ turns.open /\ starts[i].st = "begun" /\ Valid(i) /\ turns' = [turns EXCEPT !.open = FALSE]
     \/ UNCHANGED turns
  /\ starts' = [starts EXCEPT ![i].st = "stopped"]
  /\ UNCHANGED <<co, drv, seqs, open, shown, seals, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

\* A start has written all it has; its result reaches Spark, or is lost and a second start is made.
Sealable(i) ==
  \/ starts[i].st = "sealable"
  \/ starts[i].st = "begun" /\ starts[i].wrote = starts[i].want /\ \A p \in Parts : turns.holder[p] # i
Result(i) ==
  /\ Sealable(i)
  /\ starts' = [starts EXCEPT ![i].st = "over"]
  /\ \/ seals[i[1]] = NoOne /\ seals' = [seals EXCEPT ![i[1]] = i]
     \/ UNCHANGED seals
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, try, tryEp, d, led, decidedBy, seconds, timeouts, late, done>>

\* ---- the driver

\* Spark's job is over: every task has a seal.  Where one had no rows, the driver ends the turns.
\* rows: batch WRITING/Written
Written(x) ==
  /\ d[x].pc = "write" /\ Mine(x) /\ \A t \in Tasks : seals[t] # NoOne
  /\ LET idle == {t \in Tasks : starts[seals[t]].want = {}}
         granted == \E t \in idle : turns.starts[t] # 0 /\ <<t, turns.starts[t]>> \in turns.granted
     IN /\ turns' = IF EndTurns /\ idle # {} THEN [turns EXCEPT !.open = FALSE] ELSE turns
        /\ Step(x, IF EndTurns /\ granted THEN "abort" ELSE "check")
  /\ UNCHANGED <<co, drv, seqs, open, shown, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

\* The job failed, or its tasks stopped because the try is broken.
\* rows: batch WRITING/TasksFailed
TasksFailed(x) ==
  /\ d[x].pc = "write"
  /\ ~Mine(x) \/ ~turns.open \/ (\E t \in Tasks : seals[t] = NoOne /\ (\E n \in {1, 2} : starts[<<t, n>>].st \in {"stopped", "over"}))
  /\ Step(x, "abort")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

Sealed(p) == {t \in Tasks : p \in starts[seals[t]].want}
Whole == \A p \in Parts : (p \in co.ps <=> Sealed(p) # {}) /\ seqs[p] = Cardinality(Sealed(p))
IsOpen(x) == Mine(x) /\ tryEp = co.ep /\ (co.st = "Ongoing" \/ (co.st = "Empty" /\ \A p \in Parts : Sealed(p) = {}))

\* rows: batch CHECKING/AllAlive, batch CHECKING/NotAlive
Check(x) ==
  /\ d[x].pc = "check"
  /\ Step(x, IF (CheckOpen => IsOpen(x)) /\ (CheckWhole => Mine(x) /\ Whole) THEN "decide" ELSE "abort")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

\* The ledger's record and the source offsets are put into the batch's own transaction.
\* rows: batch DECIDING/DecisionRefused
Decide(x) ==
  /\ d[x].pc = "decide"
  /\ IF Mine(x) /\ tryEp = co.ep /\ co.st \in {"Empty", "Ongoing"}
     THEN /\ co' = [co EXCEPT !.st = "Ongoing"]
          /\ decidedBy' = decidedBy \cup {<<try, seals[t]>> : t \in Tasks}
          /\ Step(x, "end")
     ELSE Step(x, "abort") /\ UNCHANGED <<co, decidedBy>>
  /\ UNCHANGED <<drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, seconds, timeouts, late, done>>

Committed ==
  /\ shown' = [p \in Parts |-> shown[p] \o [n \in DOMAIN open[p] |-> <<try, open[p][n]>>]]
  /\ open' = [p \in Parts |-> <<>>]
  /\ led' = try
  /\ co' = [ep |-> IF TV = 2 THEN co.ep + 1 ELSE co.ep, st |-> "Commit", ps |-> {}]
CanEnd(x) == Mine(x) /\ tryEp = co.ep /\ co.st = "Ongoing"

\* rows: batch DECIDING/DecisionDurable, batch DECIDING/DecisionUnanswered
End(x) ==
  /\ d[x].pc = "end"
  /\ \/ CanEnd(x) /\ Committed /\ (Step(x, "return") \/ Step(x, "unknown")) /\ UNCHANGED late
     \/ Step(x, "unknown") /\ late' = (IF Mine(x) THEN tryEp ELSE late) /\ UNCHANGED <<co, open, shown, led>>
  /\ UNCHANGED <<drv, seqs, turns, starts, seals, try, tryEp, decidedBy, seconds, timeouts, done>>

\* An EndTxn that was sent long ago arrives, also after its sender died.
Late ==
  /\ late > 0 /\ co.ep = late /\ co.st = "Ongoing"
  /\ Committed
  /\ UNCHANGED <<drv, seqs, turns, starts, seals, try, tryEp, d, decidedBy, seconds, timeouts, late, done>>

\* rows: batch UNKNOWN/DecisionDurable, batch UNKNOWN/DecisionUnanswered, batch UNKNOWN/DecisionRefused
Ask(x) ==
  /\ d[x].pc = "unknown"
  /\ IF ~AskUnknown THEN Step(x, "abort") /\ UNCHANGED <<co, open, shown, led>>
     ELSE IF led = d[x].try THEN Step(x, "return") /\ UNCHANGED <<co, open, shown, led>>
     ELSE IF CanEnd(x) THEN Committed /\ Step(x, "return")
     ELSE Step(x, "abort") /\ UNCHANGED <<co, open, shown, led>>
  /\ UNCHANGED <<drv, seqs, turns, starts, seals, try, tryEp, decidedBy, seconds, timeouts, late, done>>

\* The identity is taken away from whoever still writes, by who owns the pipeline; then the batch is done again.
\* rows: batch ABORTING/AbortFinished
Abort(x) ==
  /\ d[x].pc = "abort"
  /\ IF drv # d[x].ep THEN Step(x, "dead") /\ UNCHANGED <<co, seqs, open>>
     ELSE Step(x, "plan") /\ UNCHANGED <<co, seqs, open>>
  /\ UNCHANGED <<drv, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

\* rows: batch SHOWING/Shown
Return(x) ==
  /\ d[x].pc = "return"
  /\ done' = TRUE /\ Step(x, "dead")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late>>

\* ---- the environment

\* Killed, or stopped by an error that the next run mends: nothing is aborted, nothing ended.
\* rows: batch CHECKING/StepFailed, batch DECIDING/StepFailed, batch UNKNOWN/StepFailed, batch SHOWING/StepFailed
\* rows: batch ABORTING/StepFailed
Crash(x) ==
  /\ d[x].pc \notin {"off", "dead"} /\ x < Runs
  /\ Step(x, "dead")
  /\ UNCHANGED <<co, drv, seqs, open, shown, turns, starts, seals, try, tryEp, led, decidedBy, seconds, timeouts, late, done>>

Timeout ==
  /\ timeouts < MaxTimeouts /\ co.st = "Ongoing"
  /\ timeouts' = timeouts + 1
  /\ co' = [ep |-> co.ep + 1, st |-> "Abort", ps |-> {}]
  /\ open' = [p \in Parts |-> <<>>] /\ seqs' = [p \in Parts |-> 0]
  /\ UNCHANGED <<drv, shown, turns, starts, seals, try, tryEp, d, led, decidedBy, seconds, late, done>>

Next ==
  \/ \E x \in 1..Runs :
       \/ NewRun(x) \/ FenceDriver(x) \/ FenceBatch(x) \/ Read(x) \/ Plan(x) \/ Written(x) \/ TasksFailed(x) \/ Check(x)
       \/ Decide(x) \/ End(x) \/ Ask(x) \/ Abort(x) \/ Return(x) \/ Crash(x)
  \/ \E i \in Ids :
       \/ BeginStart(i) \/ SayBegun(i) \/ Fail(i) \/ Result(i)
       \/ \E p \in Parts : Want(i, p) \/ Write(i, p) \/ Pass(i, p)
  \/ Late \/ Timeout

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Tasks) \cup Permutations(Parts)

\* ---- what must hold

TypeOK == co.st \in {"Empty", "Ongoing", "Commit", "Abort"} /\ try \in 0..MaxTries /\ led \in 0..MaxTries
InPart(p, i) == Cardinality({n \in DOMAIN shown[p] : shown[p][n][2] = i})
\* The rows of one try only, of each start at most once, and of no start whose result Spark does not have.
OneTry == \A p, q \in Parts : \A m \in DOMAIN shown[p] : \A n \in DOMAIN shown[q] : shown[p][m][1] = shown[q][n][1]
NoDuplicate == OneTry /\ \A p \in Parts : \A i \in Ids : InPart(p, i) <= 1
NothingUnsealed == \A p \in Parts : \A n \in DOMAIN shown[p] : shown[p][n] \in decidedBy
\* What Spark is told is done shows whole.
NoLoss == led > 0 /\ led = try => \A e \in decidedBy : e[1] = try => \A p \in starts[e[2]].want : InPart(p, e[2]) >= 1
DoneIsDecided == done => led > 0

\* ---- what must be possible: violated on purpose
NeverDone == ~(done /\ try = MaxTries)
=============================================================================
