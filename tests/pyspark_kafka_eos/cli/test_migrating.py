"""`kafka-eos migrate-options`: one document, exit code 2 where an option is refused, no broker needed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from pyspark_kafka_eos.cli.app import app


def run(text: str, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    result = CliRunner().invoke(app, ["migrate-options", *words], input=text, env={"COLUMNS": "300"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_options_that_all_have_a_place_end_with_0_and_are_shown_to_people() -> None:
    code, out, _ = run('{"bootstrap.servers": "b:9092", "topic": "t", "linger.ms": 5, "acks": "all"}')

    assert code == 0
    (dropped,) = [line.split()[1] for line in out.splitlines() if line.startswith("dropped")]
    assert dropped == "kafka.linger.ms"
    assert "3 to use, 1 dropped, 2 missing, 0 refused" in out


def test_a_refused_option_ends_with_2_and_its_reason() -> None:
    code, out, _ = run('{"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "kafka.x": 1}', "--json")

    document = json.loads(out)
    assert (code, document["exit_code"], document["side"]) == (2, 2, "source")
    assert document["options"] == {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    (refused,) = document["refused"]
    assert refused["names"] == ["kafka.x"]
    assert "not a known option" in refused["why"]


def test_the_side_can_be_given() -> None:
    code, out, _ = run('{"bootstrap.servers": "b:9092"}', "--side", "source", "--json")

    assert code == 2  # nothing names the topics
    assert json.loads(out)["side"] == "source"


@pytest.mark.parametrize("text", ["", "{", "[1]", '"kafka"', '{"a": ["HIDDEN"]}', '{"a": null}', "password=HIDDEN"])
def test_what_is_no_object_of_values_is_wrong_usage_and_not_repeated(text: str) -> None:
    code, out, _ = run(text, "--json")

    document = json.loads(out)
    assert (code, document["error"]["class"]) == (2, "OptionsError")
    assert "it must be a JSON object" in document["error"]["message"]
    assert "HIDDEN" not in out


def test_another_side_is_wrong_usage() -> None:
    code, out, _ = run("{}", "--side", "both", "--json")

    assert code == 2
    assert "must be source or sink" in json.loads(out)["error"]["message"]
