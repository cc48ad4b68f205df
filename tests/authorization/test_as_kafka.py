"""Clients with every kind of right are told by the embedded broker what Apache Kafka's authorizer tells them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from embedded_kafka import apis
from kafka_core.protocol.error_codes import Code
from tests.authorization import play
from tests.authorization.known import KNOWN, differences, unknown
from tests.authorization.questions import questions
from tests.differential.wire import codes


@pytest.mark.kafka
@pytest.mark.parity
def test_every_right_opens_what_it_opens_on_apache_kafka() -> None:
    """Every API of the embedded broker, asked by each client of `grants`. A name that an answer gives away counts."""
    embedded, real = play.tables()
    found = unknown(embedded, real)
    assert not found, "\n".join(f"{cell}: {why}" for cell, why in list(found.items())[:20])
    assert {label for (_, label) in differences(embedded, real)} == KNOWN.keys()
    # Whoever has no right is refused nearly everything; so the questions do reach what is guarded.
    asked = [label for name, label in real if name == "nothing"]
    refused = [label for label in asked if Code.NONE not in codes(real["nothing", label])]
    assert len(refused) > 0.8 * len(asked)


def test_every_api_that_is_guarded_is_asked() -> None:
    """A new API has to be added to `questions`; its version too, where the versions differ in what they show."""
    served = {name for name in _modules(apis.__path__) if name not in NOT_GUARDED}
    asked = {_snake(question.api) for question in questions()}
    assert asked == served
    assert len({question.label for question in questions()}) == len(list(questions()))


NOT_GUARDED = {
    "__init__", "api_versions", "sasl_authenticate", "sasl_handshake",
    # No APIs: what several of them share.
    "group_rights", "offset_requests", "subscribed",
}  # fmt: skip


def _modules(path: Iterable[str]) -> set[str]:
    return {each.stem for folder in path for each in Path(folder).glob("*.py")}


def _snake(api: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).lstrip("_")


def test_a_name_that_is_given_away_shows() -> None:
    """The comparison itself: an error's text that names what the client did not ask for."""
    things = play.things_of("u001")
    answer = {"error_code": int(Code.TOPIC_AUTHORIZATION_FAILED), "error_message": "no right on u001-doomed"}
    assert play.told(answer, things, {"topics": []})["error_message"] == "gives away a name"
    assert "error_message" not in play.told(answer, things, {"topics": [{"name": "u001-doomed"}]})
