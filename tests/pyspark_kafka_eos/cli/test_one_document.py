"""With `--json` a command prints one document, whatever happens, and ends with the code that stands in it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pyspark_kafka_eos.cli import main
from tests.pyspark_kafka_eos.cli.processes import WITHIN_S, in_process, kafka_eos

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]
"""Most of these need no broker, but a process each."""

WRONG_USAGE = {
    "doctor": ["doctor", "--json", "--nonsense"],
    "ledger": ["ledger", "--last", "0", "--json"],
    "transactions list": ["transactions", "list", "a", "b", "--json"],
    "transactions": ["transactions", "kommit", "--json"],
    "": ["docter", "--json"],
    "transactions fence": ["transactions", "fence", "p", "--json", "--id"],
}
"""Command -> words that are no use of it."""


def test_wrong_usage_is_one_document_with_the_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    first = next(iter(WRONG_USAGE))
    found = {first: kafka_eos(None, *WRONG_USAGE[first])}
    found |= {command: in_process(capsys, None, *words) for command, words in WRONG_USAGE.items()}

    for command, ended in found.items():
        document = ended.document
        assert (ended.code, document["command"], ended.err) == (2, command, "")
        assert document["error"]["class"] == "OptionsError"
        assert document["error"]["message"]


def test_wrong_usage_without_json_is_for_people_and_on_standard_error() -> None:
    ended = kafka_eos(None, "doctor", "--nonsense")

    assert (ended.code, ended.out) == (2, "")
    assert "--nonsense" in ended.err


def test_a_brokers_address_where_nobody_listens_is_one_document_of_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nobody = ["-b", "127.0.0.1:9", "-o", "kafka.max.block.ms=200", "--json"]
    looks = (["ledger"], ["verify"], ["transactions", "list"], ["transactions", "explain"])
    changes = [["transactions", each, "p", "--yes"] for each in ("commit", "abort", "fence")]

    doctor = kafka_eos(None, "doctor", "p", "-o", "topic=t", *nobody)
    others = {
        words[1] if words[1:] else words[0]: in_process(capsys, None, *words, *nobody) for words in (*looks, *changes)
    }

    assert (doctor.code, doctor.document["command"]) == (1, "doctor")
    for name, ended in others.items():
        assert (ended.code, ended.document["command"].split()[-1]) == (3, name)
        assert ended.document["error"]["class"] == "BrokerUnavailable"


def test_without_the_extra_it_is_a_document_too() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; from pyspark_kafka_eos.cli import main; sys.exit(main(sys.argv[1:]))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )  # fmt: skip

    document = json.loads(ended.stdout)
    assert (ended.returncode, document["exit_code"]) == (2, 2)
    assert "pip install" in document["error"]["message"]


def test_a_defect_of_this_package_is_a_document_too_and_its_story_is_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of this test")

    monkeypatch.setattr("pyspark_kafka_eos.cli.parameters.gather", broken)

    code = main(["ledger", "--json"])

    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (code, document["exit_code"], document["command"]) == (1, 1, "ledger")
    assert document["error"]["who_acts"] == "the maintainers of this package"
    assert "ZeroDivisionError: of this test" in printed.err
