"""The tree of errors: every class crosses a process border unharmed, as Spark carries errors that way."""

from __future__ import annotations

import pickle

import pytest

from kafka_core.errors import ExactlyOnceError, Fact


def tree(root: type[ExactlyOnceError]) -> list[type[ExactlyOnceError]]:
    """`root` and everything below it, as declared in the package."""
    found = [root]
    for child in root.__subclasses__():
        found += [
            error
            for error in tree(child)
            if error.__module__.startswith(("kafka_core.", "pyspark_kafka_eos.", "embedded_kafka."))
        ]
    return found


FACTS: dict[str, Fact] = {
    "slot": 3,
    "topic": "out",
    "ratio": 0.5,
    "lost": None,
    "sealed": True,
    "ids": ("a", (1, 2)),
}
EVERY_ERROR = pytest.mark.parametrize("error_class", tree(ExactlyOnceError), ids=lambda error: error.__name__)


def test_the_tree_is_found() -> None:
    assert len(tree(ExactlyOnceError)) > 15


@EVERY_ERROR
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_pickles_to_an_equal_one_with_its_facts(error_class: type[ExactlyOnceError], protocol: int) -> None:
    error = error_class("what happened and what to do", FACTS)

    arrived = pickle.loads(pickle.dumps(error, protocol))

    assert type(arrived) is error_class
    assert arrived == error
    assert arrived.facts == FACTS
    assert arrived.message == "what happened and what to do"
    assert str(arrived) == str(error)
    assert hash(arrived) == hash(error)


@EVERY_ERROR
def test_every_error_names_who_acts_and_says_why_it_exists(error_class: type[ExactlyOnceError]) -> None:
    assert error_class.who_acts
    assert "__doc__" in vars(error_class) and error_class.__doc__


@EVERY_ERROR
def test_every_error_shows_its_facts_by_role(error_class: type[ExactlyOnceError]) -> None:
    assert str(error_class("no room", {"slot": 3, "limit_bytes": 10})) == "no room [slot=3, limit_bytes=10]"
    assert str(error_class("no room")) == "no room"


def test_errors_differ_by_class_message_or_facts() -> None:
    first, second, *_ = tree(ExactlyOnceError)

    assert first("m", FACTS) != second("m", FACTS)
    assert first("m", FACTS) != first("n", FACTS)
    assert first("m", FACTS) != first("m", {**FACTS, "slot": 4})


def test_facts_given_to_an_error_are_copied() -> None:
    facts: dict[str, Fact] = {"slot": 3}
    error = ExactlyOnceError("m", facts)

    facts["slot"] = 4

    assert error.facts == {"slot": 3}
