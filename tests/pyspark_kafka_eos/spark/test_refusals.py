"""What of an error's traceback Spark gets to print."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    DataLoss,
    ExactlyOnceError,
    OptionsError,
    UnknownTopic,
)
from pyspark_kafka_eos.spark.refusals import each_sentence_first, sentence_first


def _deep(error: ExactlyOnceError) -> None:
    raise error


def _frames(call: Callable[[], object]) -> list[str]:
    with pytest.raises(ExactlyOnceError) as caught:
        call()
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize("kind", [OptionsError, UnknownTopic, DataLoss, AuthorizationFailed])
def test_what_a_person_has_to_act_on_leaves_a_step_without_the_frames_below_it(
    kind: type[ExactlyOnceError],
) -> None:
    step = sentence_first(lambda: _deep(kind("what, why, what to do")))
    assert "_deep" not in _frames(step)


def test_where_only_the_frames_tell_where_they_are_kept() -> None:
    step = sentence_first(lambda: _deep(BrokerUnavailable("no answer")))
    assert "_deep" in _frames(step)


def test_what_a_step_yields_is_passed_on_and_its_late_refusal_has_no_frames_below_either() -> None:
    def rows() -> Iterator[int]:
        yield 1
        _deep(DataLoss("records are gone"))

    found: list[int] = []
    assert "_deep" not in _frames(lambda: found.extend(each_sentence_first(rows())))
    assert found == [1]
