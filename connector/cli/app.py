"""The commands of `kafka-eos` and their options.

Owns: which commands there are, confirmation, printing: a document as JSON or as tables, then its exit code.
Does not know: how anything is found out or done (`connector.commit` does).
Invariants: with `--json` standard output has one document and nothing else; nothing is changed before it was confirmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from connector.cli import documents
from connector.cli.documents import Document
from connector.cli.given import ANY_PIPELINE, Given, gather
from connector.cli.tables import render
from connector.client.cluster import Cluster
from connector.commit import operations
from connector.commit.audit import verify as audit
from connector.commit.audit import without_replaced
from connector.commit.checks import examine
from connector.commit.history import Entry, entries, newest_of_each
from connector.commit.ledger import Ledger
from connector.commit.leftovers import find_leftovers, pipeline_of, pipelines_with_ids
from connector.commit.operations import Done
from connector.errors import ExactlyOnceError, LedgerUnreadable, OptionsError, UnknownTopic
from connector.model import Decision
from connector.options import SinkOptions

EXITS = "Exit codes: 0 fine, 1 something is wrong, 2 wrong usage, 3 it could not be known."

app = typer.Typer(
    name="kafka-eos",
    help=f"Exactly-once micro-batches from Spark to Kafka: look before a query starts, prove what it wrote, end what it left. {EXITS}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
transactions = typer.Typer(
    no_args_is_help=True, help="What a pipeline has open in the brokers, and ending it."
)
app.add_typer(transactions, name="transactions")

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", envvar="KAFKA_BOOTSTRAP_SERVERS", help="host:port,... of the brokers"
    ),
]
Conf = Annotated[
    Path | None,
    typer.Option("--conf-file", "-c", help="a job's YAML file: its fields kafka, sink and source are used"),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="an option of the sink, as in the job; wins over the file",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on standard output, and nothing else")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask before anything is changed")]
Pipeline = Annotated[
    str | None, typer.Argument(help="the pipeline; without it the one of the options, else all")
]
OnePipeline = Annotated[str | None, typer.Argument(help="the pipeline; without it the one of the options")]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="this transactional id only; may be given several times"),
]


@app.command()
def doctor(
    pipeline: OnePipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Look before a query starts: brokers, versions, rights, timeouts, topics, who else uses the name. Changes nothing."""
    with _answering("doctor", as_json) as answer:
        given = gather(conf, option or [], bootstrap)
        options = given.options(pipeline)
        answer(documents.doctor(options.pipeline, examine(options, given.source_topics)))


@app.command()
def ledger(
    pipeline: Pipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="so many decisions of each pipeline")] = 5,
    as_json: Json = False,
) -> None:
    """Show what was decided: batches, slots, records, source offsets. Older decisions are there until compaction."""
    with _answering("ledger", as_json) as answer:
        options, name, cluster = _connect(gather(conf, option or [], bootstrap), pipeline)
        found = newest_of_each(entries(cluster, options.ledger_topic, name), last)
        answer(documents.ledger(options.ledger_topic, found))


@app.command()
def verify(
    pipeline: Pipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", min=1, help="so many batches of each pipeline, as far as the ledger has them"
        ),
    ] = 1,
    as_json: Json = False,
) -> None:
    """Prove the output: read the decided batches from the log, count and compare with the ledger. Changes nothing."""
    with _answering("verify", as_json) as answer:
        options, name, cluster = _connect(gather(conf, option or [], bootstrap), pipeline)
        found = newest_of_each(entries(cluster, options.ledger_topic, name), 2 * last)
        decided = [each for own in found.values() for each in _decisions(own)[-last:]]
        answer(documents.verify([(each, audit(cluster, each)) for each in decided]))


def _decisions(own: list[Entry]) -> list[Decision]:
    for each in own:
        if each.problem:
            raise LedgerUnreadable(
                f"the ledger's record at offset {each.offset} of {each.where} is no decision: {each.problem}; nothing was "
                "verified",
                {"pipeline": each.pipeline, "offset": each.offset},
            )
    return without_replaced([each.decision for each in own if each.decision is not None and not each.open])


