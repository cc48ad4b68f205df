"""`kafka-eos acls`: the ACLs that a pipeline needs, as commands of the tool that adds them.

Owns: the command and its options.
Does not know: which rights are needed, how a tool spells them (`operations.acls`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.answering import answering
from pyspark_kafka_eos.cli.given import ANY_PIPELINE
from pyspark_kafka_eos.cli.parameters import ClusterParameters, OnePipeline, asking
from pyspark_kafka_eos.operations import acls as rights
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC


@asking
def acls(
    pipeline: OnePipeline = None,
    principal: Annotated[
        str,
        typer.Option("--principal", metavar="TYPE:NAME", help="the one who gets the rights, such as User:alice"),
    ] = "User:NAME",
    *,
    asked: ClusterParameters,
    form: Annotated[
        Literal["kafka-acls", "strimzi", "confluent"], typer.Option("--for", help="the tool that grants them")
    ] = "kafka-acls",
    output: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="TOPIC", help="an output that the options do not name"),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="TOPIC", help="a topic of the source that the options do not name"),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="also to create the ledger at the first run")] = False,
    checking: Annotated[bool, typer.Option("--doctor", help="also what doctor and verify see more with")] = False,
    df_write: Annotated[
        bool,
        typer.Option("--df-write", help="of a DataFrame's write; without a pipeline, of all such writes"),
    ] = False,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", metavar="NAME", help="of all pipelines, topics and groups NAME.*, with the ledger NAME.ledger"
        ),
    ] = None,
) -> None:
    """Print the commands that grant a principal the least rights of this pipeline, or of a tenant. Asks no broker,
    changes nothing.
    """
    with answering("acls", asked.as_json) as answer:
        given = asked.given()
        who, reads = rights.check_principal(principal), given.source_options
        shape: Literal["stream", "batch"] = "batch" if df_write else "stream"
        sink: SinkOptions | None
        if tenant is not None:
            if pipeline is not None or given.pipeline is not None or output or source or df_write:
                raise OptionsError(
                    "--tenant is for all pipelines of a tenant: leave out the pipeline, --output, --source and --df-write"
                )
            sink = given.options(ANY_PIPELINE)
            if sink.ledger_topic not in (DEFAULT_LEDGER_TOPIC, rights.ledger_of(tenant)):
                raise OptionsError(
                    f"--tenant grants the ledger {rights.ledger_of(tenant)}, and ledger.topic={sink.ledger_topic[:80]!r} is another one: leave the option "
                    "out, or print the rights of one pipeline (kafka-eos acls PIPELINE)"
                )
            found = rights.of_tenant(tenant, create=create, doctor=checking)
        else:
            sink = given.options(pipeline, shape) if given.writes or pipeline is not None else None
            found = rights.needed(
                sink,
                reads,
                outputs=output or [],
                sources=source or [],
                create=create,
                doctor=checking,
                df_write=df_write,
            )
        if asked.as_json:
            answer(documents.acls(who, found))
        client = sink.client if sink is not None else reads.client if reads is not None else None
        servers = client.bootstrap_servers if client is not None else ()
        text = {
            "kafka-acls": lambda: rights.kafka_acls(found, who, servers),
            "strimzi": lambda: rights.strimzi(found, who),
            "confluent": lambda: rights.confluent(found, who),
        }[form]()
        answer.write(text, documents.FINE)
