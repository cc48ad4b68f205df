"""The forms that outlive a process: today's bytes are the golden ones, they are read back, and a higher version is
refused.
"""

from __future__ import annotations

import re

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.commit.ledger.notes import NOTE_VERSION, Note
from pyspark_kafka_eos.model import LEDGER_FORMAT_VERSION
from pyspark_kafka_eos.model.group_offset import committed
from pyspark_kafka_eos.slot.turn_log import TURN_FORMAT_VERSION
from pyspark_kafka_eos.spark.offset_json import OFFSETS_VERSION
from tests.formats.kept import GOLDEN, KEPT, Kept

EVERY = pytest.mark.parametrize("kept", KEPT, ids=[kept.name for kept in KEPT])


@EVERY
def test_what_is_written_today_is_the_golden_file(kept: Kept) -> None:
    assert kept.written() == kept.golden


@EVERY
def test_the_golden_file_is_read_as_what_was_written(kept: Kept) -> None:
    assert kept.read(kept.golden) == kept.value


@EVERY
def test_a_version_more_is_refused_with_who_must_act(kept: Kept) -> None:
    newer = kept.raised(kept.golden)
    assert newer != kept.golden

    with pytest.raises(kept.refused, match=re.escape(kept.says)):
        kept.read(newer)


def test_nothing_is_released_so_every_format_is_at_its_first_version() -> None:
    assert (LEDGER_FORMAT_VERSION, NOTE_VERSION, TURN_FORMAT_VERSION, OFFSETS_VERSION) == (1, 1, 1, 1)


def test_every_golden_file_is_of_a_form_and_every_kind_of_note_has_one() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {kept.name for kept in KEPT}
    assert {type(kept.value) for kept in KEPT} >= set(Note.__args__)


@pytest.mark.parametrize("version", ["1.0", "true", '"1"'])
def test_a_version_that_is_no_whole_number_is_another_one(version: str) -> None:
    with pytest.raises(OptionsError, match="metadata in format"):
        committed(23, 4, f'{{"kafka_eos":{version},"cluster":"c","topic_id":"t"}}', "totals")
