"""Each mistake's first line has the reason and the remedy, under the class whose actor can act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core import errors
from tests.mistakes.cases import MISTAKES, SPARKS, Mistake
from tests.mistakes.page import PAGE
from tests.mistakes.scene import Scene, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.embedded]


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with EmbeddedKafka() as broker:
        yield Scene(spark, broker.bootstrap_servers, tmp_path_factory.mktemp("checkpoints"))


SELDOM = {
    "2",
    "3",
    "6",
    "8",
    "9",
    "12",
    "16",
    "18",
    "19",
    "20",
    "21",
    "28",
    "29",
    "34",
    "36",
    "37",
    "40",
    "44",
}
"""Of those whose query has to start and end for it, the ones whose kind another one shows."""


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(each, marks=pytest.mark.long) if each.numbers in SELDOM else each for each in MISTAKES],
    ids=lambda each: f"{each.numbers}: {each.made}",
)
def test_its_first_line_has_the_reason_and_the_remedy(mistake: Mistake, scene: Scene) -> None:
    found = told(lambda: mistake.act(scene))

    if mistake.kind == SPARKS:
        assert found.kind is not None and not hasattr(errors, found.kind)
    else:
        assert found.kind == mistake.kind, found.line
    assert [words for words in mistake.words if words not in found.line] == [], found.line


def test_the_page_has_every_mistake() -> None:
    rows = [line.split(" | ")[:2] for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert rows == [[f"| {each.numbers}", each.made] for each in MISTAKES]
