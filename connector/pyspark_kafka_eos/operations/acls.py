"""The ACLs that one pipeline needs, and the text with which three tools add them.

Owns: which right is for what; the spelling of kafka-acls, of Strimzi's KafkaUser and of Confluent's CLI.
Does not know: which rights are granted already.
Invariants: DESCRIBE is not listed where another right implies it (Kafka's StandardAuthorizer: READ, WRITE, DELETE,
ALTER).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.model.ids import prefix_of
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from pyspark_kafka_eos.slot.turn_log import turns_topic

TOPIC, GROUP, IDS, CLUSTER = "topic", "group", "transactional-id", "cluster"
_CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True)
class Acl:
    """One resource. `operations`: Kafka's names, such as Write; `prefixed`: the name begins those that are meant."""

    resource: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False


_BY_DOCTOR = Acl(CLUSTER, _CLUSTER_NAME, ("DescribeConfigs",), "doctor: the brokers' caps")


@dataclass(frozen=True)
class Needed:
    """The rights of a pipeline. `unknown`: what cannot be told from the options, a sentence each."""

    acls: tuple[Acl, ...]
    unknown: tuple[str, ...]


def needed(
    sink: SinkOptions | None,
    source: SourceOptions | None,
    *,
    outputs: Sequence[str] = (),
    sources: Sequence[str] = (),
    create: bool = False,
    doctor: bool = False,
    df_write: bool = False,
) -> Needed:
    """The least rights with which a query runs.

    `outputs`, `sources`: topics that the options do not name. `create`: the first run makes the ledger. `doctor`: what
    kafka-eos doctor and verify see more with. `df_write`: the sink is a write of a DataFrame, which commits no offsets.
    """
    acls, unknown = list[Acl](), list[str]()
    read_by_source = _read(source, unknown)
    read = tuple(dict.fromkeys((*read_by_source, *sources)))
    if sink is not None:
        acls += _written(sink, outputs, unknown, doctor=doctor)
        if sink.transactional:
            acls += _transactions(sink, create=create, doctor=doctor)
            if not df_write:
                acls += _offsets(sink, read, unknown)
        if doctor:
            acls.append(_BY_DOCTOR)
    why = "the source" if sink is None or not sink.transactional else "the source, and its offsets in the group"
    acls += [Acl(TOPIC, each, ("Read", *(("DescribeConfigs",) if doctor else ())), why) for each in read]
    return Needed(tuple(acls), tuple(unknown))


def _more(*, create: bool, doctor: bool) -> tuple[str, ...]:
    """On a ledger, beside reading and writing it."""
    return (*(("Create",) if create else ()), *(("DescribeConfigs",) if doctor else ()))


def _written(sink: SinkOptions, outputs: Sequence[str], unknown: list[str], *, doctor: bool) -> Iterator[Acl]:
    named = [each for each in (sink.topic, *outputs) if each]
    if not named:
        unknown.append("Write on each topic that the rows name: give them with --output")
    more = ("Read", "DescribeConfigs") if doctor else ()
    for name in dict.fromkeys(named):
        yield Acl(TOPIC, name, ("Write", *more), "the output")
    if sink.dead_letter_topic is not None:
        yield Acl(TOPIC, sink.dead_letter_topic, ("Write", *more), "dead.letter.topic")


def _transactions(sink: SinkOptions, *, create: bool, doctor: bool) -> Iterator[Acl]:
    if sink.pipeline:
        yield Acl(
            IDS, prefix_of(sink.pipeline), ("Write",), "the transactions of tasks, driver and notes", prefixed=True
        )
    else:
        yield Acl(IDS, UNNAMED, ("Write",), "the transactions of every df.write without a pipeline", prefixed=True)
    more = _more(create=create, doctor=doctor)
    yield Acl(TOPIC, sink.ledger_topic, ("Read", "Write", *more), "the ledger; Write can stop every pipeline in it")
    if sink.scope == "batch":
        yield Acl(TOPIC, turns_topic(sink.ledger_topic), ("Read", "Write", *more), "transaction.scope=batch")


def _offsets(sink: SinkOptions, read: Sequence[str], unknown: list[str]) -> Iterator[Acl]:
    if sink.offsets_group:
        yield Acl(GROUP, sink.offsets_group, ("Read",), "the source's offsets, committed with each batch")
        if not read:
            unknown.append("Read on each topic of the source, where it is on this cluster: give them with --source")


def _read(source: SourceOptions | None, unknown: list[str]) -> tuple[str, ...]:
    if source is None:
        return ()
    if source.subscribe_pattern is not None:
        unknown.append(
            f"Read on each topic that matches {json.dumps(source.subscribe_pattern)}: give them with --source"
        )
        return ()
    return (*source.subscribe, *sorted(source.assign or {}))


