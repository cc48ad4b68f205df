"""`kafka-eos transactions`: what a killed run left, said in words, and ended the only way that is right."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer

from embedded_kafka.embedded import EmbeddedKafka
from tests.pyspark_kafka_eos.cli.cli_tools import (
    Answer,
    call,
    committed,
    killed,
    name_of,
    shown,
    states,
    views,
)
from tests.pyspark_kafka_eos.cli.conftest import Denying
from tests.pyspark_kafka_eos.cli.processes import kafka_eos
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import following, high_watermarks, last_stable_offsets, put
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.pyspark_kafka_eos.commit.whole_batch.test_whole_batch import run_killed
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def rows(answer: Answer) -> dict[str, dict[str, Any]]:
    """Last part of each id -> its row."""
    return {each["part"]: each for each in answer.document["transactions"]}


def outcomes(answer: Answer) -> dict[str, str]:
    return {each["transactional_id"].rpartition(":")[2]: each["outcome"] for each in answer.document["done"]}


# ---- looking


def test_undecided_leftovers_are_listed_with_what_waits_for_them(broker: AnyKafka) -> None:
    settings = killed(broker, "before-decision")
    topic = settings["options"]["topic"]

    answer = call(broker, "transactions", "list", name_of(settings))

    assert answer.code == 0
    slots = [rows(answer)[str(number)] for number in range(3)]
    assert {each["state"] for each in slots} == {"Ongoing"}
    assert all(each["decided_batch"] is None and each["open_for_ms"] >= 0 for each in slots)
    waiting = [hold for each in slots for hold in each["holds"] if hold["readers_wait_for_it"]]
    # One of them is the first in each partition, at the offset where readers of committed records stop.
    assert sorted((each["partition"], each["open_from"]) for each in waiting) == list(
        enumerate(last_stable_offsets(broker, topic))
    )
    assert [each["end_offset"] for each in sorted(waiting, key=lambda each: each["partition"])] == high_watermarks(
        broker, topic
    )


def test_explain_tells_decided_from_undecided_and_what_the_next_run_does(broker: AnyKafka) -> None:
    decided = killed(broker, "ends-arrived:1")
    undecided = killed(broker, "before-decision", following(committed(broker)))

    of_decided = call(broker, "transactions", "explain", name_of(decided))
    of_undecided = call(broker, "transactions", "explain", name_of(undecided))

    assert of_decided.code == 1
    assert rows(of_decided)["0"]["story"] == "committed, as decided (batch 0)"
    assert "decided (batch 0) and not ended" in rows(of_decided)["2"]["story"]
    assert "The next run commits it" in rows(of_decided)["2"]["story"]
    assert of_undecided.code == 0
    assert "open and not decided" in rows(of_undecided)["0"]["story"]
    assert "aborts it and retries the batch" in rows(of_undecided)["0"]["story"]


def test_explain_says_that_only_a_run_can_bring_back_a_decided_slot_that_was_aborted(
    broker: AnyKafka,
) -> None:
    settings = killed(broker, "before-end")
    abort_slot(broker, settings, 1)

    answer = call(broker, "transactions", "explain", name_of(settings))

    assert answer.code == 1
    assert rows(answer)["1"]["decided_outcome"] == "aborted"
    assert "the broker aborted it" in rows(answer)["1"]["story"]
    assert "writes them again" in rows(answer)["1"]["story"]


def test_looking_changes_nothing(kafka: AnyKafka) -> None:
    settings = killed(kafka, "before-end")
    before = views(kafka, settings)

    for command in ("list", "explain"):
        call(kafka, "transactions", command, name_of(settings))
        shown(kafka, "transactions", command)

    assert views(kafka, settings) == before
    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 0}


# ---- commit


def test_commit_ends_what_is_decided_and_the_next_run_finds_it_done(broker: AnyKafka) -> None:
    settings = killed(broker, "ends-arrived:1")

    answer = call(broker, "transactions", "commit", name_of(settings), "--yes")

    assert answer.code == 0
    assert outcomes(answer) == {"0": "unchanged", "1": "committed", "2": "committed"}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_commit_refuses_what_is_not_decided_and_leaves_it_open(broker: AnyKafka) -> None:
    settings = killed(broker, "before-decision", following(committed(broker)))
    before = views(broker, settings)

    of_all = call(broker, "transactions", "commit", name_of(settings), "--yes")
    driver = call(broker, "transactions", "commit", name_of(settings), "--yes", "--id", f"{name_of(settings)}:driver")

    # The batch before is committed; the open one, under the same ids, is not touched by that, and what may be done is
    # said.
    assert (of_all.code, outcomes(of_all)) == (1, dict.fromkeys("012", "refused"))
    for each in of_all.document["done"]:
        assert "batch 0 is committed already" in each["detail"]
        assert "open and not decided" in each["detail"]
        assert "`transactions abort` aborts it now" in each["detail"]
    assert (driver.code, outcomes(driver)) == (1, {"driver": "refused"})
    assert views(broker, settings) == before
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_commit_refuses_an_open_slot_of_a_pipeline_that_never_decided_anything(kafka: AnyKafka) -> None:
    settings = killed(kafka, "before-decision")

    answer = call(kafka, "transactions", "commit", name_of(settings), "--yes", "--id", f"{name_of(settings)}:1")

    assert (answer.code, outcomes(answer)) == (1, {"1": "refused"})
    assert states(kafka, settings)["1"] == "Ongoing"
    assert read_all(kafka, settings["options"]["topic"]) == Counter()


def test_commit_refuses_a_decided_slot_that_the_broker_aborted(broker: AnyKafka) -> None:
    settings = killed(broker, "before-end")
    abort_slot(broker, settings, 1)

    answer = call(broker, "transactions", "commit", name_of(settings), "--yes")

    assert answer.code == 1
    assert outcomes(answer) == {"0": "committed", "1": "refused", "2": "committed"}
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@pytest.mark.embedded
def test_an_end_that_is_refused_is_reported_as_unknown_and_can_be_asked_again(
    kafka: AnyKafka, denying: Denying
) -> None:
    settings = killed(kafka, "before-end")
    denying("WRITE", "TRANSACTIONAL_ID", f"{name_of(settings)}:1")

    answer = call(kafka, "transactions", "commit", name_of(settings), "--yes")

    assert answer.code == 3
    assert outcomes(answer) == {"0": "committed", "1": "unknown", "2": "committed"}
    assert states(kafka, settings)["1"] == "Ongoing"
    assert isinstance(kafka, EmbeddedKafka)
    kafka.allow_all()
    again = call(kafka, "transactions", "commit", name_of(settings), "--yes")
    assert outcomes(again) == {"0": "unchanged", "1": "committed", "2": "unchanged"}
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


def test_commit_lists_what_is_open_and_undecided_and_what_may_be_done(kafka: AnyKafka) -> None:
    """Readers wait for it, and a commit does not help them: an operator who is told "nothing to do" believes that all
    is well.
    """
    settings = killed(kafka, "before-decision")
    name, topic = name_of(settings), settings["options"]["topic"]
    before = last_stable_offsets(kafka, topic)

    ended = kafka_eos(kafka, "transactions", "commit", name, "--yes")
    followed = kafka_eos(kafka, "transactions", "abort", name, "--yes")

    assert ended.code == 1
    assert all(f"{name}:{slot}" in ended.out for slot in range(3))
    assert "open and not decided" in ended.text
    assert f"Readers wait for it in {topic}-0 at offset {before[0]}" in ended.text
    assert "The next run aborts it and retries the batch" in ended.text
    assert "`transactions abort` aborts it now" in ended.text
    assert followed.code == 0
    assert last_stable_offsets(kafka, topic) == high_watermarks(kafka, topic)


# ---- who makes readers wait


def test_the_list_says_who_holds_a_topic_other_applications_too(kafka: AnyKafka) -> None:
    settings, elsewhere = killed(kafka, "before-decision"), killed(kafka, "before-decision")
    topic = settings["options"]["topic"]
    committed(kafka)
    stranger = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"app-{topic}"})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(topic, value=b"held", partition=0)
    assert stranger.flush(30) == 0

    ended = kafka_eos(kafka, "transactions", "list", "--topic", topic, "--json")
    of_one = call(kafka, "transactions", "list", name_of(settings), "--topic", topic)
    stranger.abort_transaction(30)

    found = {each["transactional_id"]: each for each in ended.document["transactions"]}
    own = {f"{name_of(settings)}:{slot}" for slot in range(3)}
    assert (ended.code, set(found)) == (0, own | {f"app-{topic}"})
    assert all(found[name]["holds"] for name in found)
    assert (found[f"app-{topic}"]["pipeline"], found[f"app-{topic}"]["part"]) == (None, None)
    assert "another application" in found[f"app-{topic}"]["story"]
    assert {each["transactional_id"] for each in of_one.document["transactions"]} == own
    assert name_of(elsewhere) not in ended.out


def test_a_pipeline_whose_decision_cannot_be_read_hides_no_other(kafka: AnyKafka) -> None:
    broken, good = committed(kafka), killed(kafka, "before-decision")
    put(kafka, broken, b"garbage")

    for command in ("list", "explain"):
        answer = call(kafka, "transactions", command)

        shown_ids = {each["transactional_id"] for each in answer.document["transactions"]}
        assert answer.code == 1
        assert f"{name_of(good)}:0" in shown_ids
        assert f"{name_of(broken)}:0" not in shown_ids
        (problem,) = [each for each in answer.document["problems"] if each["pipeline"] == name_of(broken)]
        assert "is not a decision" in problem["problem"]
    assert "is not a decision" in shown(kafka, "transactions", "list")[1]
    assert call(kafka, "transactions", "list", name_of(broken)).document["error"]["class"] == "LedgerUnreadable"


def test_the_list_shows_only_what_is_open_where_that_is_asked_for(kafka: AnyKafka) -> None:
    settings = killed(kafka, "ends-arrived:1")
    committed(kafka)

    everything = call(kafka, "transactions", "list", name_of(settings))
    only_open = call(kafka, "transactions", "list", name_of(settings), "--open")

    assert {"driver", "0", "1", "2"} <= set(rows(everything))
    own = [each["part"] for each in only_open.document["transactions"] if each["pipeline"] == name_of(settings)]
    assert own == ["1", "2"]
    assert all(each["open_for_ms"] is not None or each["holds"] for each in only_open.document["transactions"])


# ---- abort and fence


@pytest.mark.parametrize("command", ["abort", "fence"])
def test_what_is_not_decided_is_ended_and_readers_go_on(broker: AnyKafka, command: str) -> None:
    settings = killed(broker, "before-decision")
    topic = settings["options"]["topic"]
    assert last_stable_offsets(broker, topic) != high_watermarks(broker, topic)

    answer = call(broker, "transactions", command, name_of(settings), "--yes")

    assert answer.code == 0
    ended = {"abort": "aborted", "fence": "fenced"}[command]
    # A run of either scope has both ids; the one of scope=batch has nothing open that could be aborted.
    whole = {"batch": "fenced"} if command == "fence" else {}
    assert outcomes(answer) == {"driver": "fenced", "0": ended, "1": ended, "2": ended, **whole}
    assert last_stable_offsets(broker, topic) == high_watermarks(broker, topic)
    assert read_all(broker, topic) == Counter()
    assert run_child(settings).report["resumed"] is False
    assert read_all(broker, topic) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@pytest.mark.parametrize("command", ["abort", "fence"])
@pytest.mark.parametrize("point", ["turn-passed", "decision-written"])
def test_a_batch_in_one_transaction_that_is_not_decided_is_ended_too(
    broker: AnyKafka, command: str, point: str
) -> None:
    settings = settings_for(broker)
    assert run_killed(settings, point).exitcode == -signal.SIGKILL

    answer = call(broker, "transactions", command, name_of(settings), "--yes")

    assert answer.code == 0
    assert outcomes(answer) == {"driver": "fenced", "batch": {"abort": "aborted", "fence": "fenced"}[command]}
    topic = settings["options"]["topic"]
    assert last_stable_offsets(broker, topic) == high_watermarks(broker, topic)
    assert read_all(broker, topic) == Counter()
    assert run_batch(settings)["resumed"] is False
    assert read_all(broker, topic) == EXPECTED


def test_a_run_of_scope_batch_that_is_at_work_is_fenced(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    with held_at("before-decision", settings, run_batch) as run:
        answer = call(broker, "transactions", "fence", name_of(settings), "--yes")
        error = run.release().report["error"]

    assert outcomes(answer) == {"driver": "fenced", "batch": "fenced"}
    assert error.startswith("ProducerFenced")
    assert read_all(broker, settings["options"]["topic"]) == Counter()


@pytest.mark.parametrize("command", ["abort", "fence"])
def test_what_is_decided_is_refused_and_stays_as_it_is(broker: AnyKafka, command: str) -> None:
    settings = killed(broker, "ends-arrived:1")

    answer = call(broker, "transactions", command, name_of(settings), "--yes")

    assert answer.code == 1
    assert (outcomes(answer)["1"], outcomes(answer)["2"]) == ("refused", "refused")
    assert states(broker, settings)["2"] == "Ongoing"
    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_what_is_said_of_the_driver_does_not_contradict_what_is_said_of_its_slots(kafka: AnyKafka) -> None:
    settings = killed(kafka, "ends-arrived:1")

    ended = kafka_eos(kafka, "transactions", "fence", name_of(settings), "--yes")

    assert ended.code == 1
    assert "a run that was at work stops: it decides nothing from here on" in ended.text
    assert "batch 0 is decided, so it may only be committed: `transactions commit` does" in ended.text
    # Nobody says of a decided batch that nothing of it is.
    assert "is decided" not in ended.text.replace("batch 0 is decided", "")


def test_a_run_about_to_decide_is_fenced_before_its_slots_are_aborted(broker: AnyKafka) -> None:
    """Without that it could decide between the look at the ledger and the abort, and a decided slot would be lost."""
    settings = settings_for(broker)

    with held_at("before-decision", settings) as run:
        answer = call(broker, "transactions", "abort", name_of(settings), "--yes")
        error = run.release().report["error"]

    assert outcomes(answer) == {"driver": "fenced", "0": "aborted", "1": "aborted", "2": "aborted"}
    assert error.startswith("ProducerFenced")
    assert read_all(broker, settings["options"]["topic"]) == Counter()
    assert run_child(settings).report["resumed"] is False
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_a_run_that_has_decided_ends_its_slots_although_somebody_wanted_them_aborted(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)

    with held_at("before-end", settings) as run:
        answer = call(kafka, "transactions", "abort", name_of(settings), "--yes")
        report = run.release().report

    assert {outcomes(answer)[slot] for slot in "012"} == {"refused"}
    assert (report["batch"], report["repaired"]) == (0, 0)
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


# ---- asking first


@pytest.mark.parametrize("command", ["commit", "abort", "fence"])
def test_without_a_yes_nothing_is_changed(kafka: AnyKafka, command: str) -> None:
    settings = killed(kafka, "before-decision")
    before = views(kafka, settings)

    code, text = shown(kafka, "transactions", command, name_of(settings), answer="n\n")
    asked_nothing = call(kafka, "transactions", command, name_of(settings))

    assert code == 1
    assert name_of(settings) in text
    assert "nothing was changed" in text
    assert asked_nothing.code == 2
    assert "--yes" in asked_nothing.document["error"]["message"]
    assert views(kafka, settings) == before


def test_an_id_of_another_pipeline_is_refused(kafka: AnyKafka) -> None:
    settings = killed(kafka, "before-decision")

    answer = call(kafka, "transactions", "abort", "another", "--yes", "--id", f"{name_of(settings)}:0")

    assert answer.code == 2
    assert states(kafka, settings)["0"] == "Ongoing"