@transactions.command("list")
def list_(
    pipeline: Pipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Show every transactional id: state, age, timeout, what is decided, where readers wait for it."""
    _look("list", pipeline, bootstrap, conf, option, as_json)


@transactions.command()
def explain(
    pipeline: Pipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Say in words what happened, and what the next run will do about it."""
    _look("explain", pipeline, bootstrap, conf, option, as_json)


def _look(
    command: str,
    pipeline: str | None,
    bootstrap: str | None,
    conf: Path | None,
    option: list[str] | None,
    as_json: bool,
) -> None:
    with _answering(f"transactions {command}", as_json) as answer:
        options, name, cluster = _connect(gather(conf, option or [], bootstrap), pipeline)
        names = [name] if name is not None else _all_pipelines(cluster, options)
        found = {
            each: find_leftovers(cluster, each, _newest(cluster, options.ledger_topic, each))
            for each in names
        }
        answer(documents.transactions(command, found))


@transactions.command()
def commit(
    pipeline: OnePipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    only: Ids = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Commit what the ledger has decided and nobody has ended. Refuses everything else; there is no way to force it."""
    question = "Commit the decided transactions of pipeline {}?"
    _change("commit", question, _commit, pipeline, bootstrap, conf, option, only, yes, as_json)


@transactions.command()
def abort(
    pipeline: OnePipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    only: Ids = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Abort what is open and not decided. Refuses what is decided. A run that is at work stops: its driver is fenced."""
    question = "Fence the driver of pipeline {} (a run that is at work stops) and abort what is not decided?"
    _change("abort", question, operations.abort, pipeline, bootstrap, conf, option, only, yes, as_json)


@transactions.command()
def fence(
    pipeline: OnePipeline = None,
    bootstrap: Bootstrap = None,
    conf: Conf = None,
    option: Options = None,
    only: Ids = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give the ids a new epoch, so that no zombie writes under them again; what is open and not decided is aborted."""
    question = "Fence every id of pipeline {} that has nothing decided open (a run that is at work stops)?"
    _change("fence", question, operations.fence, pipeline, bootstrap, conf, option, only, yes, as_json)


Operation = Callable[[Cluster, Ledger, str, list[str]], list[Done]]


def _commit(cluster: Cluster, ledger: Ledger, group: str, ids: list[str]) -> list[Done]:
    return operations.commit(cluster, ledger, ids)


def _change(
    command: str, question: str, operation: Operation, pipeline: str | None, bootstrap: str | None, conf: Path | None,
    option: list[str] | None, only: list[str] | None, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    with _answering(f"transactions {command}", as_json) as answer:
        options = gather(conf, option or [], bootstrap).options(pipeline)
        foreign = [each for each in only or [] if pipeline_of(each) != options.pipeline]
        if foreign:
            raise OptionsError(
                f"{foreign[0]} is no transactional id of pipeline {options.pipeline}; nothing was changed"
            )
        if as_json and not yes:
            raise OptionsError("--json asks nothing, so give --yes too; nothing was changed")
        if not yes and not typer.confirm(question.format(options.pipeline), err=True):
            typer.echo("nothing was changed", err=True)
            raise typer.Exit(documents.WRONG)
        cluster = Cluster.shared(options.client, options.max_block_ms)
        ledger = Ledger(cluster, options.ledger_topic, options.pipeline)
        answer(
            documents.done(
                command, options.pipeline, operation(cluster, ledger, options.offsets_group, only or [])
            )
        )


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def broker(context: typer.Context) -> None:
    """Run the embedded Kafka broker: `kafka-eos broker --help` has its options."""
    from connector.broker.__main__ import main

    raise typer.Exit(main(context.args))


# ---- shared


def _connect(given: Given, pipeline: str | None) -> tuple[SinkOptions, str | None, Cluster]:
    """The options, the pipeline that is meant (None: all), and the cluster."""
    name = pipeline if pipeline is not None else given.pipeline
    options = given.options(name if name is not None else ANY_PIPELINE)
    return options, name, Cluster.shared(options.client, options.max_block_ms)


def _all_pipelines(cluster: Cluster, options: SinkOptions) -> list[str]:
    found = set(pipelines_with_ids(cluster))
    # A cluster without a ledger may have ids of runs that never decided anything.
    with suppress(UnknownTopic):
        found |= set(newest_of_each(entries(cluster, options.ledger_topic), 1))
    return sorted(found)


def _newest(cluster: Cluster, topic: str, pipeline: str) -> Decision | None:
    try:
        return Ledger(cluster, topic, pipeline).newest(settle=False)
    except UnknownTopic:
        return None


@contextmanager
def _answering(command: str, as_json: bool) -> Iterator[Callable[[Document], NoReturn]]:
    """Print the document that the block answers with, or the error that it raises, and end with its exit code."""

    def answer(document: Document) -> NoReturn:
        if as_json:
            typer.echo(json.dumps(document, indent=2))
        else:
            Console(stderr="error" in document, highlight=False).print(render(document))
        raise typer.Exit(document["exit_code"])

    try:
        yield answer
    except ExactlyOnceError as error:
        answer(documents.failed(command, error))
