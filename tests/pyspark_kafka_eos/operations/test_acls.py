"""The rights of a pipeline: as options ask for them, in the words of three tools, and refused where nothing can be
told.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.commit.dataframe_write import named
from pyspark_kafka_eos.operations.acls import needed, of_tenant
from pyspark_kafka_eos.options import SinkOptions

BASE = ("-b", "b1:9092,b2:9092", "-o", "pipeline=pay", "--principal", "User:x y")


def run(*words: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, ["acls", *words])
    assert result.exit_code == 0, result.output
    return result.output


def rights(*words: str) -> dict[tuple[str, str], list[str]]:
    """Resource and name to operations; the prefix has a star."""
    found = json.loads(run(*BASE, *words, "--json"))
    assert found["principal"] == "User:x y"
    return {(each["resource"], each["name"] + "*" * each["prefixed"]): each["operations"] for each in found["acls"]}


LEAST = {
    ("topic", "out"): ["Write"],
    ("transactional-id", "pay:*"): ["Write"],
    ("topic", "exactly-once-ledger"): ["Read", "Write"],
    ("group", "pay"): ["Read"],
    ("topic", "src"): ["Read"],
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-o", "topic=out", "--source", "src"), LEAST),
        (("--output", "out", "--source", "src"), LEAST),
        (
            ("-o", "topic=out", "--source", "src", "--create", "-o", "transaction.scope=batch", "-o", "ledger.topic=led"),
            {
                ("topic", "out"): ["Write"], ("transactional-id", "pay:*"): ["Write"],
                ("topic", "led"): ["Read", "Write", "Create"], ("topic", "led-turns"): ["Read", "Write", "Create"],
                ("group", "pay"): ["Read"], ("topic", "src"): ["Read"],
            },
        ),
        (
            ("-o", "topic=out", "-o", "offsets.group=", "-o", "dead.letter.topic=bad"),
            {
                ("topic", "out"): ["Write"], ("topic", "bad"): ["Write"], ("transactional-id", "pay:*"): ["Write"],
                ("topic", "exactly-once-ledger"): ["Read", "Write"],
            },
        ),
        (("-o", "topic=out", "-o", "delivery.guarantee=at-least-once"), {("topic", "out"): ["Write"]}),
        (
            ("-o", "topic=out", "--source", "src", "--doctor"),
            {
                ("topic", "out"): ["Write", "Read", "DescribeConfigs"], ("transactional-id", "pay:*"): ["Write"],
                ("topic", "exactly-once-ledger"): ["Read", "Write", "DescribeConfigs"], ("group", "pay"): ["Read"],
                ("topic", "src"): ["Read", "DescribeConfigs"], ("cluster", "kafka-cluster"): ["DescribeConfigs"],
            },
        ),
    ],
)  # fmt: skip
def test_the_rights_are_those_that_the_options_ask_for(
    words: tuple[str, ...], expected: dict[tuple[str, str], list[str]]
) -> None:
    assert rights(*words) == expected


def test_a_jobs_file_gives_sources_too(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    body = {
        "kafka": {"bootstrap.servers": "b:9092"}, "sink": {"pipeline": "pay", "topic": "out"},
        "source": {"subscribe": "one,two"},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(body))

    found = json.loads(run("-c", str(file), "--json"))["acls"]
    only_reads = tmp_path / "reads.yaml"
    only_reads.write_text(yaml.safe_dump({"kafka": {"bootstrap.servers": "b:9092"}, "source": {"subscribe": "one"}}))
    read = json.loads(run("-c", str(only_reads), "--json"))["acls"]

    assert {each["name"] for each in found} == {"out", "pay:", "exactly-once-ledger", "pay", "one", "two"}
    assert [(each["name"], each["operations"]) for each in read] == [("one", ["Read"])]


def test_what_the_options_do_not_tell_is_said(tmp_path: Path) -> None:
    said = json.loads(run(*BASE, "--json"))["unknown"]
    assert len(said) == 2 and "--output" in said[0] and "--source" in said[1]

    assert run(*BASE).count("# not known from the options: ") == 2


def test_the_commands_of_kafkas_tool_can_be_pasted() -> None:
    lines = [each for each in run(*BASE, "-o", "topic=out", "-o", "offsets.group=it's").splitlines() if each[0] != "#"]

    words = [shlex.split(each) for each in lines]
    assert all(each[:3] == ["kafka-acls", "--bootstrap-server", "b1:9092,b2:9092"] for each in words)
    assert all(each[5:8] == ["--add", "--allow-principal", "User:x y"] for each in words)
    assert [each[8:] for each in words] == [
        ["--operation", "Write", "--topic", "out"],
        ["--operation", "Write", "--transactional-id", "pay:", "--resource-pattern-type", "prefixed"],
        ["--operation", "Read", "--operation", "Write", "--topic", "exactly-once-ledger"],
        ["--operation", "Read", "--group", "it's"],
    ]


def test_strimzis_user_has_the_same_rights() -> None:
    user = yaml.safe_load(run(*BASE, "-o", "topic=out", "--source", "src", "--doctor", "--for", "strimzi"))

    acls = user["spec"]["authorization"]["acls"]
    found = {
        (each["resource"]["type"], each["resource"].get("name", "kafka-cluster")
         + "*" * (each["resource"].get("patternType") == "prefix")): each["operations"]
        for each in acls
    }  # fmt: skip
    wanted = rights("-o", "topic=out", "--source", "src", "--doctor")
    assert found == {(kind.replace("al-id", "alId"), name): each for (kind, name), each in wanted.items()}
    assert (user["kind"], user["metadata"]["name"]) == ("KafkaUser", "x y")


def test_confluents_commands_have_the_same_rights() -> None:
    lines = [each for each in run(*BASE, "-o", "topic=out", "--for", "confluent").splitlines() if each[0] != "#"]

    assert lines[1:3] == [
        "confluent kafka acl create --allow --principal 'User:x y' --operations write --transactional-id pay: --prefix",
        "confluent kafka acl create --allow --principal 'User:x y' --operations read,write --topic exactly-once-ledger",
    ]


@pytest.mark.parametrize("principal", ["alice", ":x", "User:", "User:a\nb"])
def test_a_principal_that_is_none_is_wrong_usage(principal: str) -> None:
    result = CliRunner().invoke(app, ["acls", "-b", "b:9092", "-o", "pipeline=p", "--principal", principal])

    assert result.exit_code == 2 and "User:alice" in result.output


def test_a_write_of_a_dataframe_without_a_pipeline_gets_the_prefix_of_the_made_up_names() -> None:
    words = ("-b", "b1:9092", "-o", "topic=out", "--df-write", "--principal", "User:x", "--json")

    found = json.loads(run(*words))

    assert [(each["resource"], each["name"], each["prefixed"], each["operations"]) for each in found["acls"]] == [
        ("topic", "out", False, ["Write"]),
        ("transactional-id", "df.write::", True, ["Write"]),
        ("topic", "exactly-once-ledger", False, ["Read", "Write"]),
    ]
    assert found["unknown"] == []
    name = named(SinkOptions.parse({"kafka.bootstrap.servers": "b1:9092", "topic": "out"}, "batch")).pipeline
    assert name.startswith("df.write::") and name != "df.write::"


def test_a_write_of_a_dataframe_with_a_pipeline_commits_no_offsets() -> None:
    found = rights("-o", "topic=out", "--df-write")

    assert set(found) == {
        ("topic", "out"), ("transactional-id", "pay:*"), ("topic", "exactly-once-ledger"),
    }  # fmt: skip


def test_without_the_flag_a_pipeline_is_asked_for() -> None:
    result = CliRunner().invoke(app, ["acls", "-b", "b1:9092", "-o", "topic=out"])

    assert result.exit_code == 2
    assert "pipeline is missing" in result.output


# ---- tenants


def test_a_tenant_has_what_begins_with_its_name_and_a_dot() -> None:
    found = json.loads(run("-b", "b1:9092", "--tenant", "acme", "--create", "--principal", "User:acme", "--json"))

    assert [(each["resource"], each["name"], each["prefixed"], each["operations"]) for each in found["acls"]] == [
        ("topic", "acme.", True, ["Read", "Write", "Create"]),
        ("transactional-id", "acme.", True, ["Write"]),
        ("group", "acme.", True, ["Read"]),
    ]
    assert "ledger.topic=acme.ledger" in found["acls"][0]["why"]


TENANTS = st.text("abAB01_-", min_size=1, max_size=6)
MEMBERS = st.text("abAB01_.-", min_size=1, max_size=8)


@given(TENANTS, TENANTS, MEMBERS)
def test_no_tenants_prefix_opens_another_ones_names(one: str, other: str, member: str) -> None:
    assume(one != other)
    theirs = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "b:1",
            "topic": "t",
            "pipeline": f"{other}.{member}",
            "ledger.topic": f"{other}.ledger",
        }
    )
    names = needed(theirs, None, outputs=[f"{other}.out"]).acls
    opened = [each.name for each in of_tenant(one).acls if each.prefixed]

    mine = [each.name for each in names if each.name != "t"]
    assert not any(name.startswith(prefix) for name in mine for prefix in opened)
    assert all(name.startswith(f"{other}.") for name in mine)


@pytest.mark.parametrize("name", ["", "acme.eu", "a b", "x" * 61, "acme.", "é"])
def test_a_tenant_whose_names_could_begin_anothers_is_wrong_usage(name: str) -> None:
    result = CliRunner().invoke(app, ["acls", "-b", "b:9092", "--tenant", name])

    assert result.exit_code == 2 and "no dot" in " ".join(result.output.split())


def test_a_ledger_that_is_not_the_tenants_is_not_passed_over() -> None:
    result = CliRunner().invoke(app, ["acls", "-b", "b:9092", "--tenant", "acme", "-o", "ledger.topic=other.ledger"])

    assert result.exit_code == 2
    said = " ".join((result.output + result.stderr).split())
    assert "--tenant grants the ledger acme.ledger, and ledger.topic='other.ledger' is another one" in said


@pytest.mark.parametrize("words", [("-o", "pipeline=p"), ("--output", "t"), ("--source", "s"), ("--df-write",)])
def test_a_tenant_stands_alone(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["acls", "-b", "b:9092", "--tenant", "acme", *words])

    assert result.exit_code == 2 and "--tenant is for all pipelines" in " ".join(result.output.split())
