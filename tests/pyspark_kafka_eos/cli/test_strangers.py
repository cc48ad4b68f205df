"""Somebody with WRITE on the shared ledger ends no command over all pipelines. In memory.

What cannot be judged of one name is said of that name, and the other pipelines are shown.
Source: docs/tenants.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_core import runtime
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.notes import Moved, SettledInParts, to_bytes
from pyspark_kafka_eos.commit.ledger.parts import Manifest
from pyspark_kafka_eos.commit.ledger.places import LAG_MS
from pyspark_kafka_eos.model import Decision, Seal, SealedPartition
from tests.pyspark_kafka_eos.commit import stranger
from tests.pyspark_kafka_eos.commit.fakes import (
    LEDGER,
    OLDER_IS_SLOW,
    PIPELINE,
    World,
    decision_of,
    skipping_clock,
)
from tests.pyspark_kafka_eos.commit.node_kafka import NodeKafka

EVIL = "evil"


@pytest.fixture(params=OLDER_IS_SLOW)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A pipeline with one batch, which every command finds in order."""
    with skipping_clock(), NodeKafka(request.param) as kafka:
        world = World(kafka)
        monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
        seal = world.slot(0, {0: 1})
        world.decide(decision_of([seal], number=1, writers=()))
        world.end(seal, commit=True)
        world.fresh_process()
        yield world
    crash_points.arm("")


# ---- what he writes


Writes = Callable[[World, bytes, bytes], None]
HOW: list[Writes] = [stranger.plainly, stranger.in_a_transaction_of_his_own]


def decision(**more: Any) -> bytes:
    return Decision(EVIL, "query", 5, **{"seals": (), "number": 6, "decided_ms": 1_000_000_000_000, **more}).to_bytes()


def seal(**more: Any) -> Seal:
    part = SealedPartition(
        more.pop("topic", "out"),
        more.pop("partition", 0),
        more.pop("offset", 0),
        0,
        1,
        None,
        more.pop("leader_epoch", 0),
    )
    fields = {
        "transactional_id": f"{EVIL}:0",
        "slot": 0,
        "identity": ProducerIdentity(77, 1),
        "transaction_version": 2,
        "records": 1,
    }
    return Seal(**{**fields, "partitions": (part,), **more})


WHAT: dict[str, list[tuple[bytes, bytes]]] = {
    "no decision": [(b"evil", b"junk")],
    "a decision of another name": [(b"evil", Decision("other", "query", 0, ()).to_bytes())],
    "a manifest without parts": [(b"evil", Manifest("0" * 64, 1_000_000).to_bytes())],
    "a copy without parts": [(b"evil/settled", to_bytes(SettledInParts(0, ProducerIdentity(77, 0), Manifest("0" * 64, 7))))],
    "partitions that the ledger has not": [(b"evil", decision()), (b"evil/moved", to_bytes(Moved(1_000_000)))],
    "partitions that the ledger has not, alone": [(b"evil/moved", to_bytes(Moved(2**31 - 1)))],
    "a leader that was never there": [(b"evil", decision(seals=(seal(leader_epoch=2**31 - 1),)))],
    "a partition that is not there": [(b"evil", decision(seals=(seal(partition=2**31 - 1),)))],
    "a topic that is not there": [(b"evil", decision(seals=(seal(topic="nowhere"),)))],
    "a topic of Kafka's own": [(b"evil", decision(seals=(seal(topic="__transaction_state"),)))],
    "an offset at the end of numbers": [(b"evil", decision(seals=(seal(offset=2**63 - 1),)))],
    "another pipeline's id": [(b"evil", decision(seals=(seal(transactional_id=f"{PIPELINE}:0"),)))],
    "an id that is none": [(b"evil", decision(seals=(seal(transactional_id="\x00" * 40_000),)))],
    "an empty id": [(b"evil", decision(seals=(seal(transactional_id=""),)))],
    "producer ids at the end of numbers": [(b"evil", decision(seals=(seal(identity=ProducerIdentity(2**63 - 1, 32767)),), writers=(2**63 - 1,)))],
    "times at the end of numbers": [(b"evil", decision(decided_ms=253_402_300_799_999, number=0))],
    "a name that is none": [(b"((*[:", b"junk"), (b"", b"junk"), (b"/ended", b"junk"), (b"a" * 40_000, b"junk")],
    "a name that is no text": [(b"\xff\xfe", b"junk"), (b"\xff\xfe", decision())],
    "a name with control characters": [(b"\x00\n\x1b[31m", b"junk"), (b"\x1b]0;x\x07", Decision("\x1b]0;x\x07", "\x1b[2J", 0, ()).to_bytes())],
}  # fmt: skip

