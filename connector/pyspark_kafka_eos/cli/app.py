"""The commands of `kafka-eos` and their options.

Owns: the list of commands, confirmation, the answer of each command.
Does not know: how facts are found and changes are made (`pyspark_kafka_eos.operations`, `pyspark_kafka_eos.commit`), how an
answer is printed (`answering`).
Invariants:
- Nothing is changed before it was confirmed.
- An unknown name is refused before any question to the user and before any change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from kafka_core.errors import ExactlyOnceError, OptionsError, PipelineConflict, UnknownTopic
from pyspark_kafka_eos.cli import documents
from pyspark_kafka_eos.cli.acls import acls
from pyspark_kafka_eos.cli.answering import NOTHING_CHANGED, CommandAnswer, answering, require_a_way_to_confirm
from pyspark_kafka_eos.cli.given import ANY_PIPELINE, MAX_BLOCK_MS, GivenOptions, field_checks
from pyspark_kafka_eos.cli.migrating import migrate_options
from pyspark_kafka_eos.cli.parameters import ClusterParameters, OnePipeline, Yes, asking
from pyspark_kafka_eos.cli.tables import LedgerTable
from pyspark_kafka_eos.cli.topics import topic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.operations import ending as operations
from pyspark_kafka_eos.operations.checks import examine, examine_source
from pyspark_kafka_eos.operations.ending import Done, EndingProgress
from pyspark_kafka_eos.operations.history import LedgerEntry, newest_first, newest_of_each, pipelines_of
from pyspark_kafka_eos.operations.known import judge_each, require_known
from pyspark_kafka_eos.operations.leftovers import (
    Leftover,
    find_leftovers,
    find_strangers,
    holders,
    pipeline_of,
    pipelines_with_ids,
)
from pyspark_kafka_eos.operations.proving import prove_newest
from pyspark_kafka_eos.operations.standing import known_by, look, lost_ledger
from pyspark_kafka_eos.options import SinkOptions

EXITS = "Exit codes: 0 fine, 1 something is wrong, 2 wrong usage, 3 outcome unknown, 130 interrupted."

app = typer.Typer(
    name="kafka-eos",
    help=f"Exactly-once micro-batches from Spark to Kafka: check before a query starts, prove its output, end its leftovers. {EXITS}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
transactions = typer.Typer(no_args_is_help=True, help="Show and end a pipeline's open transactions.")
app.add_typer(transactions, name="transactions")
app.add_typer(topic, name="topic")
app.command("migrate-options")(migrate_options)
app.command()(acls)

Pipeline = Annotated[str | None, typer.Argument(help="the pipeline; default: the one of the options, otherwise all")]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="this transactional id only; may be given several times"),
]


@app.command()
@asking
def doctor(pipeline: OnePipeline = None, *, asked: ClusterParameters) -> None:
    """Check before a query starts: brokers, versions, rights, timeouts, topics, other users of the name.
    Changes nothing."""
    with answering("doctor", asked.as_json) as answer:
        given = asked.given()
        source = given.source_options
        if source is not None and pipeline is None and not given.writes:
            answer(documents.doctor(None, [*field_checks(given), *examine_source(source, MAX_BLOCK_MS)]))
        options = given.options(pipeline)
        answer(documents.doctor(options.pipeline, [*field_checks(given), *examine(options, source)]))


@app.command()
@asking
def ledger(
    pipeline: Pipeline = None,
    *,
    asked: ClusterParameters,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="number of decisions of each pipeline")] = 5,
) -> None:
    """Show the decisions: batches, slots, records, source offsets. Older decisions are kept until
    compaction."""
    with answering("ledger", asked.as_json) as answer:
        options, name, cluster = _connect(asked.given(), pipeline)
        _require_known(cluster, options, name)
        pages = newest_first(cluster, options.ledger_topic, name, last, known_by(cluster, options.ledger_topic))
        if asked.as_json:
            answer(documents.ledger(options.ledger_topic, newest_of_each(pages)))
        _show_ledger(answer, options.ledger_topic, pages)


def _show_ledger(answer: CommandAnswer, topic: str, pages: Iterator[list[LedgerEntry]]) -> NoReturn:
    """Print the decisions as they are found: a ledger may hold months of them."""
    table, code, count = LedgerTable(), documents.FINE, 0
    answer.known = lambda: f"{count} decisions are shown, older ones are not; {NOTHING_CHANGED}"
    for page in pages:
        for name, own in newest_of_each([page]).items():
            document = documents.ledger(topic, {name: own})
            code = max(code, document["exit_code"])
            (shown,) = document["pipelines"]
            table.add(name, shown["decisions"])
            count += len(own)
        answer.show(table, code)
    answer.show(table.end(topic), code)
    raise typer.Exit(code)


@app.command()
@asking
def verify(
    pipeline: Pipeline = None,
    *,
    asked: ClusterParameters,
    last: Annotated[
        int,
        typer.Option("--last", "-n", min=1, help="number of batches of each pipeline, as far as the ledger has them"),
    ] = 1,
) -> None:
    """Prove the output: read the decided batches from the log, count and compare with the ledger. Changes nothing."""
    with answering("verify", asked.as_json) as answer:
        options, name, cluster = _connect(asked.given(), pipeline)
        _require_known(cluster, options, name)
        answer.known = lambda: f"no verdict is given; {NOTHING_CHANGED}"

        def progress(done: int, of: int) -> None:
            answer.known = lambda: f"{done} of {of} partitions are read, no verdict is given; {NOTHING_CHANGED}"

        more = [each for each in (options.topic, options.dead_letter_topic) if each is not None]
        proof, problems = prove_newest(cluster, options.ledger_topic, name, last, more, progress)
        names = {found.pipeline for found, _ in proof.batches} | ({name} if name is not None else set())
        problems |= _lost(cluster, options, names, name)
        answer(documents.verify(proof, problems))


@transactions.command("list")
@asking
def list_(
    pipeline: Pipeline = None,
    *,
    asked: ClusterParameters,
    only_open: Annotated[
        bool, typer.Option("--open", help="only ids that have something open, or whose markers are missing")
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            help="only ids that have something open in this topic, other applications' ids too: its readers wait for these",
        ),
    ] = None,
) -> None:
    """Show every transactional id: state, age, timeout, decision, partitions where readers wait for it."""
    with answering("transactions list", asked.as_json) as answer:
        given = asked.given()
        if topic is None:
            found, problems = _look(given, pipeline)
            wanted = _filtered(found, lambda each: each.unsettled or not only_open)
            answer(documents.transactions("list", wanted, problems=problems))
        options, _, cluster = _connect(given, None)
        _require_known(cluster, options, pipeline)
        holding = holders(cluster, topic)
        names = {pipeline_of(each) or "" for each in holding} & set(_all_pipelines(cluster, options))
        asked_of = [each for each in names if pipeline in (None, each)]
        found, problems = judge_each(
            asked_of, lambda each: _leftovers(cluster, options, each), named=pipeline is not None
        )
        own = {each.transactional_id for leftovers in found.values() for each in leftovers}
        strangers = find_strangers(cluster, topic, own) if pipeline is None else []
        shown = _filtered(found, lambda each: each.transactional_id in holding)
        answer(documents.transactions("list", shown, strangers, problems))


@transactions.command()
@asking
def explain(pipeline: Pipeline = None, *, asked: ClusterParameters) -> None:
    """Explain in words what happened, and what the next run will do about it."""
    with answering("transactions explain", asked.as_json) as answer:
        found, problems = _look(asked.given(), pipeline)
        answer(documents.transactions("explain", found, problems=problems))


def _look(given: GivenOptions, pipeline: str | None) -> tuple[dict[str, list[Leftover]], documents.Problems]:
    """Each pipeline's ids, and the problems that a run's start would be refused for. With all pipelines, those that cannot be judged
    are returned with the problem instead."""
    options, name, cluster = _connect(given, pipeline)
    _require_known(cluster, options, name)
    names = [name] if name is not None else _all_pipelines(cluster, options)
    found, problems = judge_each(names, lambda each: _leftovers(cluster, options, each), named=name is not None)
    return found, problems | _lost(cluster, options, found, name)


def _lost(
    cluster: Cluster, options: SinkOptions, names: Iterable[str], named: str | None
) -> dict[str, ExactlyOnceError]:
    """The pipelines of which coordinators show more than the ledger accounts for, as a run's start would find."""

    def lost(name: str) -> ExactlyOnceError | None:
        return lost_ledger(cluster, options, name, named=name == named)

    found, problems = judge_each(names, lost, named=named is not None)
    return problems | {each: error for each, error in found.items() if error is not None}


