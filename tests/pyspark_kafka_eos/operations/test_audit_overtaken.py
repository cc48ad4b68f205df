"""What the proof says of an aborted batch: the newest one is written again, one behind which another is decided is not.
In memory.
"""

from __future__ import annotations

from pyspark_kafka_eos.operations.audit import History, Verdict, prove
from tests.pyspark_kafka_eos.commit.fakes import World, decision_of


def test_only_of_the_newest_batch_is_it_said_that_a_run_writes_it_again(world: World) -> None:
    decisions = []
    for batch in range(2):
        seal = world.slot(batch)
        world.end(seal, commit=False)
        decisions.append(decision_of([seal], batch_id=batch))

    proof = prove(world.cluster, [History(decisions, decisions)])

    (overtaken,), (newest,) = (findings for _, findings in proof.batches)
    assert (overtaken.verdict, newest.verdict) == (Verdict.ABORTED, Verdict.ABORTED)
    assert overtaken.reason.endswith("no run writes it again, since batch 1 is decided behind it")
    assert newest.reason.endswith("the query's next run writes it again, or says why it cannot")
