"""The name that a misspelt one may stand for."""

from __future__ import annotations

from kafka_core.similar import did_you_mean, similar

NAMES = ("topic", "pipeline", "linger.ms", "transaction.scope", "transaction.rung")


def test_the_nearest_name_is_found_in_any_case_and_shown_as_it_is_spelled() -> None:
    assert similar("PIPELIN", NAMES) == ["pipeline"]
    assert similar("topik", ("TOPIC",)) == ["TOPIC"]


def test_several_are_in_the_order_of_their_similarity() -> None:
    assert similar("transaction.run", NAMES, most=3) == ["transaction.rung", "transaction.scope"]


def test_a_name_like_none_is_asked_nothing_about() -> None:
    assert similar("acks", NAMES) == []
    assert did_you_mean("acks", NAMES) == ""


def test_the_question_stands_behind_a_joint_and_may_name_more_than_one() -> None:
    assert did_you_mean("topik", NAMES) == "; did you mean topic?"
    assert did_you_mean("linger", NAMES, joint=": ", prefix="kafka.") == ": did you mean kafka.linger.ms?"
    assert did_you_mean("transaction.run", NAMES, most=2) == "; did you mean transaction.rung or transaction.scope?"
