"""What a person at a terminal has: the command line, and the reader that tells whether all is well again.

Owns: a command in a process of its own, several at once, the end of every incident.
Does not know: what an incident is.

The processes are forked from a server that has imported the command line; what a person types costs a second of imports
more (tests/pyspark_kafka_eos/cli/test_command.py starts it from nothing).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.pyspark_kafka_eos.commit.judge import read_all
from tests.pyspark_kafka_eos.commit.test_damage import high_watermarks, last_stable_offsets
from tests.support.brokers import AnyKafka
from tests.support.forks import Command

WITHIN_S = 60


@dataclass(frozen=True)
class Answer:
    """How a command ended: its exit code, and the document that was all of its standard output."""

    code: int
    document: dict[str, Any]

    @property
    def outcomes(self) -> dict[str, str]:
        """Of `commit`, `abort` and `fence`: last part of each id -> what became of it."""
        return {each["transactional_id"].rpartition(":")[2]: each["outcome"] for each in self.document["done"]}

    @property
    def decided(self) -> dict[str, str | None]:
        """Of `explain` and `list`: last part of each id -> what became of what is decided under it."""
        return {each["part"]: each["decided_outcome"] for each in self.document["transactions"]}

    @property
    def states(self) -> dict[str, str]:
        """Of `explain` and `list`: last part of each id -> its coordinator's state."""
        return {each["part"]: each["state"] for each in self.document["transactions"]}

    @property
    def readers_wait(self) -> bool:
        """Of `explain` and `list`: whether readers wait for one of these transactions."""
        return any(hold["readers_wait_for_it"] for each in self.document["transactions"] for hold in each["holds"])

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        """Of `verify`: (batch, verdict), the oldest first."""
        return [(each["batch_id"], each["verdict"]) for each in self.document["batches"]]


class Terminal:
    """A command that runs."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._command = Command(words)

    def answer(self) -> Answer:
        """Wait for its end."""
        code, said, _ = self._command.ended(WITHIN_S)
        document = json.loads(said)
        assert document["exit_code"] == code
        return Answer(code, document)


def typed(broker: AnyKafka, *words: str) -> Terminal:
    """Begin `kafka-eos ... --json` in a terminal of its own."""
    return Terminal((*words, "--json", "-b", broker.bootstrap_servers))


def kafka_eos(broker: AnyKafka, *words: str) -> Answer:
    """The same, waited for."""
    return typed(broker, *words).answer()


def must_be_verified(
    broker: AnyKafka,
    pipeline: str,
    topic: str,
    expected: Counter[str],
    *,
    batches: int = 1,
    last: int = 5,
    options: Sequence[str] = (),
) -> None:
    """How every incident ends: `kafka-eos verify` finds so many batches as they were decided, no reader waits, and an
    independent reader of committed records counts each expected one once.
    """
    answer = kafka_eos(broker, "verify", pipeline, "-n", str(last), *options)
    assert answer.code == 0, answer.document
    assert [verdict for _, verdict in answer.verdicts] == ["matches"] * batches
    assert last_stable_offsets(broker, topic) == high_watermarks(broker, topic)
    assert read_all(broker, topic) == expected
