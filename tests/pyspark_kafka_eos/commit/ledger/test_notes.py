"""Notes beside the decisions: their bytes, their keys, what is refused."""

from __future__ import annotations

import json

import pytest

from kafka_core.errors import LedgerUnreadable
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.commit.ledger.notes import (
    NOTE_VERSION,
    Aborted,
    Ended,
    Mending,
    Note,
    Settled,
    SettledInParts,
    from_bytes,
    is_note_of,
    note_key,
    to_bytes,
)
from pyspark_kafka_eos.commit.ledger.parts import DecisionPart, Manifest
from pyspark_kafka_eos.model import Seal
from tests.pyspark_kafka_eos.commit.fakes import DECIDED_MS, decision_of

WHO = ProducerIdentity(17, 3)
NOTES: list[Note] = [
    Ended("query", 4, 1_234, 1),
    Settled(99, WHO, decision_of([Seal("pipe:0", 0, WHO, 2, records=5, digest=2**63 + 1)])),
    Mending("pipe:0", WHO, (TopicPartition("out", 0), TopicPartition("out", 3))),
    DecisionPart("ab" * 32, 4, '{"version":1,', "99"),
]
KINDS: list[Note] = [*NOTES, Aborted("pipe:0", WHO), SettledInParts(99, WHO, Manifest("ab" * 32, 3))]


@pytest.mark.parametrize("note", KINDS, ids=lambda note: type(note).__name__)
def test_a_note_is_read_back_as_it_was_written(note: Note) -> None:
    assert from_bytes(to_bytes(note)) == note


@pytest.mark.parametrize("driver", [WHO, None])
def test_an_end_names_the_drivers_identity_and_is_the_same_end_without_it(
    driver: ProducerIdentity | None,
) -> None:
    note = Ended("query", 4, 1_234, 1, driver)
    read = from_bytes(to_bytes(note))

    assert isinstance(read, Ended)
    assert read.driver == driver
    assert read == Ended("query", 4, 1_234, 1)


@pytest.mark.parametrize("note", KINDS, ids=lambda note: type(note).__name__)
@pytest.mark.parametrize(
    ("version", "words"),
    [
        (NOTE_VERSION + 1, "newer version .*; run at least"),
        (NOTE_VERSION - 1, "older version .*; let that version finish"),
    ],
)
def test_a_note_of_another_version_is_refused_in_words(note: Note, version: int, words: str) -> None:
    body = json.loads(to_bytes(note)) | {"version": version, "connector_version": "9.8.7"}

    with pytest.raises(LedgerUnreadable, match=f"a note in the ledger was written by an? {words}") as no:
        from_bytes(json.dumps(body).encode())

    assert no.value.facts == {"format": version, "known_format": NOTE_VERSION, "written_by": "9.8.7"}


@pytest.mark.parametrize("note", KINDS, ids=lambda note: type(note).__name__)
def test_a_field_that_a_newer_version_adds_is_passed_over(note: Note) -> None:
    body = json.loads(to_bytes(note)) | {"more": [1, 2]}

    assert from_bytes(json.dumps(body).encode()) == note


GARBLED = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"17",
    b"{}",
    b'{"version":1}',
    b'{"version":"2","note":"ended"}',
    b'{"version":1,"note":"unheard-of"}',
    b'{"version":1,"note":"ended","query_id":"q","batch_id":"x","decided_ms":1,"repaired":0}',
    b'{"version":1,"note":"mending","transactional_id":"a","producer":[1],"partitions":[]}',
    b'{"version":1,"note":"mending","transactional_id":"a","producer":[1,2],"partitions":[["t"]]}',
    b'{"version":1,"note":"settled","offset":1,"producer":[1,2],"decision":{}}',
]


@pytest.mark.parametrize("value", GARBLED, ids=range(len(GARBLED)))
def test_a_garbled_note_is_refused_and_the_words_say_what_to_do(value: bytes) -> None:
    with pytest.raises(LedgerUnreadable, match="nothing was changed; look at the record"):
        from_bytes(value)


def test_no_two_notes_of_different_meaning_have_one_key() -> None:
    others: list[Note] = [*NOTES, Mending("pipe:1", WHO, ())]

    assert len({note_key(b"pipe", note) for note in others}) == len(others)


def test_a_newer_note_of_the_same_meaning_has_the_same_key() -> None:
    assert note_key(b"pipe", Mending("pipe:0", WHO, ())) == note_key(b"pipe", NOTES[2])
    assert note_key(b"pipe", Ended("query", 5, 0, 0)) == note_key(b"pipe", NOTES[0])


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_notes_key_is_no_decisions_key_and_no_other_pipelines(note: Note) -> None:
    key = note_key(b"pipe", note)

    assert is_note_of(b"pipe", key)
    assert key != b"pipe"
    assert not is_note_of(b"pip", key)
    assert not is_note_of(b"pipe2", key)


def test_a_decisions_key_is_no_notes() -> None:
    assert not is_note_of(b"pipe", b"pipe") and not is_note_of(b"pipe", None)


def test_the_note_of_an_ended_batch_names_that_decision_and_no_repair_of_it() -> None:
    decision = decision_of([], batch_id=3)

    assert Ended.of_decision(decision) == Ended("query", 3, DECIDED_MS + 3, 0)
    assert Ended.of_decision(decision) != Ended.of_decision(decision_of([], batch_id=3, repaired=1))
