"""`kafka-eos topic create|list|delete`: what a first stream needs, on any cluster that the other commands reach.

Owns: the commands and their options.
Does not know: how topics are made and deleted (`pyspark_kafka_eos.operations.topics`).
Invariants:
- Nothing is deleted before it was confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.answering import NOTHING_CHANGED, answering, require_a_way_to_confirm
from pyspark_kafka_eos.cli.given import ANY_PIPELINE
from pyspark_kafka_eos.cli.parameters import ClusterParameters, Yes, asking
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.topics import BROKERS_DEFAULT, NewTopic, shapes
from pyspark_kafka_eos.operations import topics as operations
from pyspark_kafka_eos.operations.topics import TopicDone
from pyspark_kafka_eos.options import SinkOptions

topic = typer.Typer(no_args_is_help=True, help="Create, list and delete topics.")

Names = Annotated[list[str], typer.Argument(help="the topics")]
SomeNames = Annotated[list[str] | None, typer.Argument(help="the topics; default: all")]


@topic.command()
@asking
def create(
    names: Names,
    *,
    asked: ClusterParameters,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="of each topic; default: the broker's")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="copies of each partition; default: the broker's"),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="a setting of each topic, as retention.ms=86400000"),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="leave a topic that exists as it is, without an error")
    ] = False,
) -> None:
    """Create topics: all of them, or none where the brokers refuse one."""
    with answering("topic create", asked.as_json) as answer:
        settings = dict(_pair(each) for each in config or [])
        wanted = [
            NewTopic(name, partitions or BROKERS_DEFAULT, replication_factor or BROKERS_DEFAULT, settings)
            for name in _once(names)
        ]
        _, cluster = _connect(asked)
        done: list[TopicDone] = []
        answer.known = lambda: _so_far(done, "created")
        operations.create(cluster, wanted, if_not_exists=if_not_exists, done=done)
        answer(documents.topics_done("create", done))


@topic.command("list")
@asking
def list_(
    names: SomeNames = None,
    *,
    asked: ClusterParameters,
    internal: Annotated[bool, typer.Option("--internal", help="the brokers' own topics too")] = False,
) -> None:
    """Show topics: partitions, replication factor, partitions without a leader."""
    with answering("topic list", asked.as_json) as answer:
        _, cluster = _connect(asked)
        found = shapes(cluster, _once(names) if names else None)
        answer(documents.topics([each for each in found if internal or names or not each.internal]))


@topic.command()
@asking
def delete(names: Names, *, asked: ClusterParameters, yes: Yes = False) -> None:
    """Delete topics with all their records. The ledger's topics are refused."""
    with answering("topic delete", asked.as_json) as answer:
        require_a_way_to_confirm(asked.as_json, yes)
        options, cluster = _connect(asked)
        found = operations.deletable(cluster, _once(names), options.ledger_topic)
        if not yes:
            shown = ", ".join(f"{each.name} ({operations.described(each)})" for each in found)
            answer.confirm(f"Delete {shown} with all records?")
        done: list[TopicDone] = []
        answer.known = lambda: _so_far(done, "deleted")
        operations.delete(cluster, [each.name for each in found], done=done)
        answer(documents.topics_done("delete", done))


def _connect(asked: ClusterParameters) -> tuple[SinkOptions, Cluster]:
    options = asked.given().options(ANY_PIPELINE)
    return options, Cluster.shared(options.client, options.max_block_ms)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise OptionsError(f"--config needs NAME=VALUE, as in --config retention.ms=86400000; {NOTHING_CHANGED}")
    return name.strip(), value


def _once(names: Sequence[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionsError(f"{', '.join(twice)}: named twice; {NOTHING_CHANGED}")
    return list(names)


def _so_far(done: Sequence[TopicDone], outcome: str) -> str:
    names = [each.topic for each in done if each.outcome == outcome]
    if not names:
        return "the change that had begun may be made, no other is"
    return f"{', '.join(names)} {outcome}; the next one may be, no other is"
