"""Documents and their exit codes, and that people see the same in the tables; without any broker."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kafka_core.errors import (
    BrokerUnavailable,
    ExactlyOnceError,
    LedgerUnreadable,
    OptionsError,
    OutcomeUnknown,
)
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.cli.documents import Document
from pyspark_kafka_eos.cli.tables import render
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.model import Decision, Seal, SealedPartition
from pyspark_kafka_eos.operations.audit import Audit, Finding, Verdict
from pyspark_kafka_eos.operations.ending import Done
from pyspark_kafka_eos.operations.history import LedgerEntry
from pyspark_kafka_eos.operations.leftovers import Hold, Leftover, pipeline_of, story
from pyspark_kafka_eos.operations.topic_checks import Check
from tests.kafka_core.test_errors import tree

WRITER = ProducerIdentity(7, 3)
SEAL = Seal("p:1", 1, WRITER, 2, 40, 4000, 99, 0, (SealedPartition("t", 0, 5, 39, 40),))
DECISION = Decision(
    "p",
    "query",
    4,
    (SEAL,),
    ('{"in":{"0":40}}',),
    decided_ms=1_700_000_000_000,
    connector_version="0.1.0",
    repaired=1,
)
WHERE = TopicPartition("t", 0)


def text_of(document: Document) -> str:
    """What a person reads, after the document was JSON once."""
    console = Console(record=True, width=250, file=io.StringIO(), highlight=False)
    console.print(render(json.loads(json.dumps(document))))
    return console.export_text()


def finding(verdict: Verdict) -> Finding:
    return Finding((1,), "p:1", verdict, 40, 40, 99, 99, "because")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(["ok", "warn"], 0), (["ok", "fail", "unknown"], 1), (["ok", "unknown"], 3)],
)
def test_the_doctor_ends_with_what_is_worst(statuses: list, code: int) -> None:
    document = documents.doctor("p", [Check("topic", each, "seen this", "do that", "[t]") for each in statuses])

    assert document["exit_code"] == code
    text = text_of(document)
    assert all(each in text for each in [*statuses, "seen this", "do that", "[t]"])


def proof(*batches: tuple[Decision, list[Finding]]) -> Audit:
    return Audit(list(batches), [], ("out",), {TopicPartition("out", number) for number in range(4)})


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.MATCHES], 0),
        ([Verdict.MATCHES, Verdict.DIFFERS, Verdict.GONE], 1),
        ([Verdict.ABORTED], 1),
        ([Verdict.MATCHES, Verdict.OPEN], 3),
        ([Verdict.GONE], 3),
    ],
)
def test_a_batch_has_the_verdict_of_its_worst_transaction(verdicts: list[Verdict], code: int) -> None:
    document = documents.verify(proof((DECISION, [finding(each) for each in verdicts])))

    assert document["exit_code"] == code
    assert all(each.value in text_of(document) for each in verdicts)
    assert "because" in text_of(document)


def test_a_batch_without_records_matches_and_no_batch_at_all_is_no_proof() -> None:
    empty = Decision("p", "query", 4, ())

    assert documents.verify(proof((empty, [])))["exit_code"] == 0
    assert documents.verify(proof())["exit_code"] == 3


def test_the_ledger_shows_what_a_decision_says() -> None:
    entries = [LedgerEntry("p", TopicPartition("ledger", 2), 17, 5, DECISION)]

    document = documents.ledger("ledger", {"p": entries})

    assert document["exit_code"] == 0
    text = text_of(document)
    assert all(each in text for each in ("2:17", "4 (repaired 1x)", "2023-11-14 22:13:20Z", "40", "4 kB", '"0":40'))


def test_offsets_are_shown_to_people_without_what_they_stand_on_and_to_programs_with_it() -> None:
    ours = '{"in":{"0":40},"version:1":{},"cluster:a-cluster":{},"topic:in:an-id:3":{}}'
    other = '{"sourceVersion":1,"reservoirVersion":7}'
    decision = replace(DECISION, source_offsets=(ours, other, "5"))

    document = documents.ledger("ledger", {"p": [LedgerEntry("p", TopicPartition("ledger", 2), 17, 5, decision)]})

    shown = [line.rstrip() for line in text_of(document).splitlines() if "has read up to" in line]
    assert [line.partition("to: ")[2] for line in shown] == ['{"in": {"0": 40}}', other, "5"]
    assert document["pipelines"][0]["decisions"][0]["source_offsets"] == [ours, other, "5"]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["committed", "unchanged"], 0), (["aborted", "refused"], 1), (["refused", "unknown"], 3)],
)
def test_an_operation_that_does_not_know_its_outcome_says_so_first(outcomes: list, code: int) -> None:
    document = documents.done("abort", "p", [Done("p:1", each, "so it is") for each in outcomes])

    assert document["exit_code"] == code
    assert all(each in text_of(document) for each in [*outcomes, "so it is"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionsError("bad"), 2),
        (BrokerUnavailable("bad"), 3),
        (OutcomeUnknown("bad"), 3),
        (LedgerUnreadable("bad", {"offset": 17}), 1),
    ],
)
def test_an_error_ends_with_the_code_of_its_class(error: ExactlyOnceError, code: int) -> None:
    document = documents.failed("ledger", error)

    assert document["exit_code"] == code
    assert type(error).__name__ in text_of(document)
    assert (error.who_acts_at_the_end or error.who_acts) in text_of(document)


# ---- leftovers in words


def leftover(**fields: object) -> Leftover:
    return Leftover(**{"transactional_id": "p:1", "state": "Ongoing", "identity": WRITER} | fields)  # type: ignore[arg-type]


HANGING = (Hold(WHERE, 3, 5, 5, 45),)


@pytest.mark.parametrize(
    ("fields", "said", "code"),
    [
        ({"age_ms": 1000, "timeout_ms": 61_000}, "the broker aborts it in about 60 s", 0),
        ({"age_ms": 1000, "timeout_ms": 2**31 - 1}, "never: it has no timeout (KIP-939)", 0),
        ({"transactional_id": "p:driver"}, "recording a decision", 0),
        ({"state": "PrepareCommit"}, "writing the markers", 0),
        ({"state": "CompleteAbort"}, "nothing is open", 0),
        ({"state": "CompleteAbort", "holds": HANGING}, "it hangs, and no timeout ends it", 1),
        ({"seal": SEAL, "verdict": Outcome.OPEN, "batch_id": 4}, "decided (batch 4) and not ended", 1),
        ({"seal": SEAL, "verdict": Outcome.ABORTED, "batch_id": 4}, "but the broker aborted it", 1),
        ({"seal": SEAL, "verdict": Outcome.UNKNOWN, "batch_id": 4}, "has its outcome", 3),
        (
            {"state": "CompleteCommit", "seal": SEAL, "verdict": Outcome.COMMITTED, "batch_id": 4},
            "committed, as decided (batch 4)",
            0,
        ),
        (
            {
                "state": "CompleteCommit",
                "seal": SEAL,
                "verdict": Outcome.COMMITTED,
                "holds": HANGING,
                "batch_id": 4,
            },
            "never wrote its markers everywhere",
            1,
        ),
        ({"seal": SEAL, "verdict": Outcome.COMMITTED, "batch_id": 3}, "open and not decided", 0),
    ],
)
def test_each_state_is_explained_in_words(fields: dict[str, object], said: str, code: int) -> None:
    each = leftover(**fields)
    document = documents.transactions("explain", {"p": [each]})

    assert said in story(each)
    assert document["exit_code"] == code
    assert said[1:] in text_of(document)


def test_a_newer_transaction_under_a_committed_slots_id_is_not_taken_for_its_missing_markers() -> None:
    newer = (Hold(WHERE, WRITER.epoch + 1, 50, 50, 60),)

    each = leftover(seal=SEAL, verdict=Outcome.COMMITTED, holds=newer, age_ms=5)

    assert each.lacks_markers is False


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("a.b:0", "a.b"),
        ("a:driver", "a"),
        ("a:batch", "a"),
        ("a.0:driver", "a.0"),
        ("app-1", None),
        ("a:x", None),
        ("a.0", None),
    ],
)
def test_the_pipeline_is_read_off_an_id(name: str, pipeline: str | None) -> None:
    assert pipeline_of(name) == pipeline


@pytest.mark.parametrize("error_class", tree(ExactlyOnceError), ids=lambda each: each.__name__)
def test_no_command_says_that_it_is_repeated_by_itself(error_class: type[ExactlyOnceError]) -> None:
    said = documents.failed("verify", error_class("it is so"))["error"]["who_acts"]

    assert said and "it is retried" not in said and "attempt of the task" not in said
    # What acts without anybody's help is the next run of the query.
    assert "nobody" not in said or "the query's next run" in said


@pytest.mark.parametrize("words", [["verify"], ["ledger"], ["transactions", "list"], ["topic", "list"]])
def test_a_command_that_nobody_answers_says_that_it_is_yours_to_start_it_again(words: list[str]) -> None:
    # Nothing listens on the first port of a machine.
    nowhere = ["-b", "127.0.0.1:1", "-o", "kafka.max.block.ms=300"]

    ended = CliRunner().invoke(app, [*words, *nowhere])

    assert ended.exit_code == 3
    assert "who acts: you: see whether the brokers run and answer at this address" in ended.stderr
    assert "nobody" not in ended.stderr
