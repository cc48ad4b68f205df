"""What is taken of the metadata of a group's offset, and what is said of it."""

from __future__ import annotations

import json

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.model import GroupOffset, committed


@pytest.mark.parametrize("text", [None, "", "{", "[]", "7", "null", '{"mirrored":true}', "[" * 20_000])
def test_the_text_of_another_client_is_no_claim(text: str | None) -> None:
    assert committed(23, 4, text, "totals") == GroupOffset(23, 4)


@pytest.mark.parametrize("version", [2, "2", None, True, 1.0, "2" * 4_000, [[2] * 1_000]])
def test_the_error_about_another_version_shows_no_more_of_it_than_a_person_reads(version: object) -> None:
    with pytest.raises(OptionsError, match="another version of this connector wrote") as raised:
        committed(23, 4, json.dumps({"kafka_eos": version, "cluster": "c", "topic_id": "t"}), "totals")

    assert len(str(raised.value)) < 600