COMMANDS = [
    ["verify"],
    ["ledger"],
    ["transactions", "list"],
    ["transactions", "explain"],
    ["transactions", "list", "--topic", "out"],
]


def command(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(
        app, [*words, "-b", "memory:1", "-o", f"ledger.topic={LEDGER}", "-o", "topic=out", "--json"]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def text(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "-b", "memory:1", "-o", f"ledger.topic={LEDGER}", "-o", "topic=out"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


@pytest.mark.parametrize("how", HOW, ids=lambda how: how.__name__)
@pytest.mark.parametrize("what", WHAT)
def test_the_other_pipelines_are_shown(world: World, what: str, how: Writes) -> None:
    before = [own_part(command(*words)[1]) for words in COMMANDS]
    for key, value in WHAT[what]:
        how(world, key, value)

    for words, then in zip(COMMANDS, before, strict=True):
        world.fresh_process()
        _, document = command(*words)
        assert "error" not in document, words
        assert own_part(document) == then, words
        assert "\x1b[31m" not in text(*words) and "\x07" not in text(*words), words


def own_part(document: dict[str, Any]) -> Any:
    """What a command says of the pipeline."""
    for name in ("batches", "transactions", "pipelines"):
        if name in document:
            return [each for each in document[name] if each["pipeline"] == PIPELINE]
    return document


@pytest.mark.parametrize("how", HOW, ids=lambda how: how.__name__)
@pytest.mark.parametrize("words", COMMANDS[2:4] + COMMANDS[:1], ids=" ".join)
def test_what_cannot_be_judged_is_a_problem_of_its_name(world: World, how: Writes, words: list[str]) -> None:
    how(world, EVIL.encode(), decision(seals=(seal(leader_epoch=2**31 - 1),)))
    stranger.plainly(world, b"((*[:", b"junk")
    world.fresh_process()

    code, document = command(*words)

    assert [each["pipeline"] for each in document["problems"]] == ["((*[:", EVIL]
    assert "no pipeline can have this name" in document["problems"][0]["problem"]
    assert code == 1


@pytest.mark.parametrize("how", HOW, ids=lambda how: how.__name__)
def test_nobody_waits_for_partitions_that_anybody_may_have_named(world: World, how: Writes) -> None:
    how(world, EVIL.encode(), decision())
    how(world, f"{EVIL}/moved".encode(), to_bytes(Moved(1_000_000)))
    world.fresh_process()
    began_s = runtime.monotonic()

    code, document = command("transactions", "list")

    assert [each["pipeline"] for each in document["problems"]] == [EVIL]
    assert code == 3
    # Of the clock that waiting moves on.
    assert runtime.monotonic() - began_s < LAG_MS / 1000


def test_the_error_of_a_pipeline_that_was_named_is_the_commands(world: World) -> None:
    stranger.plainly(world, EVIL.encode(), b"junk")
    world.fresh_process()

    code, document = command("verify", EVIL)

    assert (code, document["error"]["class"]) == (1, "LedgerUnreadable")


def test_the_proofs_of_single_pipelines_are_one_document(world: World) -> None:
    before = command("verify")[1]
    stranger.plainly(world, EVIL.encode(), decision(seals=(seal(leader_epoch=2**31 - 1),)))
    world.fresh_process()

    document = command("verify")[1]

    assert document["batches"] == before["batches"]
    assert (document["searched"], document["older"]) == (before["searched"], before["older"])