def _leftovers(cluster: Cluster, options: SinkOptions, pipeline: str) -> list[Leftover]:
    ledger = Ledger(cluster, options.ledger_topic, pipeline)
    view = look(ledger)
    return find_leftovers(cluster, pipeline, view.newest, ended=view.ended, look=ledger.look_anew)


def _filtered(found: dict[str, list[Leftover]], wanted: Callable[[Leftover], bool]) -> dict[str, list[Leftover]]:
    return {name: [each for each in leftovers if wanted(each)] for name, leftovers in found.items()}


@transactions.command()
@asking
def commit(pipeline: OnePipeline = None, *, asked: ClusterParameters, only: Ids = None, yes: Yes = False) -> None:
    """Commit decided transactions that are still open. Refuses everything else; there is no way to force
    it."""
    question = "Commit the decided transactions of pipeline {}?"
    _change("commit", question, _commit, pipeline, asked, only, yes)


@transactions.command()
@asking
def abort(pipeline: OnePipeline = None, *, asked: ClusterParameters, only: Ids = None, yes: Yes = False) -> None:
    """Abort open transactions that are not decided. Decided ones are refused. An active run stops: its driver is fenced."""
    question = "Fence the driver of pipeline {} (an active run stops) and abort its undecided transactions?"
    _change("abort", question, operations.abort, pipeline, asked, only, yes)


