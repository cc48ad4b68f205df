"""The matrix of witnesses: each question whose answer a conclusion rests on x each way in which the one who answers
cannot know.

    .venv/bin/python -m tests.simulation.witnesses [--write]

Owns: the two tables, the moments in which they are played, evidence/witnesses.md.
Does not know: how a history is played and judged (`play`, `judge`).
Invariants:
- A cell whose question was not asked in its moment is told as such: it proves nothing.
- The one who cannot know answers for some seconds only, so every history can come to its end.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embedded_kafka.faults.fault import AnswerFault, Fault, LeaderFault, WireFault
from embedded_kafka.leader_views import take_stand
from embedded_kafka.node import Node
from embedded_kafka.topics.leaders import Leadership
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from tests.simulation.faults import at_point
from tests.simulation.judge import PARTITIONS
from tests.simulation.play import Outcome, Scene, play
from tests.simulation.watch import OUTPUT
from tests.support.made import today
from tests.support.planting import Planted

PAGE = Path(__file__).resolve().parents[2] / "evidence" / "witnesses.md"

UNABLE_S = 6.0
"""How long the answers are wrong: longer than what the product waits for at first (a topic's two seconds), and shorter
than what it waits for a witness (30 s).
"""

DOWN_S = 40.0
"""How long the job is down in the moments that say so: transactions time out after 20 s, and the coordinator looks
every 10 s.
"""


@dataclass(frozen=True)
class Question:
    """`api` asks it of the leaders of `topic`; None: whatever is asked of them."""

    name: str
    topic: str
    api: str | None


QUESTIONS = (
    Question("what is in the output, open in it, and where it ends", OUTPUT, None),
    Question("what is in the output", OUTPUT, "Fetch"),
    Question("where the output ends", OUTPUT, "ListOffsets"),
    Question("what is in the ledger, and where it ends", DEFAULT_LEDGER_TOPIC, None),
    Question("what is in the ledger", DEFAULT_LEDGER_TOPIC, "Fetch"),
    Question("where the ledger ends", DEFAULT_LEDGER_TOPIC, "ListOffsets"),
)

WAYS: dict[str, LeaderFault | AnswerFault] = {
    "a leader that was replaced without noticing": LeaderFault.STALE,
    "a leader whose high watermark lags": LeaderFault.LAGGING,
    "an answer without records": AnswerFault.EMPTY,
    "an answer without the partition": AnswerFault.LEAVE_OUT,
}


@dataclass(frozen=True)
class Moment:
    """The driver is killed at `point` of its second batch; `down`: until what was open has timed out."""

    name: str
    point: str
    down: bool


MOMENTS = (
    Moment("undecided", "before-decision", False),
    Moment("decided", "after-decision", False),
    Moment("decided, timed out", "after-decision", True),
    Moment("ended", "before-note-ended", False),
)
TELL_SOMEBODY = ("DecisionBroken", "LedgerUnreadable", "NondeterministicPlan")
"""Errors that a person has to act on, beside those that end every history. Here nothing is broken."""

SCOPES = ("task", "batch")
VERSIONS = (1, 2)


@dataclass(frozen=True)
class Cell:
    """What is played."""

    question: Question
    way: str
    moment: Moment
    scope: str
    version: int

    @property
    def by_a_broker(self) -> bool:
        """Whether one broker of the three is cut off, and answers for all that it led. Which leader is the ledger's
        newest is asked of every broker, so the liar has to be another one than that. Else the leaders themselves answer
        as an earlier one would.
        """
        return WAYS[self.way] is LeaderFault.STALE and self.question.topic == DEFAULT_LEDGER_TOPIC

    def __str__(self) -> str:
        return f"{self.question.name} | {self.way} | {self.moment.name} | {self.scope} | {self.version}"


def cells() -> list[Cell]:
    """All that make sense. A leader is one in all that it is asked, so its faults are not of one API; only a Fetch has
    records.
    """
    return [
        Cell(*each)
        for each in itertools.product(QUESTIONS, WAYS, MOMENTS, SCOPES, VERSIONS)
        if _makes_sense(each[0], WAYS[each[1]])
    ]


def _makes_sense(question: Question, way: LeaderFault | AnswerFault) -> bool:
    if isinstance(way, LeaderFault):
        return question.api is None
    return question.api == "Fetch" if way is AnswerFault.EMPTY else question.api is not None


def play_cell(cell: Cell, seed: int = 1) -> tuple[Outcome, int]:
    """What became of it, and how often the question was answered so."""
    fired: list[Callable[[], int]] = []

    def strikes(scene: Scene) -> None:
        ends: dict[TopicPartition, int] = {}
        cut_off: list[int] = []
        finished = scene.job._finished

        def batch_is_done(batch: int, report: object) -> None:
            finished(batch, report)
            if batch == 0:
                # What comes now is written under a newer leader, which the older one has not noticed.
                if cell.by_a_broker:
                    scene.broker.do(lambda node: _cut_off(scene, node, cell.question.topic, cut_off, fired))
                scene.broker.do(lambda node: _elect(node, cell.question.topic, ends))
                at_point(cell.moment.point, lambda scene: _strike(scene, cell, ends, cut_off, fired))(scene)

        scene.job._finished = batch_is_done  # type: ignore[method-assign]

    outcome = play(seed, strikes, scope=cell.scope, transaction_version=cell.version, batches=3)
    told = [error for error in outcome.errors if error.partition(":")[0] in TELL_SOMEBODY]
    return replace(outcome, problems=[*outcome.problems, *told]), sum(each() for each in fired)


def _cut_off(scene: Scene, node: Node, topic: str, cut_off: list[int], fired: list[Callable[[], int]]) -> None:
    """The leader of the partition that has the records goes on as it is, and the others elect another one. `fired`
    counts the answers for which it looks at what it knew.
    """
    cluster = scene.broker.cluster
    assert cluster is not None
    where = max(_places(node, topic), key=lambda each: node.parts.topics.log(each).end_offset)
    leader = node.parts.leaders.leader(where)
    cluster.cut_off(leader)
    cut_off.append(leader)
    outlook, placed, counts = cluster[leader].parts.outlook, cluster[leader].parts.outlook.placed, Counter[str]()

    def counted(asked: TopicPartition) -> Leadership:
        found = placed(asked)
        if asked.topic == topic and found.epoch < node.parts.leaders.epoch(asked):
            counts["answers"] += 1
        return found

    outlook.placed = counted  # type: ignore[method-assign]
    fired.append(lambda: counts["answers"])


def _elect(node: Node, topic: str, ends: dict[TopicPartition, int]) -> None:
    for where in _places(node, topic):
        ends[where] = node.parts.topics.log(where).end_offset
        node.parts.controller.elect(where)
        # As by the broker that led before: only so a writer asks who leads now.
        node.parts.faults.inject(
            Fault(
                WireFault.ERROR,
                api="Produce",
                code=Code.NOT_LEADER_OR_FOLLOWER,
                topic=topic,
                partition=where.partition,
            )
        )


def _places(node: Node, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS if topic == OUTPUT else 8)]


def _strike(
    scene: Scene, cell: Cell, ends: dict[TopicPartition, int], cut_off: list[int], fired: list[Callable[[], int]]
) -> None:
    world, job = scene.world, scene.job
    world.kill(job.driver)
    if cell.moment.down:
        again = job.start
        job.start = lambda: None  # type: ignore[method-assign]

        def start() -> None:
            job.start = again  # type: ignore[method-assign]
            job.start()

        world.schedule(DOWN_S, start)
    # The new driver is the first to be answered so.
    begins_s = DOWN_S - 0.1 if cell.moment.down else 0.1

    def notices(_node: Node) -> None:
        assert scene.broker.cluster is not None
        scene.broker.cluster.rejoin(cut_off[0])

    if cell.by_a_broker:
        world.fired["cannot know"] += 1
        scene.broker.whole_at = world.now + begins_s + UNABLE_S
        world.schedule(begins_s + UNABLE_S, lambda: scene.broker.do(notices))
        return

    def set_fault(node: Node) -> None:
        way, question = WAYS[cell.way], cell.question
        world.fired["cannot know"] += 1
        for where in _places(node, question.topic):
            fault = Fault(way, api=question.api, topic=where.topic, partition=where.partition, times=sys.maxsize)
            if isinstance(way, LeaderFault):
                fault.end = min(ends[where], node.parts.topics.log(where).end_offset)
                take_stand(node.parts, fault)
            node.parts.faults.inject(fault)
            fired.append(lambda fault=fault: fault.fired)  # type: ignore[misc]
            world.schedule(UNABLE_S, lambda fault=fault: scene.broker.do(lambda node: node.parts.faults.release(fault)))  # type: ignore[misc]

    world.schedule(begins_s, lambda: scene.broker.do(set_fault))


# ---- the page

INTRODUCTION = """\
# The matrix of witnesses

Each answer that a conclusion rests on, given by one who cannot know, in moments in which a run has to conclude something. A driver is killed
in its second batch. What it wrote stands under a newer leader; the next driver is answered as the table says for 6 s, and
correctly from then on. Played in virtual time on the embedded broker, whose logs' bytes the judge of [the simulation](../docs/design/simulation.md) reads. Made by
`python -m tests.simulation.witnesses --write` on {day}. [Absences](../docs/design/absences.md) has every place in the code that rests on such an answer.

**holds**: every batch was committed once, nothing decided was aborted, and nobody was told to act. **not asked**: no run asked the question in
those seconds, which proves nothing. The ledger's leader that was replaced without noticing is one broker of three, cut off
from the others before the second batch: it answers for whatever it led then, and its word on who leads is one of three. The other leaders
that cannot know are the partition's own, answering as such a one would, so that nobody else can be asked.
"""

PLANTED = (
    Planted(
        "leaders of an older epoch are believed", "pyspark_kafka_eos.client.reading.absence:_behind",
        "return [where", "return [] and [where",
    ),
    Planted(
        "a high watermark is taken for the end of the log", "pyspark_kafka_eos.commit.fates:_read",
        "if absence.ends(cluster, {where: known})[where] <= offset:", "if read.high_watermark <= offset:",
    ),
)  # fmt: skip
"""Mends that are taken back. The matrix has to show each."""


def page(played: Sequence[tuple[Cell, Outcome, int]]) -> str:
    """The whole page."""
    head = ["question", "answered by", *(moment.name for moment in MOMENTS)]
    lines = [INTRODUCTION.format(day=today()), "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for question, way in dict.fromkeys((cell.question, cell.way) for cell, _, _ in played):
        row = [question.name, way]
        for moment in MOMENTS:
            here = [each for each in played if (each[0].question, each[0].way, each[0].moment) == (question, way, moment)]  # fmt: skip
            row.append(_square(here))
        lines.append("| " + " | ".join(row) + " |")
    asked = sum(fired > 0 for _, _, fired in played)
    bad = [(cell, outcome) for cell, outcome, _ in played if outcome.problems]
    lines += [
        "",
        f"{len(played)} cells, {asked} of them asked, {len(bad)} do not hold: two scopes, two transaction versions.",
    ]
    lines += [f"- {cell}: {outcome.problems[0][:200]}" for cell, outcome in bad]
    lines += [
        "",
        "With these mends taken back the judge refuses cells (tests/simulation/test_witnesses.py):",
        "",
    ]
    return "\n".join([*lines, *(f"- {planted.name}" for planted in PLANTED)]) + "\n"


def _square(here: Sequence[tuple[Cell, Outcome, int]]) -> str:
    bad = sum(bool(outcome.problems) for _, outcome, _ in here)
    asked = sum(fired > 0 for _, _, fired in here)
    if bad:
        return f"**{bad} of {len(here)} do not hold**"
    return "not asked" if not asked else "holds" if asked == len(here) else f"holds, asked in {asked} of {len(here)}"


def main() -> int:
    """Play all, tell what does not hold, and write the page. Exit code 1 where a cell does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.witnesses")
    parser.add_argument("--write", action="store_true", help="write evidence/witnesses.md")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    played = [(cell, *play_cell(cell)) for cell in cells()]
    for cell, outcome, _ in played:
        if outcome.problems:
            print(f"{cell}: {outcome.problems}", flush=True)
    print(f"{len(played)} cells, {sum(fired > 0 for _, _, fired in played)} of them asked")
    if given.write:
        PAGE.write_text(page(played), encoding="utf-8")
    return int(any(outcome.problems for _, outcome, _ in played))


if __name__ == "__main__":
    sys.exit(main())