def ledger_of(tenant: str) -> str:
    """The ledger that a tenant's rights are for."""
    return f"{tenant}.ledger"


_TENANT = re.compile(r"[A-Za-z0-9_-]{1,60}")
"""Without a dot, so that no tenant's names begin with another one's and a dot."""


def of_tenant(name: str, *, create: bool = False, doctor: bool = False) -> Needed:
    """The rights of whoever has all names that begin with `<name>.`: topics, groups, pipelines, and a ledger of its
    own. OptionsError for a name that could be the beginning of another tenant's names.
    """
    if not _TENANT.fullmatch(name):
        raise OptionsError(
            f"--tenant must be 1 to 60 of the characters A-Z a-z 0-9 _ - (no dot: acme's prefix would open acme.eu's names); it is {name[:80]!r}"
        )
    more = _more(create=create, doctor=doctor)
    acls = [
        Acl(
            TOPIC,
            f"{name}.",
            ("Read", "Write", *more),
            f"sources, outputs and the ledger: ledger.topic={ledger_of(name)}",
            prefixed=True,
        ),
        Acl(IDS, f"{name}.", ("Write",), f"the transactions: pipeline={name}.<any>, of df.write too", prefixed=True),
        Acl(
            GROUP,
            f"{name}.",
            ("Read",),
            "the sources' offsets: offsets.group is the pipeline by default",
            prefixed=True,
        ),
    ]
    if doctor:
        acls.append(_BY_DOCTOR)
    return Needed(tuple(acls), ())


def check_principal(text: str) -> str:
    """The principal, such as User:alice; OptionsError for a text that is none."""
    kind, colon, name = text.partition(":")
    if not (kind.isalnum() and colon and name and name.isprintable()):
        raise OptionsError(f"--principal must be a type and a name, as in User:alice; it is {text[:80]!r}")
    return text


def kafka_acls(found: Needed, principal: str, servers: Iterable[str]) -> str:
    """Commands of Kafka's own tool, one for each resource."""
    lines = _comments(found)
    for each in found.acls:
        words = [
            "kafka-acls",
            "--bootstrap-server",
            ",".join(servers),
            "--command-config",
            "admin.properties",
        ]
        words += ["--add", "--allow-principal", principal]
        words += [word for operation in each.operations for word in ("--operation", operation)]
        words += ["--cluster"] if each.resource == CLUSTER else [f"--{each.resource}", each.name]
        words += ["--resource-pattern-type", "prefixed"] if each.prefixed else []
        lines += [f"# {each.why}", " ".join(map(shlex.quote, words))]
    return "\n".join(lines) + "\n"


def confluent(found: Needed, principal: str) -> str:
    """Commands of Confluent's CLI, one for each resource."""
    options = {TOPIC: "--topic", GROUP: "--consumer-group", IDS: "--transactional-id"}
    spelt = {"DescribeConfigs": "describe-configs"}
    lines = _comments(found)
    for each in found.acls:
        operations = ",".join(spelt.get(one, one.lower()) for one in each.operations)
        words = [
            "confluent",
            "kafka",
            "acl",
            "create",
            "--allow",
            "--principal",
            principal,
            "--operations",
            operations,
        ]
        words += ["--cluster-scope"] if each.resource == CLUSTER else [options[each.resource], each.name]
        words += ["--prefix"] if each.prefixed else []
        lines += [f"# {each.why}", " ".join(map(shlex.quote, words))]
    return "\n".join(lines) + "\n"


def strimzi(found: Needed, principal: str) -> str:
    """A KafkaUser of Strimzi's operator. The cluster's name and the authentication are the reader's to fill in."""
    kinds = {TOPIC: "topic", GROUP: "group", IDS: "transactionalId", CLUSTER: "cluster"}
    lines = [
        *_comments(found),
        "# v1beta2 before Strimzi 0.49; authentication: as the listener asks for it",
        "apiVersion: kafka.strimzi.io/v1",
        "kind: KafkaUser",
        "metadata:",
        f"  name: {json.dumps(principal.partition(':')[2].removeprefix('CN='))}",
        "  labels:",
        "    strimzi.io/cluster: CLUSTER",
        "spec:",
        "  authorization:",
        "    type: simple",
        "    acls:",
    ]
    for each in found.acls:
        lines += [f"      # {each.why}", "      - resource:", f"          type: {kinds[each.resource]}"]
        if each.resource != CLUSTER:
            pattern = "prefix" if each.prefixed else "literal"
            # A text of JSON is one of YAML.
            lines += [f"          name: {json.dumps(each.name)}", f"          patternType: {pattern}"]
        lines.append(f"        operations: [{', '.join(each.operations)}]")
    return "\n".join(lines) + "\n"


def _comments(found: Needed) -> list[str]:
    return [f"# not known from the options: {each}" for each in found.unknown]