@transactions.command()
@asking
def fence(pipeline: OnePipeline = None, *, asked: ClusterParameters, only: Ids = None, yes: Yes = False) -> None:
    """Give the ids a new epoch, so no zombie can write under them again. Aborts open transactions that are
    not decided."""
    question = "Fence every id of pipeline {} that has nothing decided open (an active run stops)?"
    _change("fence", question, operations.fence, pipeline, asked, only, yes)


Operation = Callable[[Cluster, Ledger, str, list[str], EndingProgress], list[Done]]


def _commit(cluster: Cluster, ledger: Ledger, group: str, ids: list[str], progress: EndingProgress) -> list[Done]:
    return operations.commit(cluster, ledger, ids, progress)


def _change(
    command: str, question: str, operation: Operation, pipeline: str | None, asked: ClusterParameters, only: list[str] | None, yes: bool,
) -> None:  # fmt: skip
    with answering(f"transactions {command}", asked.as_json) as answer:
        given, ids = asked.given(), only or []
        if pipeline is None and given.pipeline is None:
            raise OptionsError(
                f"name the pipeline: transactions {command} PIPELINE, or the option pipeline of the job's sink; {NOTHING_CHANGED}"
            )
        options = given.options(pipeline)
        foreign = [each for each in ids if pipeline_of(each) != options.pipeline]
        if foreign:
            raise OptionsError(
                f"{foreign[0]} is not a transactional id of pipeline {options.pipeline}; {NOTHING_CHANGED}"
            )
        require_a_way_to_confirm(asked.as_json, yes)
        cluster = Cluster.shared(options.client, options.max_block_ms)
        require_known(cluster, options.ledger_topic, options.pipeline, ids)
        lost = None if command == "commit" else lost_ledger(cluster, options, options.pipeline)
        if lost is not None:
            # The coordinators' state of the ids is the only sign of the lost decision: the next run would write its batch again.
            raise PipelineConflict(f"{lost.message}; {NOTHING_CHANGED}", lost.facts)
        if not yes:
            answer.confirm(question.format(options.pipeline))
        progress = EndingProgress()
        answer.known = progress.known
        ledger = Ledger(cluster, options.ledger_topic, options.pipeline)
        done = operation(cluster, ledger, options.offsets_group, ids, progress)
        answer(documents.done(command, options.pipeline, done))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def broker(context: typer.Context) -> None:
    """Run the embedded Kafka broker: `kafka-eos broker --help` has its options."""
    from embedded_kafka.__main__ import main

    raise typer.Exit(main(context.args))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def job(context: typer.Context) -> None:
    """Run a job (produce, transform, consume) by its YAML file, or write one (init): `kafka-eos job --help`."""
    from pyspark_kafka_eos.jobs.__main__ import main

    raise typer.Exit(main(context.args))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def warm(context: typer.Context) -> None:
    """Compile the kernels ahead, where an image is built: `kafka-eos warm --help`."""
    from pyspark_kafka_eos.records.warm import main

    raise typer.Exit(main(context.args))


# ---- shared


def _connect(given: GivenOptions, pipeline: str | None) -> tuple[SinkOptions, str | None, Cluster]:
    """The options, the intended pipeline (None: all), and the cluster."""
    name = pipeline if pipeline is not None else given.pipeline
    options = given.options(name if name is not None else ANY_PIPELINE)
    return options, name, Cluster.shared(options.client, options.max_block_ms)


def _require_known(cluster: Cluster, options: SinkOptions, pipeline: str | None) -> None:
    if pipeline is not None:
        require_known(cluster, options.ledger_topic, pipeline)


def _all_pipelines(cluster: Cluster, options: SinkOptions) -> list[str]:
    found = set(pipelines_with_ids(cluster))
    # A cluster without a ledger may have ids of runs that never decided anything.
    with suppress(UnknownTopic):
        found |= pipelines_of(cluster, options.ledger_topic)
    return sorted(found)
